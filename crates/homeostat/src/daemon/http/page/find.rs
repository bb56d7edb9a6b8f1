//! Finds one declared key, the routes to an address, or what is on a link, and how each stands now.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::Control;
use maud::{Markup, html};
use serde_json::Value;
use tokio::time::Instant;

use super::filters::Filters;
use super::needs::moment;
use super::rows::Rows;
use super::{clipped, grouped};
use crate::daemon::answers::Answers;
use crate::daemon::loops_snapshot::LoopsSnapshot;
use crate::output::line::value;
use crate::wire::KeyStatus;

/// How much of the page it may fill, in bytes.
const ROOM: usize = 7 << 10;
/// How many keys of a loop are listed, and how many of all are looked at in the target.
const LISTED: usize = 50;
const LOOKED_AT: usize = 8;
/// How long that may take in all: a loop that runs a pass answers after it.
const PATIENCE: Duration = Duration::from_millis(400);

/// What was found.
pub(super) struct Found {
    rows: Vec<FoundRow>,
    total: usize,
}

struct FoundRow {
    source: String,
    scope: String,
    key: String,
    wanted: Value,
    /// The kind of an open key and why, as the last pass left it.
    open: Option<(String, String)>,
    /// What a look at the target has just shown.
    now: Option<KeyStatus>,
}

pub(super) async fn find(answers: &Answers, now: &LoopsSnapshot, text: &str) -> Found {
    let mut found = Found { rows: Vec::new(), total: 0 };
    let mut controls: Vec<Arc<dyn Control>> = Vec::new();
    for control in &now.loops {
        let one = control.find(text, LISTED);
        found.total += one.total;
        let ledger_key = control.ledger_key();
        for entry in one.entries {
            let open = entry.open.map(|open| {
                (homeostat_engine::OpenCounts::kind_name(open.kind).to_owned(), open.reason)
            });
            let (source, scope) = (ledger_key.source.clone(), ledger_key.scope.clone());
            let row =
                FoundRow { source, scope, key: entry.key, wanted: entry.wanted, open, now: None };
            found.rows.push(row);
            controls.push(Arc::clone(control));
        }
    }
    let until = Instant::now() + PATIENCE;
    for (row, control) in found.rows.iter_mut().zip(&controls).take(LOOKED_AT) {
        let looked = tokio::time::timeout_at(until, answers.look(&**control, &row.key)).await;
        row.now = looked.ok().and_then(Result::ok).flatten();
    }
    found
}

pub(super) fn section(filters: &Filters, found: Option<&Found>) -> Markup {
    html! {
        section #find aria-labelledby="find-title" {
            h2 #find-title { "Find" }
            form role="search" action="/#find" {
                label for="find-text" .note {
                    "A key, an address or network (its routes, the longest first), or a link (all that is on it)"
                }
                div .line {
                    input #find-text name="find" type="search" value=[filters.find.as_ref()]
                        placeholder="10.1.2.3, eth0, net.ipv4.ip_forward" autocapitalize="off" spellcheck="false";
                    button { "Find" }
                }
            }
            @if let Some(found) = found { (results(found)) }
        }
    }
}

fn results(found: &Found) -> Markup {
    let Rows { shown, left_out } = Rows::fill(ROOM, found.rows.iter().map(row));
    let more = left_out + found.total.saturating_sub(found.rows.len());
    html! {
        @if found.rows.is_empty() {
            p .empty { "Nothing that is declared. " code { "homeostat show" } " prints what is there." }
        } @else {
            div .table role="region" aria-label="What was found" tabindex="0" {
                table {
                    thead { tr {
                        th scope="col" { "Key" }
                        th scope="col" { "Wanted" }
                        th scope="col" { "There now" }
                        th scope="col" { "Declared at" }
                    } }
                    tbody { @for row in &shown { (row) } }
                }
            }
        }
        @if more > 0 { p .more { "And " (grouped(more as u64)) " more." } }
    }
}

fn row(row: &FoundRow) -> Markup {
    let FoundRow { source, scope, key, wanted, open, now } = row;
    html! {
        tr {
            th scope="row" .key title={ (source) " in " (scope) } { (clipped(key, 120)) }
            td { (clipped(&value(wanted), 200)) }
            td {
                @match now {
                    Some(now) if now.converged => {
                        span .good { span aria-hidden="true" { "\u{2713}" } " as declared" }
                        @if let Some(owner) = now.owner.as_ref().filter(|owner| *owner != "ours") {
                            ", owner " (clipped(owner, 80))
                        }
                    }
                    Some(now) => (there(now)),
                    None => (left(open.as_ref())),
                }
                @if let Some(heal) = now.as_ref().and_then(|now| now.last_heal.as_ref()) {
                    p .meta { "last written " (moment(heal["time"].as_str().unwrap_or_default())) }
                }
            }
            td {
                @if let Some(place) = now.as_ref().and_then(|now| now.declared_at.as_ref()) { code { (clipped(place, 120)) } }
            }
        }
    }
}

/// What a look has shown.
fn there(now: &KeyStatus) -> Markup {
    html! {
        span .warn { span aria-hidden="true" { "\u{25b2}" } " " (now.state) }
        @if let Some(held) = &now.held { " " (clipped(&value(held), 200)) }
        @if let Some(on) = &now.waits_on { ", waits on " (clipped(on, 80)) }
        @if let Some(reason) = &now.reason { ", " (clipped(reason, 200)) }
        @if let Some(owner) = &now.owner { ", owner " (clipped(owner, 80)) }
        @if let Some(command) = &now.command { p .command { code { (command) } } }
    }
}

/// What the last pass left.
fn left(open: Option<&(String, String)>) -> Markup {
    html! {
        @match open {
            None => { "as declared, as of the last pass" }
            Some((kind, reason)) => {
                span .warn { span aria-hidden="true" { "\u{25b2}" } " " (kind) }
                @if !reason.is_empty() { ", " (clipped(reason, 200)) }
            }
        }
    }
}
