//! What needs somebody: each with why, whose it is, since when, and the command that resolves it.

use homeostat_engine::{Kind, OpenCounts};
use homeostat_registry::Registration;
use maud::{Markup, html};

use super::filters::Filters;
use super::rows::Rows;
use super::{all_open, clipped, grouped};
use crate::daemon::clock::Stamp;
use crate::daemon::headline;
use crate::daemon::loops_snapshot::LoopsSnapshot;
use crate::registry::SOURCES;
use crate::wire::{Contended, LoopStatus, OpenItem, Overview, time_in_words};

/// How much of the page it may fill, in bytes.
const ROOM: usize = 20 << 10;

/// How many open keys are looked at for one page; the address of the next part goes on behind them.
const EXAMINED: usize = 5000;
const PAGE: usize = 1000;

/// In this order: what others hold, what was refused, what nobody knows, what waits for a person, what waits for itself.
const BY_HARM: [Kind; 6] =
    [Kind::Conflict, Kind::Failed, Kind::Unknown, Kind::Held, Kind::Change, Kind::Pending];

pub(super) fn section(now: &LoopsSnapshot, overview: &Overview, filters: &Filters) -> Markup {
    let (items, next) = gather(now, filters);
    let own = troubles(overview, filters);
    let own_rows = Rows::fill(ROOM / 3, own.into_iter());
    let count = items.len();
    let rows = Rows::fill(ROOM - ROOM / 3, items.iter().map(card));
    let left_out = rows.left_out + own_rows.left_out;
    let sources: Vec<&str> = SOURCES.iter().map(Registration::name).collect();
    let is_empty = count == 0 && own_rows.shown.is_empty();
    let on = |after: String| Filters { after: Some(after), ..filters.clone() }.address("needs");
    html! {
        section #needs aria-labelledby="needs-title" {
            h2 #needs-title { "What needs you" }
            (counts(overview, filters))
            @if is_empty {
                p .empty {
                    @if filters.is_set() && all_open(overview) > 0 {
                        "Nothing of what is shown."
                    } @else {
                        "Nothing. Everything is as declared."
                    }
                }
            } @else {
                ol .cards {
                    @for row in &own_rows.shown { (row) }
                    @for row in &rows.shown { (row) }
                }
            }
            @if left_out > 0 {
                p .more {
                    "And " (grouped(left_out as u64)) " more, which are not shown here. "
                    code { "homeostat status" } " and "
                    a href="/api/v1/open" { "/api/v1/open" } " list all of them."
                }
            }
            @if let Some(next) = next {
                p .more {
                    "The first " (grouped(EXAMINED as u64)) " open keys were looked at. "
                    a href=(on(next)) { "Go on behind them" }
                }
            }
            @if filters.after.is_some() {
                p .more {
                    a href=(Filters { after: None, ..filters.clone() }.address("needs")) { "Back to the first ones" }
                }
            }
            (filters.form(&sources))
        }
    }
}

/// How many keys are open in which way; each leads to its list.
fn counts(overview: &Overview, filters: &Filters) -> Markup {
    let count = |kind: Kind| overview.loops.iter().map(|one| one.open.count(kind)).sum::<usize>();
    let counts = BY_HARM.map(|kind| (kind, count(kind)));
    let link = |why: &str| {
        Filters { why: Some(why.to_owned()), after: None, ..filters.clone() }.address("needs")
    };
    html! {
        @if counts.iter().any(|(_, count)| *count > 0) {
            ul .counts {
                @for (kind, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
                    li { a href=(link(OpenCounts::kind_name(kind))) {
                        (grouped(count as u64)) " " (OpenCounts::kind_name(kind))
                    } }
                }
            }
        }
    }
}

