//! The same key twice in one scope.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use crate::attributes::{Metric, Table, Tos};
use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::document::Scope;
use crate::links::Link;
use crate::net::{Family, Prefix};
use crate::routes::{Route, RouteEntry};
use crate::rules::Rule;
use crate::span::{Span, Spanned};

/// Where each key was seen first.
pub(crate) struct Twins<K> {
    places: HashMap<K, Span>,
}

impl<K: Hash + Eq> Twins<K> {
    pub(crate) fn new() -> Self {
        Self { places: HashMap::new() }
    }

    /// Remembers a key, or reports that it is there already.
    pub(crate) fn see(
        &mut self,
        key: K,
        span: Span,
        checker: &mut Checker,
        what: impl Fn() -> String,
    ) {
        match self.places.get(&key) {
            Some(first) => {
                let again = Diagnostic::new(span, format!("{} is declared twice", what()));
                checker.report(again.also(*first, "first declared here"));
            }
            None => drop(self.places.insert(key, span)),
        }
    }
}

pub(super) fn check(scope: &Scope, checker: &mut Checker) {
    scope.links.iter().flatten().for_each(|link| check_addresses(link, checker));
    check_routes(scope, checker);
    check_rules(scope, checker);
    let mut neighbours = Twins::new();
    for one in scope.neighbours.iter().flatten() {
        let key = (&one.dev.value, one.to.value, one.proxy);
        neighbours.see(key, one.span, checker, || {
            format!("the neighbour {} on `{}`", one.to.value, one.dev.value)
        });
    }
    let mut nexthops = Twins::new();
    for one in scope.nexthops.iter().flatten() {
        let id = one.id.value;
        nexthops.see(id, one.id.span, checker, || format!("the nexthop {id}"));
    }
}

/// IPv4 takes one address with several lengths, IPv6 does not.
fn check_addresses(link: &Link, checker: &mut Checker) {
    let mut twins = Twins::new();
    for address in link.addresses.iter().flatten() {
        let ip = address.ip.value;
        let length = (ip.family() == Family::V4).then_some((ip.len(), address.peer));
        twins.see((ip.addr(), length), address.span, checker, || {
            format!("the address {ip} of `{}`", link.name.value)
        });
    }
}

fn check_routes(scope: &Scope, checker: &mut Checker) {
    let mut twins = Twins::new();
    for entry in scope.routes.iter().flatten() {
        if let RouteEntry::One(route) = &entry.value {
            let key = RouteKey::of(route);
            twins.see(key, route.to.span, checker, || key.to_string());
        }
    }
}

/// What two routes cannot share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RouteKey {
    to: Prefix,
    table: Table,
    metric: u32,
    tos: u8,
}

impl RouteKey {
    pub(crate) fn of(route: &Route) -> Self {
        let (table, metric, tos) = (route.table, route.metric, route.tos);
        let (table, metric) = (table.map(|table| table.value), metric.map(|metric| metric.value));
        Self::new(route.to.value, table, metric, tos.map(|tos| tos.value))
    }

    /// The metric that the kernel gives to a route that has none is 1024 for IPv6, 0 for IPv4.
    pub(crate) fn new(
        to: Prefix,
        table: Option<Table>,
        metric: Option<Metric>,
        tos: Option<Tos>,
    ) -> Self {
        let metric = match metric.map_or(0, Metric::get) {
            0 if to.family() == Family::V6 => 1024,
            metric => metric,
        };
        let (table, tos) = (table.unwrap_or(Table::MAIN), tos.map_or(0, Tos::get));
        Self { to: to.masked(), table, metric, tos }
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, table, metric, .. } = self;
        write!(f, "the route to {to} in table {table} with metric {metric}")
    }
}

/// A rule is known by its priority and its selectors: what it leads to is what is kept.
fn check_rules(scope: &Scope, checker: &mut Checker) {
    let mut twins = Twins::new();
    for rule in scope.rules.iter().flatten() {
        let what = || "a rule with this priority and these selectors".to_owned();
        twins.see(key_of(rule), rule.span, checker, what);
    }
}

fn key_of(rule: &Rule) -> Rule {
    let mask = |prefix: Option<Spanned<Prefix>>| {
        let masked = prefix.map(|prefix| prefix.map(Prefix::masked));
        masked.filter(|prefix| prefix.len() > 0)
    };
    Rule {
        from: mask(rule.from),
        to: mask(rule.to),
        table: None,
        kind: None,
        l3mdev: false,
        suppress_prefixlength: None,
        adopt: false,
        ..rule.clone()
    }
}
