//! `homeostat doctor`: who else keeps the network of this machine, what would fight, what is missing, and what to do. It
//! only reads.

mod host;
mod judge;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use self::host::Host;
use self::judge::{Finding, Level, judge};
use crate::cli::{DoctorArgs, Global};
use crate::commands::plan::NOT_CONVERGED;
use crate::output::line::{BOLD, GREEN, RED, YELLOW, plain};
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

/// Looks at the machine, and prints what was found.
pub(super) fn run(args: &DoctorArgs, global: &Global) -> Result<ExitCode> {
    let host = Host::read(Path::new("/"));
    let findings = judge(&host);
    let is_well = findings.iter().all(|finding| !finding.level.is_trouble());
    stream::print(global.color, |to| {
        if args.json {
            draw_json(&host, &findings, is_well, to)
        } else {
            draw(&host, &findings, to)
        }
    })?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_CONVERGED) })
}

fn draw_json(
    host: &Host,
    findings: &[Finding],
    is_well: bool,
    to: &mut dyn Write,
) -> io::Result<()> {
    let Host { kernel, systemd, nft, .. } = host;
    let all = json!({
        "format_version": FORMAT_VERSION,
        "well": is_well,
        "kernel": kernel.as_ref().map(ToString::to_string),
        "systemd": systemd,
        "nft": nft.as_ref().map(ToString::to_string),
        "findings": findings,
    });
    writeln!(to, "{all}")
}

fn draw(host: &Host, findings: &[Finding], to: &mut dyn Write) -> io::Result<()> {
    for level in Level::ALL {
        let mut of_level = findings.iter().filter(|finding| finding.level == level).peekable();
        if of_level.peek().is_some() {
            writeln!(to, "{BOLD}{}{BOLD:#}", level.title())?;
        }
        for Finding { who, what, help, commands, .. } in of_level {
            let style = match level {
                Level::Fights => RED,
                Level::Lacks => YELLOW,
                Level::Beside | Level::Note => GREEN,
            };
            writeln!(to, "  {style}{}{style:#} {}: {}", level.sign(), plain(who), plain(what))?;
            if let Some(help) = help {
                writeln!(to, "      help: {}", plain(help))?;
            }
            for command in commands {
                writeln!(to, "      $ {}", plain(command))?;
            }
        }
    }
    let known = |what: Option<String>| what.unwrap_or_else(|| "unknown".to_owned());
    writeln!(
        to,
        "Linux {}, systemd {}, nft {}.",
        known(host.kernel.as_ref().map(ToString::to_string)),
        known(host.systemd.map(|version| version.to_string())),
        known(host.nft.as_ref().map(ToString::to_string)),
    )?;
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    match (count(Level::Fights), count(Level::Lacks)) {
        (0, 0) => writeln!(to, "Nothing here fights with homeostat, and nothing is missing."),
        (fights, lacks) => writeln!(to, "Doctor: {fights} to settle first, {lacks} missing."),
    }
}
