//! Knobs that the kernel ties together.

use std::collections::BTreeSet;

use homeostat_engine::{Explain as _, Focus, pass};
use homeostat_knobs::Key;

use crate::bench::{Bench, block_on, desired, fresh_network, kernel, meddle, report_lines};

#[test]
fn ip_forward_rewrites_every_link_and_flips_accept_redirects() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    meddle("ipv4/conf/all/accept_redirects", "1");
    meddle("ipv4/ip_forward", "1");
    for place in ["all", "default", "lo", "v0"] {
        assert_eq!(kernel(&format!("ipv4/conf/{place}/forwarding")), "1", "{place}");
    }
    assert_eq!(kernel("ipv4/conf/all/accept_redirects"), "0");
    meddle("ipv4/conf/v0/forwarding", "0");
    assert_eq!(kernel("ipv4/ip_forward"), "1", "a link's own does not reach back");
}

#[test]
fn ip_forward_and_what_it_rewrites_converge_in_one_pass() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    let bench = Bench::of_the_kernel();
    let desired = desired(&[
        ("net.ipv4.conf.v0.forwarding", "0"),
        ("net.ipv4.conf.all.accept_redirects", "1"),
        ("net.ipv4.ip_forward", "1"),
    ]);
    meddle("ipv4/conf/all/accept_redirects", "1");
    let report = bench.pass(&desired);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/ip_forward"), "1");
    assert_eq!(kernel("ipv4/conf/v0/forwarding"), "0");
    assert_eq!(kernel("ipv4/conf/v1/forwarding"), "1");
    assert_eq!(kernel("ipv4/conf/all/accept_redirects"), "1");
    bench.assert_quiet(&desired);
}

#[test]
fn a_focused_pass_also_mends_what_its_step_rewrites() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let desired = desired(&[("net.ipv4.conf.lo.forwarding", "0"), ("net.ipv4.ip_forward", "1")]);
    let (mut observer, mut page, writer) = (bench.observer(), bench.page(), bench.writer());
    let forward = Key::sysctl("net.ipv4.ip_forward").unwrap();
    let mut run = |focus| {
        let order = bench.order(&desired, focus);
        block_on(async { pass(&order, &mut observer, &writer, &mut page).await.unwrap() })
    };
    assert!(run(Focus::All).is_converged());
    meddle("ipv4/ip_forward", "0");
    let report = run(Focus::Keys(BTreeSet::from([forward])));
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/ip_forward"), "1");
    assert_eq!(kernel("ipv4/conf/lo/forwarding"), "0");
}

#[test]
fn desired_states_that_fight_are_reported_and_neither_is_written() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let report = bench
        .pass(&desired(&[("net.ipv4.ip_forward", "1"), ("net.ipv4.conf.all.forwarding", "2")]));
    assert!(!report.is_converged());
    let (forward, all) = ("sysctl net.ipv4.ip_forward", "sysctl net.ipv4.conf.all.forwarding");
    assert_eq!(
        report_lines(&report),
        [
            format!("conflict {all} with nobody: fights with `{forward}`, which undoes it"),
            format!("conflict {forward} with nobody: fights with `{all}`, which undoes it"),
        ]
    );
    assert_eq!(kernel("ipv4/ip_forward"), "0");
    let agreeing = desired(&[("net.ipv4.ip_forward", "1"), ("net.ipv4.conf.all.forwarding", "1")]);
    assert!(bench.pass(&agreeing).is_converged());
}

#[test]
fn default_propagates_to_links_that_nobody_has_set() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    meddle("ipv4/conf/v0/rp_filter", "2");
    meddle("ipv4/conf/default/rp_filter", "1");
    assert_eq!(kernel("ipv4/conf/v0/rp_filter"), "2", "set by hand before");
    assert_eq!(kernel("ipv4/conf/v1/rp_filter"), "1");
    meddle("ipv6/conf/default/accept_ra", "0");
    assert_eq!(kernel("ipv6/conf/v1/accept_ra"), "1", "IPv6 has no such rule");
}

#[test]
fn default_and_a_link_that_it_would_reach_converge_in_one_pass() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let desired =
        desired(&[("net.ipv4.conf.default.rp_filter", "1"), ("net.ipv4.conf.lo.rp_filter", "0")]);
    let report = bench.pass(&desired);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/conf/default/rp_filter"), "1");
    assert_eq!(kernel("ipv4/conf/lo/rp_filter"), "0");
    bench.assert_quiet(&desired);
}

#[test]
fn ipv6_spreads_what_is_set_for_all() {
    let _network = fresh_network();
    for (knob, value) in [("forwarding", "1"), ("disable_ipv6", "1"), ("addr_gen_mode", "1")] {
        meddle(&format!("ipv6/conf/all/{knob}"), value);
        assert_eq!(kernel(&format!("ipv6/conf/lo/{knob}")), value, "{knob}");
        assert_eq!(kernel(&format!("ipv6/conf/default/{knob}")), value, "{knob}");
    }
    meddle("ipv6/conf/lo/stable_secret", "2001:db8::1");
    assert_eq!(kernel("ipv6/conf/lo/addr_gen_mode"), "2", "a secret changes the mode");
}

