//! Looks at everything leave out the kinds of which nothing is declared or ours. What they may not miss for it.

use std::sync::Arc;

use homeostat_engine::{Focus, Reader as _, Records, Source as _, View};
use homeostat_rtnl::{DesiredState, Reader, Rtnl};

use crate::bench::{Bench, Declared, cable, desired, explained, ip, listed};

const ADDRESS: Declared<'_> = ("address 10.0.0.1/24 dev va", "");
const RULE: Declared<'_> = ("rule priority 100 from 10.0.0.0/8", "table 100");
const NEIGHBOUR: Declared<'_> = ("neighbour 10.0.0.9 dev va", "02:00:00:00:00:09");
const NEXTHOP: Declared<'_> = ("nexthop 7", "via 10.0.0.2 dev va");

const STRAY_NEIGHBOUR: &str = "neigh add 10.0.0.9 dev va lladdr 02:00:00:00:00:09 protocol 76";

/// How many looks in a row leave a kind out.
const LOOKS: usize = 9;

/// How many bytes a look at everything made the kernel send.
fn cost(reader: &mut Reader, desired: &Arc<DesiredState>) -> u64 {
    let before = reader.received_bytes();
    let records = Records::new();
    let view = View::new(&Focus::All, desired, &records);
    crate::bench::block_on(reader.observe(&view, &mut |_| {})).unwrap();
    reader.received_bytes() - before
}

#[test]
fn kinds_that_nobody_declares_are_dumped_by_every_tenth_look() {
    let namespace = cable();
    for number in 0..50 {
        ip(&namespace, &format!("rule add priority {number} from 10.{number}.0.0/16"));
    }
    let desired = Arc::new(desired(&[ADDRESS]));
    let mut reader = Rtnl::here().reader().unwrap();
    let all = cost(&mut reader, &desired);
    for _ in 0..LOOKS {
        let less = cost(&mut reader, &desired);
        assert!(less + 50 * 40 < all, "{less} of {all}");
    }
    assert!(cost(&mut reader, &desired) + 100 > all);
}

#[test]
fn an_object_whose_kind_left_the_document_is_deleted() {
    let namespace = cable();
    let mut bench = Bench::new();
    let all = desired(&[ADDRESS, NEXTHOP, RULE, NEIGHBOUR]);
    bench.converge(&all);
    bench.assert_quiet(&all);
    let gone = bench.converge(&desired(&[ADDRESS]));
    assert_eq!(gone.len(), 3, "{gone:?}");
    assert!(listed(&namespace, "nexthop show").is_empty());
}

/// A bench whose next look leaves kinds out.
fn resting(source: Rtnl, desired: &DesiredState) -> Bench {
    let mut bench = Bench::of(source);
    bench.converge(desired);
    bench.assert_quiet(desired);
    bench
}

#[test]
fn a_stray_rule_or_nexthop_of_ours_is_found_by_the_next_look() {
    let (namespace, desired) = (cable(), desired(&[ADDRESS]));
    let mut bench = resting(Rtnl::here(), &desired);
    ip(&namespace, "rule add priority 100 from 10.0.0.0/8 table 100 protocol 76");
    assert_eq!(explained(&bench.pass(&desired)), ["- rule priority 100 from 10.0.0.0/8"]);
    ip(&namespace, "nexthop add id 7 via 10.0.0.2 dev va protocol 76");
    assert_eq!(explained(&bench.pass(&desired)), ["- nexthop 7"]);
    bench.assert_quiet(&desired);
}

#[test]
fn a_stray_neighbour_is_found_by_a_new_reader_at_once_and_by_an_old_one_in_ten_looks() {
    for stray in [STRAY_NEIGHBOUR, "neigh add proxy 10.0.0.9 dev va protocol 76"] {
        let (namespace, desired) = (cable(), desired(&[ADDRESS]));
        let mut bench = resting(Rtnl::here(), &desired);
        ip(&namespace, stray);
        let found = (0..=LOOKS).map(|_| explained(&bench.pass(&desired)));
        let found: Vec<String> = found.flatten().collect();
        assert!(matches!(found.as_slice(), [one] if one.starts_with("- neighbour")), "{found:?}");
        ip(&namespace, stray);
        assert_eq!(explained(&Bench::new().pass(&desired)).len(), 1, "{stray}");
    }
}

#[test]
fn after_lost_events_nothing_is_left_out() {
    let (namespace, desired) = (cable(), desired(&[ADDRESS]));
    let mut bench = resting(Rtnl::here().with_event_buffer(4096), &desired);
    ip(&namespace, STRAY_NEIGHBOUR);
    for number in 1..100 {
        ip(&namespace, &format!("rule add priority {number} from 10.{number}.0.0/16"));
    }
    assert_eq!(explained(&bench.pass(&desired)), ["- neighbour 10.0.0.9 dev va"]);
}

#[test]
fn what_others_lose_with_a_link_or_an_address_is_known_though_it_was_left_out() {
    const FOREIGN: &str = "neigh add 10.7.0.9 dev w0 lladdr 02:00:00:00:00:09 nud permanent";
    for (state, changes) in [
        ("off", &["link set w0 up", "address add 10.7.0.1/24 dev w0", FOREIGN][..]),
        ("off", &["link set w0 up", "link set w1 up", "nexthop add id 7 dev w0"]),
    ] {
        let namespace = cable();
        let link = format!("veth peer w1 up {state}");
        let desired = desired(&[ADDRESS, ("link w0", &link)]);
        let mut bench = resting(Rtnl::here(), &desired);
        for change in changes {
            ip(&namespace, change);
        }
        let lines = explained(&bench.pass(&desired));
        assert!(lines.iter().any(|line| line.starts_with("held")), "{changes:?}: {lines:?}");
    }
}

#[test]
fn a_pair_and_what_is_on_it_leave_nothing_to_dump() {
    let namespace = cable();
    for number in 0..50 {
        ip(&namespace, &format!("rule add priority {number} from 10.{number}.0.0/16"));
    }
    let desired = desired(&[ADDRESS, ("link w0", "veth peer w1 up on")]);
    let _bench = resting(Rtnl::here(), &desired);
    let desired = Arc::new(desired);
    let mut reader = Rtnl::here().reader().unwrap();
    let all = cost(&mut reader, &desired);
    let less = cost(&mut reader, &desired);
    assert!(less + 50 * 40 < all, "{less} of {all}");
}
