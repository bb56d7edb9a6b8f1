//! `homeostat hold` and `homeostat unhold`: whether this machine takes new documents of its fleet. What is in force is
//! kept as declared either way.

use std::process::ExitCode;

use anyhow::Result;
use homeostat_document::{Period, Settings};
use serde_json::json;

use super::control::print;
use crate::cli::{FleetHoldArgs, Global, UnholdArgs};
use crate::context;
use crate::daemon::clock::Stamp;
use crate::output::line::plain;
use crate::person::Person;
use crate::provider::fleet::{Hold, Holds};

pub(super) fn hold(args: &FleetHoldArgs, global: &Global) -> Result<ExitCode> {
    let until = args.during.map(Period::get).map(|during| Stamp::after(during).to_string());
    let reason = args.reason.clone().unwrap_or_else(|| "no reason was given".to_owned());
    let hold = Hold { reason, by: Person::current().to_string(), until };
    holds(global)?.set(&hold)?;
    let until = hold
        .until
        .clone()
        .map_or("until `homeostat unhold`".to_owned(), |until| format!("until {until}"));
    let answer = json!({ "held": hold });
    print(&answer, args.json, |_| {
        format!("New documents of the fleet are held back {until}: {}\n", plain(&hold.reason))
    })
}

pub(super) fn unhold(args: &UnholdArgs, global: &Global) -> Result<ExitCode> {
    let was_held = holds(global)?.remove()?;
    let text = if was_held {
        "New documents of the fleet are taken again.\n"
    } else {
        "Nothing was held back.\n"
    };
    print(&json!({ "was_held": was_held }), args.json, |_| text.to_owned())
}

fn holds(global: &Global) -> Result<Holds> {
    let (owner, _) = context::owner(global, &Settings::default())?;
    Ok(Holds::of(&context::state_dir(global), &owner))
}
