//! Knobs of links that come and go.

use homeostat_engine::{Explain as _, Focus, apply};
use homeostat_knobs::DesiredState;

use crate::bench::{Bench, block_on, desired, fresh_network, kernel, meddle, report_lines};

#[test]
fn a_knob_of_a_link_is_pending_until_the_link_appears() {
    let network = fresh_network();
    let bench = Bench::of_the_kernel();
    let desired = desired(&[("net.ipv4.conf.v0.rp_filter", "2"), ("net.ipv4.tcp_retries2", "9")]);
    let report = bench.pass(&desired);
    assert!(!report.is_converged());
    let pending = "pending sysctl net.ipv4.conf.v0.rp_filter on link v0";
    assert!(report_lines(&report).contains(&pending.to_owned()), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/tcp_retries2"), "9", "the rest goes on");

    network.ip("link add v0 type veth peer name v1");
    assert!(bench.pass(&desired).is_converged());
    assert_eq!(kernel("ipv4/conf/v0/rp_filter"), "2");
    bench.assert_quiet(&desired);

    network.ip("link del v0");
    assert_eq!(report_lines(&bench.pass(&desired)), [pending]);
}

#[test]
fn a_link_with_a_dot_in_its_name_is_reached() {
    let network = fresh_network();
    network.ip("link add v0.200 type veth peer name v1");
    let bench = Bench::of_the_kernel();
    let builder = DesiredState::builder().link_sysctl("v0.200", "ipv4/rp_filter", "1").unwrap();
    let desired = builder.build().unwrap();
    let report = bench.pass(&desired);
    assert_eq!(report_lines(&report), ["~ sysctl net/ipv4/conf/v0.200/rp_filter: 0 -> 1"]);
    assert_eq!(kernel("ipv4/conf/v0.200/rp_filter"), "1");
}

#[test]
fn a_knob_written_with_dots_waits_for_a_link_with_a_dot_in_its_name() {
    let network = fresh_network();
    let bench = Bench::of_the_kernel();
    let desired = desired(&[("net.ipv4.conf.v0.10.rp_filter", "1")]);
    let pending = "pending sysctl net/ipv4/conf/v0.10/rp_filter on link v0.10";
    assert_eq!(report_lines(&bench.pass(&desired)), [pending]);
    network.ip("link add v0.10 type veth peer name v1");
    assert!(bench.pass(&desired).is_converged());
    assert_eq!(kernel("ipv4/conf/v0.10/rp_filter"), "1");
}

#[test]
fn a_link_that_goes_between_plan_and_apply_leaves_its_knob_pending() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    let bench = Bench::of_the_kernel();
    let desired = desired(&[("net.ipv4.conf.v0.rp_filter", "2")]);
    let (order, plan) = (bench.order(&desired, Focus::All), bench.plan(&desired));
    network.ip("link del v0");
    let (mut observer, mut page) = (bench.observer(), bench.page());
    let report = block_on(async {
        apply(&order, &mut observer, &bench.writer(), &mut page, plan).await.unwrap()
    });
    assert_eq!(report_lines(&report), ["pending sysctl net.ipv4.conf.v0.rp_filter on link v0"]);
    assert!(page.holdings().records.is_empty(), "nothing was written, nothing is ours");
}

#[test]
fn a_link_that_is_made_again_has_another_original() {
    let network = fresh_network();
    let bench = Bench::of_the_kernel().restoring();
    let declared = desired(&[("net.ipv4.conf.v0.rp_filter", "2")]);
    network.ip("link add v0 type veth peer name v1");
    meddle("ipv4/conf/v0/rp_filter", "1");
    assert!(bench.pass(&declared).is_converged());
    network.ip("link del v0");
    assert!(!bench.pass(&declared).is_converged());

    network.ip("link add v0 type veth peer name v1");
    assert_eq!(kernel("ipv4/conf/v0/rp_filter"), "0");
    assert!(bench.pass(&declared).is_converged());
    assert!(bench.pass(&desired(&[])).is_converged());
    assert_eq!(kernel("ipv4/conf/v0/rp_filter"), "0", "not the 1 of the former link");
}
