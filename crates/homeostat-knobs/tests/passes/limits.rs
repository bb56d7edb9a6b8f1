//! The core files of a real control group, in a group of the test's own.

use std::fs;

use homeostat_engine::Explain as _;

use crate::bench::{Bench, desired, report_lines};
use crate::group::Group;

#[test]
fn core_files_are_kept_and_restored() {
    let group = Group::named("core");
    group.make();
    let bench = Bench::of_the_kernel().restoring();
    let desired_of = |depth| {
        group.desired(&[
            ("cgroup.max.depth", depth),
            ("cgroup.max.descendants", "max"),
            ("cgroup.freeze", "1"),
        ])
    };
    let report = bench.pass(&desired_of("0x3"));
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(group.read("cgroup.max.depth"), "3");
    assert_eq!(group.read("cgroup.freeze"), "1");
    bench.assert_quiet(&desired_of("3"));

    fs::write(group.path.join("cgroup.max.depth"), "7").unwrap();
    assert!(bench.pass(&desired_of("3")).is_converged());
    assert_eq!(group.read("cgroup.max.depth"), "3");

    assert!(bench.pass(&desired(&[])).is_converged());
    assert_eq!(group.read("cgroup.max.depth"), "max");
    assert_eq!(group.read("cgroup.freeze"), "0");
}

#[test]
fn a_real_group_is_waited_for_and_its_loss_is_no_failure() {
    let group = Group::named("wait");
    let (bench, desired) = (Bench::of_the_kernel(), group.desired(&[("cgroup.max.depth", "3")]));
    let pending = format!("pending cgroup {0} cgroup.max.depth on cgroup {0}", group.name);
    assert_eq!(report_lines(&bench.pass(&desired)), std::slice::from_ref(&pending));
    group.make();
    assert!(bench.pass(&desired).is_converged());
    assert_eq!(group.read("cgroup.max.depth"), "3");
    fs::remove_dir(&group.path).unwrap();
    assert_eq!(report_lines(&bench.pass(&desired)), [pending]);
}

#[test]
fn a_value_that_the_kernel_refuses_starves_no_other_limit() {
    let group = Group::named("refused");
    group.make();
    let desired = group.desired(&[("cgroup.max.depth", "lots"), ("cgroup.freeze", "1")]);
    let report = Bench::of_the_kernel().pass(&desired);
    let failed = report_lines(&report).into_iter().find(|line| line.starts_with("failed")).unwrap();
    assert!(failed.contains("the kernel refused the value `lots`"), "{failed}");
    assert_eq!(group.read("cgroup.freeze"), "1");
}
