//! Claims, originals and releases.

use homeostat_engine::{Explain as _, Original};
use homeostat_knobs::Key;

use crate::bench::{Bench, desired, fresh_network, kernel, meddle, report_lines};

const RETRIES: &str = "net.ipv4.tcp_retries2";

fn original(bench: &Bench) -> String {
    let page = bench.page();
    let record = &page.holdings().records[&Key::sysctl(RETRIES).unwrap()];
    match &record.original {
        Original::Was(value) => value.as_str().to_owned(),
        Original::Absent => panic!("a knob is never made"),
    }
}

#[test]
fn the_original_is_captured_once_and_kept_across_restarts() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel().restoring();
    assert_eq!(kernel("ipv4/tcp_retries2"), "15");
    for value in ["9", "10", "11"] {
        assert!(bench.pass(&desired(&[(RETRIES, value)])).is_converged());
        assert_eq!(original(&bench), "15");
    }
    let report = bench.pass(&desired(&[]));
    assert_eq!(report_lines(&report), [format!("- sysctl {RETRIES}: 11 -> 15")]);
    assert_eq!(kernel("ipv4/tcp_retries2"), "15");
    assert!(bench.page().holdings().records.is_empty());
    bench.assert_quiet(&desired(&[]));
}

#[test]
fn a_knob_that_is_as_declared_is_claimed_with_its_original() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel().restoring();
    let report = bench.pass(&desired(&[(RETRIES, "15")]));
    assert!(report.is_converged() && report.plan().steps.is_empty());
    assert_eq!(original(&bench), "15");
    assert!(bench.pass(&desired(&[(RETRIES, "9")])).is_converged());
    assert!(bench.pass(&desired(&[])).is_converged());
    assert_eq!(kernel("ipv4/tcp_retries2"), "15");
}

#[test]
fn a_release_leaves_the_value_unless_it_was_asked_to_restore() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    bench.pass(&desired(&[(RETRIES, "9")]));
    let report = bench.pass(&desired(&[]));
    assert_eq!(report_lines(&report), [format!("- sysctl {RETRIES}: 9 -> nothing")]);
    assert_eq!(kernel("ipv4/tcp_retries2"), "9");
    bench.assert_quiet(&desired(&[]));
}

#[test]
fn a_release_restores_only_what_still_is_ours() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel().restoring();
    bench.pass(&desired(&[(RETRIES, "9")]));
    meddle("ipv4/tcp_retries2", "12");
    let report = bench.pass(&desired(&[]));
    assert_eq!(report_lines(&report), [format!("- sysctl {RETRIES}: 12 -> nothing")]);
    assert_eq!(kernel("ipv4/tcp_retries2"), "12", "another owner's by now");
}

#[test]
fn a_settled_value_is_restored_too() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel().restoring();
    bench.pass(&desired(&[("net.ipv4.conf.all.rp_filter", "1 9")]));
    assert_eq!(kernel("ipv4/conf/all/rp_filter"), "1");
    assert!(bench.pass(&desired(&[])).is_converged());
    assert_eq!(kernel("ipv4/conf/all/rp_filter"), "0");
}

#[test]
fn drift_is_healed() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let desired = desired(&[(RETRIES, "9")]);
    bench.pass(&desired);
    meddle("ipv4/tcp_retries2", "12");
    assert!(bench.pass(&desired).is_converged());
    assert_eq!(kernel("ipv4/tcp_retries2"), "9");
    assert_eq!(original(&bench), "15");
}

#[test]
fn a_secret_that_cannot_be_unset_is_released_and_stays() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel().restoring();
    let key = "net.ipv6.conf.lo.stable_secret";
    assert!(bench.pass(&desired(&[(key, "2001:db8::1")])).is_converged());
    let report = bench.pass(&desired(&[]));
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    let before = "2001:0db8:0000:0000:0000:0000:0000:0001";
    assert_eq!(report_lines(&report), [format!("- sysctl {key}: {before} -> nothing")]);
    bench.assert_quiet(&desired(&[]));
}
