//! What was healed, the newest first: who changed it, and how long it took until it was back.

use maud::{Markup, html};

use super::filters::Filters;
use super::needs::moment;
use super::rows::Rows;
use super::{clipped, grouped, in_words};
use crate::daemon::drift::Healed;

/// How much of the page it may fill, in bytes.
const ROOM: usize = 14 << 10;

pub(super) fn section(healed: &[Healed], unnamed: u64, filters: &Filters) -> Markup {
    let rows = healed
        .iter()
        .filter(|row| filters.has_loop(row.source, &row.scope) && filters.has_key(&row.key));
    let Rows { shown, left_out } = Rows::fill(ROOM, rows.map(|one| row(Some(one))));
    let more = left_out as u64 + unnamed;
    html! {
        section #drift aria-labelledby="drift-title" {
            h2 #drift-title { "Drift" }
            p .note { "What others changed, and what was done about it. Newest first." }
            div #drift-table .table role="region" aria-labelledby="drift-title" tabindex="0" hidden[shown.is_empty()] {
                table {
                    thead { tr {
                        th scope="col" { "Time (UTC)" }
                        th scope="col" { "Key" }
                        th scope="col" { "Done" }
                        th scope="col" { "Changed by" }
                        th scope="col" .number { "Back after" }
                        th scope="col" .number { "Times" }
                    } }
                    tbody #drift-rows data-live[!filters.is_set()] aria-live="off" {
                        @for row in &shown { (row) }
                    }
                }
            }
            p #no-drift .empty hidden[!shown.is_empty()] { "Nothing has drifted since the start." }
            @if more > 0 {
                p .more {
                    "And " (grouped(more)) " more. "
                    code { "homeostat events" } " has the last thousand events."
                }
            }
            template #drift-row { (row(None)) }
        }
    }
}

/// One row; without a heal, the empty one that new rows are made of.
fn row(healed: Option<&Healed>) -> Markup {
    let cell = |read: fn(&Healed) -> String| healed.map(read).unwrap_or_default();
    html! {
        tr data-row=[healed.map(|one| one.row)] {
            td data-field="clock" { @if let Some(one) = healed { (moment(&one.at.to_string())) } }
            td data-field="key" .key title=[healed.map(|one| format!("{} in {}", one.source, one.scope))] {
                (cell(|one| clipped(&one.key, 120)))
            }
            td data-field="what" { (cell(|one| one.action.word().to_owned())) }
            td data-field="by" {
                (cell(|one| one.by.as_deref().map_or("unknown".to_owned(), |by| clipped(by, 80))))
            }
            td data-field="took" .number {
                (cell(|one| one.took.map_or("found by a full look".to_owned(), in_words)))
            }
            td data-field="times" .number {
                (cell(|one| if one.times > 1 { format!("\u{d7} {}", grouped(one.times)) } else { String::new() }))
            }
        }
    }
}
