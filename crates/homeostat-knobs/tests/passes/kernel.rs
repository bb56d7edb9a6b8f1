//! How the kernel really treats what is written to its network knobs: one test for each fact.

use homeostat_engine::{Entry, Explain, Finding, Kind, Retry};
use homeostat_knobs::{DesiredError, DesiredState, Key, Knobs, Roots, show};
use homeostat_netns::Netns;
use rustix::fs::{Gid, Uid};

use crate::bench::{Bench, desired, fresh_network, kernel, meddle, report_lines};

#[test]
fn base_zero_numbers_are_taken_by_value() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let desired = desired(&[
        ("net.ipv4.ip_forward", "0x1"),
        ("net.ipv4.conf.all.rp_filter", "02"),
        ("net.ipv4.tcp_retries2", "010"),
    ]);
    let report = bench.pass(&desired);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/ip_forward"), "1");
    assert_eq!(kernel("ipv4/conf/all/rp_filter"), "2");
    assert_eq!(kernel("ipv4/tcp_retries2"), "8");
    bench.assert_quiet(&desired);
    // The kernel itself reads them so; we did not translate for it.
    meddle("ipv4/tcp_retries2", "0x9");
    assert_eq!(kernel("ipv4/tcp_retries2"), "9");
}

#[test]
fn tuples_read_back_with_tabs_and_are_equal() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let desired = desired(&[("net.ipv4.tcp_rmem", "4096  131073 6291456")]);
    assert!(bench.pass(&desired).is_converged());
    assert_eq!(kernel("ipv4/tcp_rmem"), "4096\t131073\t6291456");
    bench.assert_quiet(&desired);
}

#[test]
fn a_scalar_takes_the_first_of_many_and_settles() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let desired = desired(&[("net.ipv4.conf.all.rp_filter", "1 9 9")]);
    let report = bench.pass(&desired);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    let settled = "settled sysctl net.ipv4.conf.all.rp_filter: 1 for 1 9 9";
    assert!(report_lines(&report).contains(&settled.to_owned()), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/conf/all/rp_filter"), "1");
    bench.assert_quiet(&desired);
    assert_eq!(report_lines(&bench.plan(&desired)), [settled]);

    meddle("ipv4/conf/all/rp_filter", "2");
    let plan = bench.plan(&desired);
    assert_eq!(
        report_lines(&plan),
        ["~ sysctl net.ipv4.conf.all.rp_filter: 2 -> 1 9 9"],
        "a third value"
    );
}

#[test]
fn a_short_tuple_leaves_the_rest_and_settles() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    meddle("ipv4/tcp_wmem", "4096 16384 4194304");
    let desired = desired(&[("net.ipv4.tcp_wmem", "8192 32768")]);
    let report = bench.pass(&desired);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/tcp_wmem"), "8192\t32768\t4194304");
    bench.assert_quiet(&desired);
}

#[test]
fn milliseconds_round_to_jiffies_and_settle() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    // What this kernel's tick makes of 7 ms, tried on another link: 8 at 250 Hz.
    meddle("ipv4/neigh/v1/retrans_time_ms", "7");
    let rounded = kernel("ipv4/neigh/v1/retrans_time_ms");
    let bench = Bench::of_the_kernel();
    let desired = desired(&[("net.ipv4.neigh.v0.retrans_time_ms", "7")]);
    let report = bench.pass(&desired);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(kernel("ipv4/neigh/v0/retrans_time_ms"), rounded);
    let settled = format!("settled sysctl net.ipv4.neigh.v0.retrans_time_ms: {rounded} for 7");
    assert_eq!(
        report_lines(&report).contains(&settled),
        rounded != "7",
        "{:#?}",
        report_lines(&report)
    );
    bench.assert_quiet(&desired);
}

#[test]
fn reserved_ports_are_sorted_and_merged_and_can_be_emptied_again() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel().restoring();
    let ports = desired(&[("net.ipv4.ip_local_reserved_ports", "8080,100-102,103")]);
    assert!(bench.pass(&ports).is_converged());
    assert_eq!(kernel("ipv4/ip_local_reserved_ports"), "100-103,8080");
    bench.assert_quiet(&ports);
    assert!(bench.pass(&desired(&[])).is_converged());
    assert_eq!(kernel("ipv4/ip_local_reserved_ports"), "");
}