#[test]
fn disable_ipv6_for_all_but_one_link_converges_in_one_pass() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let desired =
        desired(&[("net.ipv6.conf.all.disable_ipv6", "1"), ("net.ipv6.conf.lo.disable_ipv6", "0")]);
    let report = bench.pass(&desired);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv6/conf/all/disable_ipv6"), "1");
    assert_eq!(kernel("ipv6/conf/lo/disable_ipv6"), "0");
    bench.assert_quiet(&desired);
}

#[test]
fn one_time_in_two_units_is_one_value() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    let bench = Bench::of_the_kernel();
    let (ms, ticks) = ("net.ipv4.neigh.v0.retrans_time_ms", "net.ipv4.neigh.v0.retrans_time");
    let same = desired(&[(ms, "2000"), (ticks, "200")]);
    let report = bench.pass(&same);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/neigh/v0/retrans_time_ms"), "2000");
    bench.assert_quiet(&same);
    let report = bench.pass(&desired(&[(ms, "2000"), (ticks, "500")]));
    assert!(
        !report.is_converged() && report.plan().steps.is_empty(),
        "{:#?}",
        report_lines(&report)
    );
    assert_eq!(kernel("ipv4/neigh/v0/retrans_time_ms"), "2000");
    // A rounded value is not settled while another declared knob may be behind it.
    let report = bench.pass(&desired(&[(ms, "10"), (ticks, "1")]));
    assert!(
        !report_lines(&report).iter().any(|line| line.starts_with("settled")),
        "{:#?}",
        report_lines(&report)
    );
}

#[test]
fn a_desired_state_that_moves_to_another_name_of_the_value_is_not_undone_by_the_release() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel().restoring();
    assert!(bench.pass(&desired(&[("net.ipv4.conf.all.forwarding", "1")])).is_converged());
    let moved = desired(&[("net.ipv4.ip_forward", "1")]);
    let report = bench.pass(&moved);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(report_lines(&report), ["- sysctl net.ipv4.conf.all.forwarding: 1 -> nothing"]);
    assert_eq!(kernel("ipv4/ip_forward"), "1");
}

#[test]
fn restoring_a_general_knob_spares_the_declared_special_one() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel().restoring();
    let (forward, lo) = ("net.ipv4.ip_forward", "net.ipv4.conf.lo.forwarding");
    assert!(bench.pass(&desired(&[(forward, "1"), (lo, "1")])).is_converged());
    let report = bench.pass(&desired(&[(lo, "1")]));
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/ip_forward"), "0");
    assert_eq!(kernel("ipv4/conf/lo/forwarding"), "1");
}

#[test]
fn a_knob_that_is_not_there_keeps_no_other_from_settling() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    // What this kernel's tick makes of 1234 ms, tried on another link: 1236 at 250 Hz.
    meddle("ipv4/neigh/v1/retrans_time_ms", "1234");
    let rounded = kernel("ipv4/neigh/v1/retrans_time_ms");
    let bench = Bench::of_the_kernel();
    let (general, special) =
        ("net.ipv4.neigh.default.retrans_time_ms", "net.ipv4.neigh.v0.retrans_time_ms");
    let report = bench.pass(&desired(&[(general, "1000"), (special, "1234")]));
    let lines = report_lines(&report);
    assert!(lines.iter().any(|line| line.contains(general)), "{lines:#?}");
    let settled = format!("settled sysctl {special}: {rounded} for 1234");
    assert_eq!(lines.contains(&settled), rounded != "1234", "{lines:#?}");
}

#[test]
fn restoring_a_general_knob_brings_the_originals_of_released_special_ones_back() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    meddle("ipv4/conf/v0/forwarding", "1");
    let bench = Bench::of_the_kernel().restoring();
    let both = desired(&[("net.ipv4.ip_forward", "1"), ("net.ipv4.conf.v0.forwarding", "1")]);
    assert!(bench.pass(&both).is_converged());
    let report = bench.pass(&desired(&[]));
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/ip_forward"), "0");
    assert_eq!(kernel("ipv4/conf/v0/forwarding"), "1", "{:#?}", report_lines(&report));
}

/// What the kernel rewrote along with it was never declared, and returns all the same.
#[test]
fn restoring_a_general_knob_brings_back_what_nobody_declared() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    for (before, declared) in [("0", "1"), ("1", "0")] {
        meddle("ipv4/ip_forward", before);
        meddle("ipv4/conf/v0/forwarding", declared);
        meddle("ipv4/conf/all/accept_redirects", declared);
        let bench = Bench::of_the_kernel().restoring();
        assert!(bench.pass(&desired(&[("net.ipv4.ip_forward", declared)])).is_converged());
        let report = bench.pass(&desired(&[]));
        assert!(report.is_converged(), "{:#?}", report_lines(&report));
        let now =
            ["ip_forward", "conf/v0/forwarding", "conf/v1/forwarding", "conf/all/accept_redirects"]
                .map(|knob| kernel(&format!("ipv4/{knob}")));
        assert_eq!(now.each_ref().map(String::as_str), [before, declared, before, declared]);
    }
}
