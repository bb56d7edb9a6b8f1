//! What a plan would show now: what is wanted, and what is there, of the first keys that are open.

use std::time::Duration;

use maud::{Markup, html};
use tokio::time::Instant;

use super::filters::Filters;
use super::rows::Rows;
use super::{all_open, clipped, grouped};
use crate::daemon::answers::Answers;
use crate::daemon::loops_snapshot::LoopsSnapshot;
use crate::output::line::value;
use crate::wire::{KeyStatus, Overview};

/// How much of the page it may fill, in bytes.
const ROOM: usize = 7 << 10;
/// How many keys are looked at, and how long that may take.
const LOOKED_AT: usize = 50;
const PATIENCE: Duration = Duration::from_secs(2);

/// What looks at the open keys have shown.
pub(super) struct Differences(Vec<KeyStatus>);

/// Looks at the first open keys, one after the other.
pub(super) async fn look(answers: &Answers, now: &LoopsSnapshot) -> Differences {
    let until = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    for item in now.open(None, Some(LOOKED_AT)).open {
        let is_its = |one: &&std::sync::Arc<dyn homeostat_engine::Control>| {
            let ledger_key = one.ledger_key();
            (&ledger_key.source, &ledger_key.scope) == (&item.source, &item.scope)
        };
        let Some(control) = now.loops.iter().find(is_its) else { continue };
        let looked = tokio::time::timeout_at(until, answers.look(&**control, &item.key)).await;
        all.extend(looked.ok().and_then(Result::ok).flatten());
    }
    Differences(all)
}

pub(super) fn section(
    overview: &Overview,
    differences: Option<&Differences>,
    filters: &Filters,
) -> Markup {
    let open = all_open(overview);
    let show = Filters { diff: true, ..filters.clone() }.address("diff");
    html! {
        section #diff aria-labelledby="diff-title" {
            h2 #diff-title { "What a plan would show" }
            @match differences {
                Some(differences) if open > 0 => (table(differences, open)),
                _ if open > 0 => {
                    p {
                        (grouped(open as u64)) (if open == 1 { " key is" } else { " keys are" }) " not as declared. "
                        a href=(show) { "Look at them now" }
                    }
                }
                _ if overview.converged => { p .empty { "No changes." } }
                _ => { p .empty { "Nothing yet: not every loop has looked at everything." } }
            }
        }
    }
}

fn table(Differences(all): &Differences, open: usize) -> Markup {
    let Rows { shown, .. } = Rows::fill(ROOM, all.iter().map(row));
    let more = open.saturating_sub(shown.len());
    html! {
        div .table role="region" aria-labelledby="diff-title" tabindex="0" {
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
        @if more > 0 {
            p .more { "And " (grouped(more as u64)) " more: " code { "homeostat plan --full" } }
        }
    }
}

fn row(status: &KeyStatus) -> Markup {
    let KeyStatus {
        source, scope, key, wanted, held, state, reason, waits_on, declared_at, ..
    } = status;
    html! {
        tr {
            th scope="row" .key title={ (source) " in " (scope) } { (clipped(key, 120)) }
            td { @if let Some(wanted) = wanted { ins { (clipped(&value(wanted), 200)) } } @else { "absent" } }
            td {
                @if let Some(held) = held { del { (clipped(&value(held), 200)) } } @else { (state) }
                @if let Some(on) = waits_on { ", waits on " (clipped(on, 80)) }
                @if let Some(reason) = reason { ", " (clipped(reason, 160)) }
            }
            td { @if let Some(place) = declared_at { code { (clipped(place, 120)) } } }
        }
    }
}
