//! The loops by source and scope, which machine acts on what several share, and what sources count beside their loops.

use std::collections::BTreeMap;

use homeostat_engine::{Kind, OpenCounts};
use homeostat_registry::{Sample, SampleKind};
use maud::{Markup, html};

use super::filters::Filters;
use super::needs::sign;
use super::rows::Rows;
use super::{clipped, grouped};
use crate::daemon::loops_snapshot::LoopsSnapshot;
use crate::registry::SOURCES;
use crate::wire::{LoopStatus, Overview, Role, RoleStatus, time_in_words};

/// How much of the page they may fill, in bytes.
const ROOM: usize = 9 << 10;
const ROOM_FOR_COUNTERS: usize = 3 << 10;

pub(super) fn section(overview: &Overview, filters: &Filters) -> Markup {
    let loops = overview.loops.iter();
    let loops = loops.filter(|one| filters.has_loop(&one.source, &one.scope));
    let Rows { shown, left_out } = Rows::fill(ROOM, loops.map(row));
    html! {
        section #loops aria-labelledby="loops-title" {
            h2 #loops-title { "Loops" }
            div .table role="region" aria-labelledby="loops-title" tabindex="0" {
                table {
                    thead { tr {
                        th scope="col" { "Source" }
                        th scope="col" { "Scope" }
                        th scope="col" { "State" }
                        th scope="col" { "Last pass" }
                        th scope="col" { "Next" }
                        th scope="col" .number { "Steps" }
                    } }
                    tbody { @for row in &shown { (row) } }
                }
            }
            @if left_out > 0 {
                p .more { "And " (grouped(left_out as u64)) " more. The filter above finds them by source and scope." }
            }
        }
    }
}

fn row(one: &LoopStatus) -> Markup {
    let (sign, class) = sign(one);
    let of_loop = Filters {
        source: Some(one.source.clone()),
        scope: Some(one.scope.clone()),
        ..Filters::default()
    };
    let next = match (one.next_due_in_ms, &one.next_why) {
        (Some(due), Some(why)) => format!("{why} in {}", time_in_words(due)),
        _ => String::new(),
    };
    html! {
        tr {
            th scope="row" { a href=(of_loop.address("needs")) { (one.source) } }
            td { (clipped(&one.scope, 40)) }
            td { span .(class) { span aria-hidden="true" { (sign) } " " (state(one)) } }
            td { @if let Some(ago) = one.last_attempt_ago_ms { (time_in_words(ago)) " ago" } }
            td { (clipped(&next, 60)) }
            td .number { (grouped(one.counts["applied"].as_u64().unwrap_or_default())) }
        }
    }
}

/// How a loop stands, in words.
fn state(one: &LoopStatus) -> String {
    if let Some(on) = &one.waits_on {
        return format!("waits on {}", clipped(on, 60));
    }
    let mut words = vec![match one {
        one if one.stall.is_some() => "stalled".to_owned(),
        one if one.paused => "paused".to_owned(),
        one if one.converged => "converged".to_owned(),
        one if !one.ready => "starting".to_owned(),
        _ => "not converged".to_owned(),
    }];
    for kind in Kind::open().filter(|kind| one.open.count(*kind) > 0) {
        words.push(format!(
            "{} {}",
            grouped(one.open.count(kind) as u64),
            OpenCounts::kind_name(kind)
        ));
    }
    words.join(", ")
}

/// Which machine acts on targets that machines of a fleet share.
pub(super) fn roles(overview: &Overview) -> Markup {
    let roles = overview.loops.iter().filter_map(|one| Some((one, one.role.as_ref()?)));
    let roles: Vec<_> = roles.take(20).collect();
    html! {
        @if !roles.is_empty() {
            section #fleet aria-labelledby="fleet-title" {
                h2 #fleet-title { "Fleet" }
                ul {
                    @for (one, RoleStatus { role, since, shared, leader, trouble }) in roles {
                        li {
                            strong { (one.source) } " for " (clipped(shared, 80)) ": "
                            @match role {
                                Role::Leader => { "this machine acts" }
                                Role::Standby => {
                                    "this machine stands by; "
                                    (leader.as_deref().map_or("no machine acts".to_owned(), |name| format!("{} acts", clipped(name, 60))))
                                }
                            }
                            " since " (super::needs::moment(since))
                            @if let Some(trouble) = trouble { ". It cannot be elected: " (clipped(trouble, 200)) }
                        }
                    }
                }
            }
        }
    }
}

/// What sources count, such as the reloads of sets of files.
pub(super) fn counters(now: &LoopsSnapshot) -> Markup {
    let samples = SOURCES.iter().flat_map(|source| {
        let samples = (source.metrics)(&now.memory).into_iter();
        samples.map(|sample| (source.name(), sample))
    });
    let mut by_source: BTreeMap<&str, BTreeMap<String, Vec<Sample>>> = BTreeMap::new();
    for (source, sample) in samples {
        let scopes = by_source.entry(source).or_default();
        scopes.entry(sample.scope.clone()).or_default().push(sample);
    }
    html! {
        @for (source, scopes) in by_source {
            (of_source(source, &scopes))
        }
    }
}

fn of_source(source: &str, scopes: &BTreeMap<String, Vec<Sample>>) -> Markup {
    let is_running = |sample: &&Sample| sample.kind == SampleKind::Gauge || sample.value > 0;
    let row = |(scope, samples): (&String, &Vec<Sample>)| {
        html! {
            dt { (clipped(scope, 80)) }
            dd {
                @for sample in samples.iter().filter(is_running) {
                    span .fact { (sample.help) ": " strong { (grouped(sample.value)) } }
                }
            }
        }
    };
    let Rows { shown, left_out } = Rows::fill(ROOM_FOR_COUNTERS, scopes.iter().map(row));
    html! {
        section aria-label={ "Counters of " (source) } {
            h2 { (first_upper(source)) }
            dl { @for row in &shown { (row) } }
            @if left_out > 0 {
                p .more { "And " (grouped(left_out as u64)) " more: " a href="/metrics" { "metrics" } }
            }
        }
    }
}

fn first_upper(word: &str) -> String {
    let mut chars = word.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
