//! `homeostat uninstall`: deletes everything that an owner has on this machine, and gives back what it took over.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_engine::{Ledger, MassDelete, OnRelease, SqliteLedger};

use super::plan::plan;
use super::{apply, block_on, left_trial};
use crate::cli::{Global, UninstallArgs};
use crate::client::{is_daemon_absent, socket_path};
use crate::confirmed::{ConfirmedDocuments, nothing_declared};
use crate::context::{Context, state_dir};
use crate::failure::helped;
use crate::machine::Machine;
use crate::orders::{OrderGate, OrderedAction, Right};
use crate::output::{is_converged, json, stream, summary, text};
use crate::pieces;

/// Drives the machine to a document that declares nothing, and waits until nothing of the owner is left.
pub(super) fn run(args: &UninstallArgs, global: Global) -> Result<ExitCode> {
    let socket = socket_path(&global);
    if !is_daemon_absent(&socket) {
        return Err(helped(
            format!("a daemon listens at {}, and would create everything again", socket.display()),
            "stop it first: `systemctl disable --now homeostat`, or end the process",
        ));
    }
    let nothing = nothing_declared()?;
    // They may name the mark of the owner.
    let settings = ConfirmedDocuments::of(&state_dir(&global), global.owner_name()).last_settings();
    let mut context = Context::enter(global, &settings)?;
    context.caller.guards.mass_delete = MassDelete::Allow;
    context.caller.on_release = OnRelease::Restore;
    let (right, gate) = (context.right.clone(), OrderGate::of(&context.caller, &settings));
    let actions = || vec!["uninstall".to_owned()];
    if right == Right::Describe {
        let ordered = OrderedAction::of_plan(actions(), &plan(&context, &nothing)?)?;
        return block_on(gate.check(&right, ordered))?.map(|_| ExitCode::FAILURE);
    }
    if !args.yes {
        let reports = plan(&context, &nothing)?;
        if summary(&reports).total() > 0 {
            if !std::io::stdin().is_terminal() {
                return Err(helped("there is no terminal to ask on", "add --yes"));
            }
            apply::confirm(&context, &reports, args.form)?;
        }
    }
    let context = context.writing();
    let ledger: Arc<dyn Ledger> = Arc::new(SqliteLedger::open(&context.caller.state_dir)?);
    left_trial::roll_back(&context, &ledger)?;
    pieces::forget_all(&context.caller.state_dir, &context.caller.owner)?;
    let drivers = Machine::bind(&context, &nothing, &*ledger)?.unlock(&ledger)?;
    let gate = OrderGate::of(&context.caller, &settings);
    let reports = block_on(async {
        if gate.must_know(&right, &actions()) {
            gate.check(&right, OrderedAction::of_plan(actions(), &drivers.plan().await?)?).await?;
        }
        drivers.converge().await
    })??;
    let is_done = is_converged(&reports);
    let (owner, directory) = (&context.caller.owner, context.caller.state_dir.display());
    let printed = stream::print(context.color, |to| match args.form.drawing(context.detail) {
        None => json::report(&reports, to),
        Some(drawing) => {
            text::report(&reports, drawing, to)?;
            if is_done {
                writeln!(
                    to,
                    "Nothing of `{owner}` is left. Its records can go, too: rm -r {directory}"
                )
            } else {
                writeln!(to, "Something of `{owner}` is left, for the reasons above.")
            }
        }
    });
    printed.context("cannot write to standard output")?;
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
