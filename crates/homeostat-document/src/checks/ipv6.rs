//! Links that want IPv6 addresses and forbid them at the same time: the kernel refuses addresses
//! where `disable_ipv6` is 1 or the MTU is under 1280, and removes those that are there.

use std::collections::HashMap;

use super::knobs::knobs;
use crate::addresses::Address;
use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::document::Scope;
use crate::knobs::Knob;
use crate::links::Link;
use crate::net::Family;
use crate::span::Spanned;

/// The smallest MTU that IPv6 works with.
const LEAST_MTU: u32 = 1280;

pub(super) fn check(scope: &Scope, checker: &mut Checker) {
    let switches = switches(scope);
    for link in scope.links.iter().flatten() {
        let mut addresses = link.addresses.iter().flatten();
        if let Some(address) = addresses.find(|address| address.ip.family() == Family::V6) {
            check_mtu(link, address, checker);
            check_switch(link, address, &switches, checker);
        }
    }
}

/// The knobs that switch IPv6 off or on, by the link's name or `all`.
fn switches(scope: &Scope) -> HashMap<String, &Knob> {
    let named = knobs(scope).filter_map(|(path, knob)| match path.as_slice() {
        [net, v6, conf, link, key] if [net, v6, conf, key] == PARTS => Some((link.clone(), knob)),
        _ => None,
    });
    named.collect()
}

const PARTS: [&str; 4] = ["net", "ipv6", "conf", "disable_ipv6"];

fn check_mtu(link: &Link, address: &Spanned<Address>, checker: &mut Checker) {
    if let Some(mtu) = link.mtu.filter(|mtu| mtu.get() < LEAST_MTU) {
        let message = format!("IPv6 needs an MTU of {LEAST_MTU}, so this address cannot be kept");
        checker.report(Diagnostic::new(address.span, message).also(mtu.span, "the MTU is here"));
    }
}

/// What a link says for itself counts more than what is said for all.
fn check_switch(
    link: &Link,
    address: &Spanned<Address>,
    switches: &HashMap<String, &Knob>,
    checker: &mut Checker,
) {
    let switch = switches.get(link.name.as_str()).or_else(|| switches.get("all"));
    let off = |knob: &&&Knob| knob.value.trim().parse::<i64>().is_ok_and(|value| value != 0);
    if let Some(knob) = switch.filter(off) {
        let message = format!(
            "IPv6 is switched off on `{}`, so this address cannot be kept",
            link.name.value
        );
        checker.report(
            Diagnostic::new(address.span, message).also(knob.key.span, "switched off here"),
        );
    }
}
