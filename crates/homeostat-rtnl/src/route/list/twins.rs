//! Routes that are declared twice, where at least one of the two is in a list.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use homeostat_document::{Checker, Diagnostic, Scope, Span, shown};

use super::line::RouteLine;
use super::read::{Line, read};
use super::report::MOST;
use crate::key::RouteKey;
use crate::route::section::{Described, RouteFile, route_files, routes};

/// Where a route is declared.
#[derive(Clone, Copy)]
enum Place {
    Document(Span),
    List(Spot),
}

/// A line of one of the lists, both by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    list: usize,
    line: usize,
}

struct Twin {
    key: RouteKey,
    first: Place,
    again: Spot,
}

/// Reports the first twins.
pub(super) fn check(scope: &Scope, checker: &mut Checker) {
    let lists: Vec<&RouteFile> = route_files(scope).collect();
    let twins = find(scope, &lists);
    let firsts = twins.iter().filter_map(|twin| match twin.first {
        Place::List(spot) => Some(spot),
        Place::Document(_) => None,
    });
    let spots = firsts.chain(twins.iter().map(|twin| twin.again));
    let mut spans = spots.map(|spot| (spot, Span::default())).collect();
    locate(&mut spans, &lists, checker);
    for Twin { key, first, again } in twins {
        let span_of = |spot| spans.get(&spot).copied().unwrap_or_default();
        let first = match first {
            Place::Document(span) => span,
            Place::List(spot) => span_of(spot),
        };
        let twin =
            Diagnostic::new(span_of(again), format!("{} is declared twice", Described(&key)));
        checker.report(twin.also(first, "first declared here"));
    }
}

fn find(scope: &Scope, lists: &[&RouteFile]) -> Vec<Twin> {
    let mut places: HashMap<RouteKey, Place> = HashMap::new();
    for route in routes(scope) {
        places.insert(route.key.value, Place::Document(route.key.span));
    }
    let mut twins = Vec::new();
    for_each(lists, |again, _, route| {
        let key = route.key;
        match places.get(&key) {
            Some(first) if twins.len() < MOST => twins.push(Twin { key, first: *first, again }),
            Some(_) => {}
            None => drop(places.insert(key, Place::List(again))),
        }
    });
    twins
}

/// Reads the lists again for the texts of a few lines: they are not kept for all.
fn locate(spans: &mut BTreeMap<Spot, Span>, lists: &[&RouteFile], checker: &mut Checker) {
    for_each(lists, |spot, text, _| {
        if let Some(span) = spans.get_mut(&spot) {
            let name = lists.get(spot.list).map_or_else(String::new, |file| shown(&file.path));
            let file = checker.add_line(&name, spot.line, text);
            *span = Span::new(file, 0, text.len());
        }
    });
}

/// Hands on all routes of the lists with their places and texts.
fn for_each(lists: &[&RouteFile], mut each: impl FnMut(Spot, &str, &RouteLine)) {
    for (list, file) in lists.iter().enumerate() {
        // Who reads the lists for their routes reports what cannot be read.
        let _ = read(&file.path, &mut |line: Line<'_>| {
            if let Ok(route) = &line.read {
                each(Spot { list, line: line.number }, line.text, route);
            }
            ControlFlow::Continue(())
        });
    }
}