/// The open keys that are asked for, those that do the most harm first; and where the next ones begin, if there are too
/// many to look at.
fn gather(now: &LoopsSnapshot, filters: &Filters) -> (Vec<OpenItem>, Option<String>) {
    let (mut found, mut after) = (Vec::new(), filters.after.clone());
    for _ in 0..EXAMINED / PAGE {
        let page = now.open(after.as_deref(), Some(PAGE));
        let is_shown = |item: &OpenItem| {
            filters.has_loop(&item.source, &item.scope)
                && filters.has_key(&item.key)
                && filters.why.as_ref().is_none_or(|why| *why == item.kind)
        };
        found.extend(page.open.into_iter().filter(is_shown));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let harm =
        |item: &OpenItem| BY_HARM.iter().position(|kind| OpenCounts::kind_name(*kind) == item.kind);
    found.sort_by_key(harm);
    (found, after)
}

/// A key that is not as declared.
fn card(item: &OpenItem) -> Markup {
    let OpenItem { source, scope, key, kind, reason, owner, since, help, command, next_try_in_ms } =
        item;
    html! {
        li .card {
            p .what {
                span .badge .(kind) { (kind) } " "
                strong .key { (clipped(key, 160)) }
            }
            @if let Some(reason) = reason { p { (prose(&clipped(reason, 400))) } }
            p .meta {
                (source) " in " (clipped(scope, 60))
                @if let Some(owner) = owner { ", owner " (clipped(owner, 80)) }
                @if let Some(since) = since { ", since " (moment(since)) }
                @if let Some(left) = next_try_in_ms { ", tried again in " (time_in_words(*left)) }
            }
            @if let Some(help) = help { p { (prose(&clipped(help, 400))) } }
            @if let Some(command) = command { p .command { code { (command) } } }
        }
    }
}

/// What is wrong beside the open keys: the document, whole loops, and keys that somebody keeps undoing.
fn troubles(overview: &Overview, filters: &Filters) -> Vec<Markup> {
    let mut all = Vec::new();
    if filters.why.is_some() {
        return all;
    }
    let refused = overview.provider.as_ref().filter(|_| !filters.is_set());
    if let Some((provider, failure)) =
        refused.and_then(|provider| Some((provider, provider.last_error.as_ref()?)))
    {
        let good = time_in_words(provider.last_good_ago_ms);
        all.push(html! {
            li .card {
                p .what { span .badge .failed { "refused" } " " strong .key { "the document" } }
                pre { (clipped_lines(&failure.error)) }
                p .meta { "last good " (good) " ago; that one is in force" }
                @if let Some(help) = &failure.help { p { (prose(&clipped(help, 400))) } }
                p .command { code { "homeostat check " (provider.from) } }
            }
        });
    }
    if overview.tried_before && !filters.is_set() {
        all.push(html! {
            li .card {
                p .what { span .badge .held { "rolled back" } " " strong .key { "the document" } }
                p {
                    "It was tried and rolled back. It is in force all the same, since no other one was ever confirmed."
                }
            }
        });
    }
    for one in overview.loops.iter().filter(|one| filters.has_loop(&one.source, &one.scope)) {
        of_loop(one, filters, &mut all);
    }
    all
}

fn of_loop(one: &LoopStatus, filters: &Filters, all: &mut Vec<Markup>) {
    let place = html! { (one.source) " in " (clipped(&one.scope, 60)) };
    if let Some(failure) = one.last_error.as_ref().filter(|_| filters.q.is_none()) {
        let times = (one.failures > 0).then(|| format!(", {} times in a row", one.failures));
        all.push(html! {
            li .card {
                p .what { span .badge .failed { "failing" } " " strong .key { (place) } }
                p { (prose(&clipped(&failure.error, 400))) }
                p .meta { "the last pass failed as a whole" (times.unwrap_or_default()) }
                @if let Some(help) = &failure.help { p { (prose(&clipped(help, 400))) } }
            }
        });
    }
    for Contended { key, culprit, pause_ms } in
        one.contended.iter().filter(|one| filters.has_key(&one.key))
    {
        all.push(html! {
            li .card {
                p .what { span .badge .conflict { "contended" } " " strong .key { (clipped(key, 160)) } }
                p { strong { (clipped(culprit, 120)) } " keeps undoing it. Stop that, or take the key out of the document." }
                p .meta { (place) ", left alone for " (time_in_words(*pause_ms)) " at a time" }
            }
        });
    }
    for key in one.not_converging.iter().filter(|key| filters.has_key(key)) {
        all.push(html! {
            li .card {
                p .what { span .badge .failed { "not converging" } " " strong .key { (clipped(key, 160)) } }
                p { "It is written again and again, and never reads back." }
                p .meta { (place) }
            }
        });
    }
}

/// The first lines of a diagnosis.
fn clipped_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().take(12).map(|line| clipped(line, 160)).collect();
    lines.join("\n")
}

/// Words with commands between backticks.
fn prose(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A moment, as short as it is clear.
pub(super) fn moment(text: &str) -> Markup {
    let (date, clock) = (text.get(..10).unwrap_or(text), text.get(11..19).unwrap_or_default());
    let is_today = Stamp::now().to_string().get(..10) == Some(date);
    html! {
        time datetime=(text) title=(text) {
            @if !is_today { (date) " " }
            (clock)
        }
    }
}

/// A sign and a word for how a loop stands, and the style of both.
pub(super) fn sign(one: &LoopStatus) -> (&'static str, &'static str) {
    match one {
        one if one.stall.is_some() || one.last_error.is_some() => ("\u{25a0}", "bad"),
        one if one.paused => ("\u{2016}", "idle"),
        one if one.converged => ("\u{2713}", "good"),
        one if headline::open(one) > 0 => ("\u{25b2}", "warn"),
        _ => ("\u{2026}", "idle"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_named_is_text() {
        let item = OpenItem {
            key: "link <b>x</b>".to_owned(),
            reason: Some("`a<i>`".to_owned()),
            owner: Some("\"><script>".to_owned()),
            ..OpenItem::default()
        };
        let card = card(&item).into_string();
        assert!(card.contains("link &lt;b&gt;x&lt;/b&gt;"), "{card}");
        assert!(card.contains("<code>a&lt;i&gt;</code>"), "{card}");
        assert!(!card.contains("<script>") && !card.contains("<b>"), "{card}");
    }
}