#[test]
fn stable_secret_unset_is_empty_and_a_secret_reads_back_in_full() {
    let _network = fresh_network();
    let unset = std::fs::read_to_string("/proc/sys/net/ipv6/conf/lo/stable_secret").unwrap_err();
    assert_eq!(unset.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    let bench = Bench::of_the_kernel();
    let desired = desired(&[("net.ipv6.conf.lo.stable_secret", "2001:db8::1")]);
    let after = "2001:0db8:0000:0000:0000:0000:0000:0001";
    let line = format!("~ sysctl net.ipv6.conf.lo.stable_secret:  -> {after}");
    assert_eq!(report_lines(&bench.plan(&desired)), [line]);
    assert!(bench.pass(&desired).is_converged());
    assert_eq!(kernel("ipv6/conf/lo/stable_secret"), after);
    bench.assert_quiet(&desired);
}

#[test]
fn write_only_knobs_are_refused_up_front() {
    let _network = fresh_network();
    let read = std::fs::read_to_string("/proc/sys/net/ipv4/route/flush").unwrap_err();
    assert_eq!(read.kind(), std::io::ErrorKind::PermissionDenied, "even for root");
    let error = DesiredState::builder().sysctl("net.ipv4.route.flush", "1").unwrap_err();
    assert!(matches!(error, DesiredError::Command { .. }), "{error}");
}

#[test]
fn read_only_knobs_are_refused_if_they_differ() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let key = "net.ipv4.conf.lo.mc_forwarding";
    assert!(bench.pass(&desired(&[(key, "0")])).is_converged(), "it is so already");
    let report = bench.pass(&desired(&[(key, "1")]));
    let line = format!("failed sysctl {key}: the kernel allows no write here");
    assert_eq!(report_lines(&report), [line]);
}

fn failure(report: &dyn Explain) -> homeostat_engine::Failure {
    let mut failures = Vec::new();
    report.explain(Kind::Failed, &mut |entry| {
        if let Entry::Finding {
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
            ..
        } = entry
        {
            failures.push(failure);
        }
    });
    assert_eq!(failures.len(), 1, "{:#?}", report_lines(report));
    failures.remove(0)
}

#[test]
fn values_that_the_kernel_refuses_wait_for_another_desired_state_and_starve_no_other_key() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    for (key, value) in
        [("net.ipv4.ip_default_ttl", "300"), ("net.ipv4.tcp_congestion_control", "nosuch")]
    {
        let report = bench.pass(&desired(&[(key, value), ("net.ipv4.tcp_retries2", "9")]));
        let failure = failure(&report);
        assert!(failure.error.contains(&format!("refused the value `{value}`")), "{failure}");
        assert_eq!(failure.retry, Retry::OnChange);
        assert_eq!(kernel("ipv4/tcp_retries2"), "9");
        assert!(!bench.page().holdings().records.contains_key(&Key::sysctl(key).unwrap()));
    }
}

#[test]
fn a_misspelt_knob_is_refused_with_a_suggestion() {
    let _network = fresh_network();
    let plan = Bench::of_the_kernel().plan(&desired(&[("net.ipv4.ip_forwrd", "1")]));
    let help = failure(&plan).help.unwrap();
    assert_eq!(help, "did you mean `sysctl net.ipv4.ip_forward`?");
}

#[test]
fn an_unprivileged_writer_is_refused_for_good_with_help() {
    let _network = fresh_network();
    let nobody = (Uid::from_raw(65534), Gid::from_raw(65534));
    rustix::thread::set_thread_res_gid(nobody.1, nobody.1, nobody.1).unwrap();
    rustix::thread::set_thread_res_uid(nobody.0, nobody.0, nobody.0).unwrap();
    let report = Bench::of_the_kernel().pass(&desired(&[("net.ipv4.ip_forward", "1")]));
    let failure = failure(&report);
    assert_eq!(failure.retry, Retry::Never);
    assert!(failure.help.unwrap().contains("CAP_NET_ADMIN"));
    assert_eq!(kernel("ipv4/ip_forward"), "0");
}

#[test]
fn another_namespace_is_reached_without_moving_there() {
    let _network = fresh_network();
    let other = std::sync::Arc::new(Netns::anonymous().unwrap());
    let there = Some(other.clone());
    let bench = Bench::new(Knobs::new(Roots::of_the_system(), there));
    let desired = desired(&[("net.ipv4.ip_forward", "1")]);
    assert!(bench.pass(&desired).is_converged());
    assert_eq!(kernel("ipv4/ip_forward"), "0", "our own is as it was");
    assert_eq!(other.run(|| kernel("ipv4/ip_forward")).unwrap(), "1");
    bench.assert_quiet(&desired);
}

#[test]
fn every_knob_of_a_network_agrees_with_what_it_shows() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v.1");
    let bench = Bench::of_the_kernel();
    let all = show::all(&bench.source).unwrap();
    assert!(all.len() > 300, "{}", all.len());
    let builder = all.iter().fold(DesiredState::builder(), |desired, (key, value)| {
        desired.knob(key.clone(), value.as_str()).unwrap()
    });
    let plan = bench.plan(&builder.build().unwrap());
    assert!(plan.is_converged(), "{:#?}", report_lines(&plan));
}

#[test]
fn the_common_knobs_of_a_network_are_shown() {
    let _network = fresh_network();
    meddle("ipv4/ip_forward", "1");
    let common = show::common(&Bench::of_the_kernel().source).unwrap();
    let text = |(key, value): &(Key, homeostat_knobs::Value)| format!("{key} = {}", value.as_str());
    let lines: Vec<String> = common.iter().map(text).collect();
    assert!(lines.contains(&"sysctl net.ipv4.ip_forward = 1".to_owned()), "{lines:#?}");
    assert!(lines.len() > 25, "{lines:#?}");
}
