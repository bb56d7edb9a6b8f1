//! How long healing took, as a chart that is made here, and as a table for those who do not see it.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::{grouped, in_words};
use crate::daemon::drift::Latencies;
use crate::daemon::metrics::BUCKETS;

/// In the units of the chart.
const WIDTH: u64 = 38;
const GAP: u64 = 4;
const MIDDLE: u64 = 21;
const HEIGHT: u64 = 110;
const BELOW: u64 = 18;
const ABOVE: u64 = 16;

pub(super) fn section(by_source: &BTreeMap<&'static str, Latencies>) -> Markup {
    let mut all = Latencies::default();
    for latencies in by_source.values() {
        for (sum, count) in all.counts.iter_mut().zip(latencies.counts) {
            *sum += count;
        }
        all.longest = all.longest.max(latencies.longest);
    }
    html! {
        section #latency aria-labelledby="latency-title" {
            h2 #latency-title { "How long healing takes" }
            @if all.total() == 0 {
                p .empty { "No event has led to a heal since the start." }
            } @else {
                p .note {
                    "From the kernel's event until it is back and verified. Half of "
                    (grouped(all.total())) " within " strong { (in_words(all.bound(50))) }
                    ", 99 % within " strong { (in_words(all.bound(99))) }
                    ", the longest " strong { (in_words(all.longest)) } "."
                }
                (chart(&all))
                (table(by_source))
            }
        }
    }
}

/// The steps from the first that has a count to the last.
fn range(latencies: &Latencies) -> std::ops::RangeInclusive<usize> {
    let has = |count: &u64| *count > 0;
    let first = latencies.counts.iter().position(has).unwrap_or_default();
    let last = latencies.counts.iter().rposition(has).unwrap_or_default();
    first.saturating_sub(1)..=(last + 1).min(BUCKETS.len())
}

fn label(at: usize) -> String {
    match (BUCKETS.get(at), BUCKETS.last()) {
        (Some(most), _) => in_words(Duration::from_secs_f64(*most)),
        (None, last) => format!("> {}", in_words(Duration::from_secs_f64(*last.unwrap_or(&0.0)))),
    }
}

fn chart(latencies: &Latencies) -> Markup {
    let range = range(latencies);
    let highest = latencies.counts.iter().max().copied().unwrap_or(1).max(1);
    let bars = range.clone().zip(0_u64..).filter_map(|(at, nth)| {
        let count = *latencies.counts.get(at)?;
        // A step with few heals beside one with many is still seen.
        let height = if count == 0 { 0 } else { (count * HEIGHT).div_ceil(highest).max(2) };
        Some((nth * (WIDTH + GAP), height, count, label(at)))
    });
    let steps = range.count() as u64;
    let (width, height) = (steps * (WIDTH + GAP), ABOVE + HEIGHT + BELOW);
    html! {
        svg .chart viewBox={ "0 0 " (width) " " (height) } width=(width) role="img" aria-labelledby="latency-title" {
            line x1="0" x2=(width) y1=(ABOVE + HEIGHT) y2=(ABOVE + HEIGHT) {}
            @for (x, height, count, label) in bars {
                @if count > 0 {
                    rect x=(x + GAP / 2) y=(ABOVE + HEIGHT - height) width=(WIDTH) height=(height) rx="2" {
                        title { (grouped(count)) " within " (label) }
                    }
                    text x=(x + MIDDLE) y=(ABOVE + HEIGHT - height - 4) { (grouped(count)) }
                }
                text .axis x=(x + MIDDLE) y=(ABOVE + HEIGHT + 13) { (label) }
            }
        }
    }
}

fn table(by_source: &BTreeMap<&'static str, Latencies>) -> Markup {
    html! {
        div .table {
            table {
                caption .hidden { "How long healing took, by source" }
                thead { tr {
                    th scope="col" { "Source" }
                    th scope="col" .number { "Heals" }
                    th scope="col" .number { "Half within" }
                    th scope="col" .number { "99 % within" }
                    th scope="col" .number { "Longest" }
                } }
                tbody {
                    @for (source, latencies) in by_source {
                        tr {
                            th scope="row" { (source) }
                            td .number { (grouped(latencies.total())) }
                            td .number { (in_words(latencies.bound(50))) }
                            td .number { (in_words(latencies.bound(99))) }
                            td .number { (in_words(latencies.longest)) }
                        }
                    }
                }
            }
        }
    }
}
