//! `homeostat order`: asks what a command would do, and writes it down to be signed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use homeostat_fleet::Time;
use homeostat_fleet::order::{self, NAMESPACE, Order};
use homeostat_fleet::records::Record as _;
use serde_json::json;

use super::fleet::programs;
use crate::cli::{Cli, Command, Global, OrderArgs};
use crate::daemon::clock::Stamp;
use crate::failure::helped;
use crate::orders::{Right, ToOrder};
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

pub(super) fn run(args: &OrderArgs, global: Global) -> Result<ExitCode> {
    let out = &args.out;
    if out.exists() {
        return Err(helped(
            format!("{} is there already", out.display()),
            "give another name, or remove it",
        ));
    }
    let color = global.color;
    let command = to_order(args, global)?;
    let order = Order { id: new_id()?, command, not_after: Time::of_millis(end_of(args)) };
    let bytes = order.write();
    let signature = args.signing_key.as_deref();
    let signature = signature.map(|key| programs::sign(key, NAMESPACE, &bytes)).transpose()?;
    let written = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
    };
    written(out, &bytes)?;
    if let Some(signature) = &signature {
        written(&beside(out), signature.as_bytes())?;
    }
    stream::print(color, |to| {
        if args.json {
            let (file, signed) = (out, signature.is_some());
            let all = json!({ "format_version": FORMAT_VERSION, "file": file, "signed": signed, "order": order });
            return writeln!(to, "{all}");
        }
        let order::Command { actions, key, machine, .. } = &order.command;
        let (actions, shown) = (actions.join(", "), out.display());
        writeln!(to, "Order {}: {actions} of {}", order.id, plain(key))?;
        writeln!(to, "  on {}, until {}", plain(machine), order.not_after)?;
        if signature.is_none() {
            writeln!(to, "Sign it: {}", programs::sign_command(NAMESPACE, out))?;
        }
        writeln!(to, "Carry it out, once: the same command with --order {shown}")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the command up to where it would be carried out.
fn to_order(args: &OrderArgs, global: Global) -> Result<order::Command> {
    let words = std::iter::once("homeostat".into()).chain(args.command.iter().cloned());
    let Cli { global: own, command } = Cli::try_parse_from(words).map_err(|error| {
        helped(
            format!("no order can be made for this command: {}", error.to_string().trim_end()),
            "write it as it will be carried out: `homeostat order --out FILE guest stop 101`",
        )
    })?;
    let global = Global {
        state_dir: own.state_dir.or(global.state_dir),
        owner: own.owner.or(global.owner),
        protocol: own.protocol.or(global.protocol),
        netns: own.netns.or(global.netns),
        order: None,
        right: Right::Describe,
        ..own
    };
    let is_let_through = !global.leave().actions().is_empty();
    let can_need_order = match &command {
        Command::Apply(_) | Command::Resync(_) | Command::Reload(_) => is_let_through,
        Command::Rollback(args) => is_let_through && args.to.is_some(),
        Command::Adopt(_)
        | Command::Release(_)
        | Command::Forget(_)
        | Command::Source(_)
        | Command::Uninstall(_) => true,
        _ => false,
    };
    if !can_need_order {
        return Err(helped(
            "no order can be required for this command",
            "orders are for guest, adopt, release, forget and uninstall, and for apply, resync, reload and \
             rollback --to with --allow-mass-delete, --allow-cascades or --accept-loss",
        ));
    }
    match super::run(Cli { global, command }) {
        Err(error) => error.downcast().map(|ToOrder(command)| command),
        Ok(_) => Err(helped(
            "the command did not say what it would do",
            "start the daemon, and try again",
        )),
    }
}

/// The time is over for this machine and for the signer alike: both judge by UTC.
fn end_of(args: &OrderArgs) -> u64 {
    // Whole seconds are easier to read for who signs.
    Stamp::after(args.valid_for.get()).as_millis() / 1000 * 1000
}

fn new_id() -> Result<homeostat_fleet::Name> {
    let path = "/proc/sys/kernel/random/uuid";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().parse()?)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sig");
    PathBuf::from(name)
}
