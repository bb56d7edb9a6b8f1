//! The documents that were confirmed, and the trials that were rolled back.

use maud::{Markup, html};

use super::needs::moment;
use super::rows::Rows;
use super::{clipped, grouped};
use crate::confirmed::{ConfirmedDocuments, EndedTrial, Entry};
use crate::daemon::loops_snapshot::LoopsSnapshot;

/// How much of the page it may fill, in bytes.
const ROOM: usize = 5 << 10;

/// What is on the disk of it.
#[derive(Default)]
pub(super) struct History {
    entries: Vec<Entry>,
    rolled_back: Vec<EndedTrial>,
}

impl History {
    /// Reads small files, at most twenty of each.
    pub(super) fn read(confirmed: &ConfirmedDocuments) -> Self {
        let entries = confirmed.entries().unwrap_or_default();
        History { entries, rolled_back: confirmed.rolled_back() }
    }
}

pub(super) fn section(history: &History, now: &LoopsSnapshot) -> Markup {
    let mut rows: Vec<(&str, Markup)> = Vec::new();
    for (at, entry) in history.entries.iter().enumerate() {
        let number = entry.number.to_string();
        // The oldest one has none to be compared with.
        let command = (at > 0).then(|| now.invocation.command(&["history", "--diff", &number]));
        rows.push((&entry.confirmed_at, html! {
            tr {
                td { (moment(&entry.confirmed_at)) }
                td { span .good { span aria-hidden="true" { "\u{2713}" } " document " (number) } }
                td { "confirmed by " (clipped(&entry.confirmer().to_string(), 100)) }
                td .command { @if let Some(command) = command { code { (command) } } }
            }
        }));
    }
    for EndedTrial { trial, ended_at, end } in &history.rolled_back {
        rows.push((ended_at, html! {
            tr {
                td { (moment(ended_at)) }
                td { span .warn { span aria-hidden="true" { "\u{21ba}" } " trial " (trial.record.id) " rolled back" } }
                td {
                    (clipped(&end.why, 160))
                    @if end.not_count > 0 { "; " (grouped(end.not_count as u64)) " keys could not be restored" }
                }
                td {}
            }
        }));
    }
    rows.sort_by(|(one, _), (other, _)| other.cmp(one));
    let Rows { shown, left_out } = Rows::fill(ROOM, rows.into_iter().map(|(_, row)| row));
    html! {
        section #history aria-labelledby="history-title" {
            h2 #history-title { "History" }
            @if shown.is_empty() {
                p .empty { "No document was confirmed yet." }
            } @else {
                div .table role="region" aria-labelledby="history-title" tabindex="0" {
                    table {
                        thead { tr {
                            th scope="col" { "Time (UTC)" }
                            th scope="col" { "What" }
                            th scope="col" { "How" }
                            th scope="col" { "What it changed" }
                        } }
                        tbody { @for row in &shown { (row) } }
                    }
                }
            }
            @if left_out > 0 {
                p .more { "And " (left_out) " more: " code { "homeostat history" } }
            }
        }
    }
}
