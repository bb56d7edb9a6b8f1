//! Whole passes over links, addresses, routes, nexthops, rules and neighbours in fresh network
//! namespaces, judged by `ip`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod addresses;
mod attributes;
mod bench;
mod bridge_ports;
mod calls;
mod churn;
mod fdb;
mod focus;
mod gateway_of;
mod given_back;
mod hints;
mod hints_of_links;
mod keeping;
mod keeping_links;
mod kept;
mod laws;
mod left_out;
mod links;
mod links_across;
mod links_again;
mod links_configured;
mod links_following;
mod links_held;
mod links_lost;
mod links_lost_beyond;
mod links_lost_ipv6;
mod matching;
mod missing;
mod mixed;
mod neighbours;
mod nexthops;
mod optional;
mod owning;
mod random;
mod rare;
mod routes;
mod rules;
