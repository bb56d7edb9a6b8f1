//! Limits of the real controllers of cgroup v2. A kernel or a hierarchy may lack them, so that plain
//! `cargo test` leaves these out; `cargo xtask vm` runs them where all controllers exist.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

#[path = "../passes/bench.rs"]
#[expect(dead_code, reason = "the passes use all of it")]
mod bench;
#[path = "../passes/group.rs"]
mod group;

use std::fs;

use homeostat_engine::Explain as _;

use bench::{Bench, desired, report_lines};
use group::Group;

/// A group in which the controller has its files.
fn group_with(test: &str, file: &str) -> Group {
    let group = Group::named(test);
    group.make();
    let path = group.path.join(file);
    assert!(
        path.exists(),
        "there is no {}: this kernel lacks the controller, or it is not enabled for children of \
         the root; `cargo xtask vm` has it",
        path.display()
    );
    group
}

/// What the kernel shows, sorted: it lists disks in an order of its own.
fn shown(group: &Group, file: &str) -> String {
    let text = group.read(file);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// One pass writes `value`, which the kernel then shows as `held`; the next has nothing to do, drift
/// to `other` is healed, and the release brings back what was there.
fn check(group: &Group, file: &str, (value, held): (&str, &str), other: &str) {
    let original = shown(group, file);
    let bench = Bench::of_the_kernel().restoring();
    let declared = group.desired(&[(file, value)]);
    let report = bench.pass(&declared);
    assert!(report.is_converged(), "{file} {value}: {:#?}", report_lines(&report));
    assert_eq!(shown(group, file), held, "{file} {value}");
    bench.assert_quiet(&declared);

    fs::write(group.path.join(file), other).unwrap();
    assert_ne!(shown(group, file), held, "{file} {other}");
    assert!(bench.pass(&declared).is_converged());
    assert_eq!(shown(group, file), held, "{file} after drift");

    let report = bench.pass(&desired(&[]));
    assert!(report.is_converged(), "{file}: {:#?}", report_lines(&report));
    assert_eq!(shown(group, file), original, "{file} after the release");
    bench.assert_quiet(&desired(&[]));
}

#[test]
fn page_rounding() {
    let group = group_with("memory", "memory.max");
    for file in ["memory.min", "memory.low", "memory.high", "memory.max"] {
        check(&group, file, ("100000001", "99999744"), "64M");
        check(&group, file, ("256M", "268435456"), "1M");
    }
    // Nothing is in the group, so that even nothing is enough for it.
    check(&group, "memory.max", ("4095", "0"), "max");
}

#[test]
fn more_memory_than_the_kernel_can_count_is_max() {
    let group = group_with("much", "memory.max");
    for value in ["9223372036854775807", "8E"] {
        check(&group, "memory.min", (value, "max"), "1M");
    }
    // The largest that it can count, and one page less.
    check(&group, "memory.min", ("9223372036854771712", "max"), "1M");
    check(&group, "memory.min", ("9223372036854767616", "9223372036854767616"), "1M");
}

#[test]
fn a_quota_keeps_the_period_that_nobody_declared() {
    let group = group_with("cpu", "cpu.max");
    check(&group, "cpu.max", ("50000", "50000 100000"), "70000");
    check(&group, "cpu.max", ("50000 200000", "50000 200000"), "50000 100000");
    fs::write(group.path.join("cpu.max"), "30000 40000").unwrap();
    check(&group, "cpu.max", ("50000", "50000 40000"), "max");
    check(&group, "cpu.max", ("max", "max 40000"), "30000 40000");
    check(&group, "cpu.weight", ("0x32", "50"), "100");
}

#[test]
fn a_quota_that_the_kernel_refuses_starves_no_other_limit() {
    let group = group_with("refused", "cpu.max");
    // Less than a millisecond.
    let declared = group.desired(&[("cpu.max", "999"), ("pids.max", "9")]);
    let report = Bench::of_the_kernel().pass(&declared);
    let failed = report_lines(&report).into_iter().find(|line| line.starts_with("failed")).unwrap();
    assert!(failed.contains("the kernel refused the value `999`"), "{failed}");
    assert_eq!(group.read("cpu.max"), "max 100000");
    assert_eq!(group.read("pids.max"), "9");
}

#[test]
fn a_number_of_processes_counts_by_value() {
    let group = group_with("pids", "pids.max");
    check(&group, "pids.max", ("0x10", "16"), "17");
    check(&group, "pids.max", ("0", "0"), "max");
}

#[test]
fn processors_are_a_set() {
    let group = group_with("cpuset", "cpuset.cpus");
    check(&group, "cpuset.cpus", ("1,0", "0-1"), "1");
}

#[test]
fn huge_pages_round_down_to_their_own_size() {
    let group = group_with("huge", "hugetlb.2MB.max");
    check(&group, "hugetlb.2MB.max", ("5M", "4194304"), "2M");
}

/// `MAJOR:MINOR` of a loop device; it may be without a file.
fn disk(number: u8) -> String {
    let path = format!("/sys/block/loop{number}/dev");
    let text = fs::read_to_string(&path).expect("this test needs loop devices: modprobe loop");
    text.trim_end().to_owned()
}

#[test]
fn limits_of_two_disks_are_written_line_by_line_and_lifted_again() {
    let group = group_with("io", "io.max");
    let (one, two) = (disk(0), disk(1));
    let rest = "riops=max wiops=max";
    check(
        &group,
        "io.max",
        (
            &format!("{two} wbps=0x1000\n{one} rbps=1M"),
            &format!("{one} rbps=1048576 wbps=max {rest}\n{two} rbps=max wbps=4096 {rest}"),
        ),
        &format!("{one} rbps=5"),
    );
}

#[test]
fn a_foreign_limit_of_another_disk_or_another_key_stays() {
    let group = group_with("foreign", "io.max");
    let (one, two) = (disk(2), disk(3));
    for line in [format!("{one} wiops=9"), format!("{two} rbps=7")] {
        fs::write(group.path.join("io.max"), line).unwrap();
    }
    let before = group.read("io.max");
    let bench = Bench::of_the_kernel().restoring();
    let declared = group.desired(&[("io.max", &format!("{one} rbps=4096"))]);
    assert!(bench.pass(&declared).is_converged());
    let during = before.replace(&format!("{one} rbps=max"), &format!("{one} rbps=4096"));
    assert_ne!(during, before);
    assert_eq!(group.read("io.max"), during);
    bench.assert_quiet(&declared);
    assert!(bench.pass(&desired(&[])).is_converged());
    assert_eq!(group.read("io.max"), before);
}

#[test]
fn weight_default() {
    let group = group_with("weight", "io.weight");
    check(&group, "io.weight", ("200", "default 200"), "default 50");
}

#[test]
fn a_controller_that_is_off_for_a_group_is_an_error_of_that_limit_alone() {
    let above = group_with("above", "memory.max");
    let name = format!("{}/below", above.name);
    let below = Group { path: above.path.join("below"), name };
    below.make();
    let declared = below.desired(&[("memory.max", "1G"), ("cgroup.freeze", "1")]);
    let report = Bench::of_the_kernel().pass(&declared);
    let refused = format!("failed cgroup {} memory.max: the kernel has no such knob", below.name);
    assert!(report_lines(&report).contains(&refused), "{:#?}", report_lines(&report));
    assert_eq!(below.read("cgroup.freeze"), "1");
}
