//! Passes over a fake tree: what no network namespace can show.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use homeostat_engine::Explain as _;
use homeostat_knobs::{DesiredState, Knobs, Roots};
use rustix::fs::{XattrFlags, setxattr};
use tempfile::TempDir;

use crate::bench::{Bench, desired, report_lines, roots_below};

/// Files of a fake `/proc/sys` and a fake hierarchy of groups, with what they hold.
struct Fake {
    root: TempDir,
}

impl Fake {
    fn new(files: &[(&str, &str)]) -> Self {
        let fake = Fake { root: tempfile::tempdir().unwrap() };
        fs::create_dir(fake.root.path().join("sys")).unwrap();
        fs::create_dir(fake.root.path().join("cgroup")).unwrap();
        for (path, text) in files {
            fake.write(path, text);
        }
        fake
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join(path)).unwrap().trim_end().to_owned()
    }

    fn source(&self) -> Knobs {
        let cgroup = Some(self.root.path().join("cgroup"));
        Knobs::new(Roots { cgroup, systemd: true, ..roots_below(self.root.path()) }, None)
    }

    fn bench(&self) -> Bench {
        Bench::new(self.source())
    }
}

fn limits(group: &str, pairs: &[(&str, &str)]) -> DesiredState {
    let builder = pairs.iter().fold(DesiredState::builder(), |desired, (file, value)| {
        desired.cgroup(group, file, value).unwrap()
    });
    builder.build().unwrap()
}

#[test]
fn limits_are_compared_in_the_kernels_words() {
    let fake = Fake::new(&[
        ("cgroup/machine/web/memory.max", "268435456\n"),
        ("cgroup/machine/web/memory.high", "max\n"),
        ("cgroup/machine/web/cpu.max", "50000 100000\n"),
        ("cgroup/machine/web/cpuset.cpus", "0-1\n"),
        ("cgroup/machine/web/io.max", "8:0 rbps=1048576 wbps=max riops=max wiops=max\n"),
        ("cgroup/machine/web/pids.max", "max\n"),
    ]);
    let agreeing = limits(
        "machine/web",
        &[
            ("memory.max", "256M"),
            ("memory.high", "max"),
            ("cpu.max", "50000"),
            ("cpuset.cpus", "1,0"),
            ("io.max", "8:0 rbps=1M wbps=max\n8:16 rbps=max"),
            ("pids.max", "max"),
        ],
    );
    let bench = fake.bench();
    bench.assert_quiet(&agreeing);
    let other = limits("machine/web", &[("memory.max", "256000001"), ("pids.max", "100")]);
    assert!(bench.pass(&other).is_converged());
    assert_eq!(fake.read("cgroup/machine/web/memory.max"), "256000000", "rounded down to pages");
    assert_eq!(fake.read("cgroup/machine/web/pids.max"), "100");
    bench.assert_quiet(&other);
}

#[test]
fn a_quota_is_restored_with_its_period() {
    let fake = Fake::new(&[("cgroup/web/cpu.max", "max 100000\n")]);
    let bench = fake.bench().restoring();
    assert!(bench.pass(&limits("web", &[("cpu.max", "50000")])).is_converged());
    fake.write("cgroup/web/cpu.max", "50000 100000\n");
    bench.assert_quiet(&limits("web", &[("cpu.max", "50000")]));
    let report = bench.pass(&desired(&[]));
    assert_eq!(report_lines(&report), ["- cgroup web cpu.max: 50000 -> max 100000"]);
    assert_eq!(fake.read("cgroup/web/cpu.max"), "max 100000");
}

#[test]
fn a_quota_that_was_as_declared_needs_no_restoring() {
    let fake = Fake::new(&[("cgroup/web/cpu.max", "max 50000\n")]);
    let bench = fake.bench().restoring();
    bench.assert_quiet(&limits("web", &[("cpu.max", "max")]));
    let report = bench.pass(&desired(&[]));
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(report_lines(&report), ["- cgroup web cpu.max: max 50000 -> nothing"]);
    bench.assert_quiet(&desired(&[]));
}

#[test]
fn a_group_that_does_not_exist_is_waited_for_and_never_made() {
    let fake = Fake::new(&[]);
    let (bench, desired) = (fake.bench(), limits("machine/web", &[("memory.max", "1G")]));
    let pending = "pending cgroup machine/web memory.max on cgroup machine/web";
    assert_eq!(report_lines(&bench.pass(&desired)), [pending]);
    assert!(!fake.root.path().join("cgroup/machine").exists());
    fake.write("cgroup/machine/web/memory.max", "max\n");
    assert!(bench.pass(&desired).is_converged());
    assert_eq!(fake.read("cgroup/machine/web/memory.max"), "1073741824");
}

#[test]
fn a_limit_whose_controller_is_off_is_refused() {
    let fake = Fake::new(&[("cgroup/web/cgroup.freeze", "0\n")]);
    let plan = fake.bench().plan(&limits("web", &[("memory.max", "1G")]));
    assert_eq!(report_lines(&plan), ["failed cgroup web memory.max: the kernel has no such knob"]);
}

#[test]
fn a_group_that_systemd_manages_is_a_conflict_and_adoptable() {
    let fake = Fake::new(&[("cgroup/machine.slice/web.service/memory.max", "max\n")]);
    let group = "machine.slice/web.service";
    let key = format!("cgroup {group} memory.max");
    let bench = fake.bench();
    let plain = limits(group, &[("memory.max", "1G")]);
    let conflict = format!("conflict {key} with systemd (web.service): belongs to another owner");
    assert_eq!(report_lines(&bench.pass(&plain)), [conflict]);
    assert_eq!(fake.read("cgroup/machine.slice/web.service/memory.max"), "max");

    let matched = limits(group, &[("memory.max", "max")]);
    assert_eq!(
        report_lines(&bench.pass(&matched)),
        [format!("matched {key} of systemd (web.service)")]
    );
    assert!(bench.page().holdings().records.is_empty(), "matched is not claimed");

    let adopting = DesiredState::builder().cgroup(group, "memory.max", "1G").unwrap().adopting();
    let adopting = adopting.build().unwrap();
    assert!(bench.pass(&adopting).is_converged());
    assert_eq!(fake.read("cgroup/machine.slice/web.service/memory.max"), "1073741824");
    bench.assert_quiet(&adopting);
    bench.assert_quiet(&plain);
}

#[test]
fn a_group_below_a_delegated_unit_is_free() {
    let fake = Fake::new(&[("cgroup/web.service/payload/memory.max", "max\n")]);
    let (bench, desired) = (fake.bench(), limits("web.service/payload", &[("memory.max", "1G")]));
    assert!(!bench.pass(&desired).is_converged());
    let unit = fake.root.path().join("cgroup/web.service");
    setxattr(&unit, "user.delegate", b"1", XattrFlags::empty()).unwrap();
    assert!(bench.pass(&desired).is_converged());
}

#[test]
fn modes_show_what_can_be_managed() {
    let fake = Fake::new(&[("sys/net/only_write", "1\n"), ("sys/net/only_read", "1\n")]);
    for (path, mode) in [("sys/net/only_write", 0o200), ("sys/net/only_read", 0o444)] {
        let path = fake.root.path().join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let bench = fake.bench();
    assert_eq!(
        report_lines(&bench.plan(&desired(&[("net.only_write", "1"), ("net.only_read", "2")]))),
        [
            "failed sysctl net.only_read: the kernel allows no write here",
            "failed sysctl net.only_write: it can be written but not read, so it cannot be compared",
        ]
    );
    bench.assert_quiet(&desired(&[("net.only_read", "1")]));
}

#[test]
fn what_is_no_file_is_no_knob_and_links_lead_nowhere() {
    let fake = Fake::new(&[("sys/net/ipv4/ip_forward", "0\n"), ("outside", "0\n")]);
    symlink(fake.root.path().join("outside"), fake.root.path().join("sys/net/link")).unwrap();
    symlink(fake.root.path(), fake.root.path().join("sys/net/dir")).unwrap();
    let report = fake.bench().pass(&desired(&[
        ("net.ipv4", "1"),
        ("net.link", "1"),
        ("net.dir.outside", "1"),
    ]));
    assert_eq!(
        report_lines(&report),
        [
            "failed sysctl net.ipv4: it is a directory, not a knob",
            "failed sysctl net.link: it is a symbolic link, not a knob",
            "unknown sysctl net.dir.outside: Not a directory (os error 20)",
        ]
    );
    assert_eq!(fake.read("outside"), "0");
}

#[test]
fn a_step_that_a_later_one_undoes_is_reported_although_nobody_knew_of_the_coupling() {
    let fake = Fake::new(&[("sys/net/one", "0\n")]);
    let path = |name: &str| fake.root.path().join("sys/net").join(name);
    fs::hard_link(path("one"), path("two")).unwrap();
    let report = fake.bench().pass(&desired(&[("net.one", "1"), ("net.two", "2")]));
    let failed = "failed sysctl net.one: the write was accepted, but the target holds \"2\" in \
                  place of \"1\"";
    assert!(report_lines(&report).contains(&failed.to_owned()), "{:#?}", report_lines(&report));
}

#[test]
fn host_wide_knobs_are_refused_where_the_scope_is_a_network() {
    let fake = Fake::new(&[("sys/vm/swappiness", "60\n"), ("sys/net/ipv4/ip_forward", "0\n")]);
    let why = "this is a sandbox".to_owned();
    let bench = Bench::new(Knobs { host_wide_refusal: Some(why), ..fake.source() });
    let report = bench.pass(&desired(&[("vm.swappiness", "60"), ("net.ipv4.ip_forward", "1")]));
    let refused = "failed sysctl vm.swappiness: it belongs to the whole host: this is a sandbox";
    assert_eq!(report_lines(&report), ["~ sysctl net.ipv4.ip_forward: 0 -> 1", refused]);
    assert!(fake.bench().pass(&desired(&[("vm.swappiness", "10")])).is_converged());
}

#[test]
fn a_root_that_is_not_there_fails_the_look() {
    let fake = Fake::new(&[("sys/net/ipv4/ip_forward", "1\n")]);
    let (bench, desired) = (fake.bench(), desired(&[("net.ipv4.ip_forward", "1")]));
    bench.assert_quiet(&desired);
    fs::rename(fake.root.path().join("sys"), fake.root.path().join("moved")).unwrap();
    let error = bench.try_plan(&desired).unwrap_err();
    assert!(format!("{error:?}").contains("cannot be opened"), "{error:?}");
}

#[test]
fn without_a_hierarchy_limits_are_refused() {
    let fake = Fake::new(&[]);
    let bench = Bench::new(Knobs::new(roots_below(fake.root.path()), None));
    let plan = bench.plan(&limits("web", &[("memory.max", "1G")]));
    assert_eq!(
        report_lines(&plan),
        ["failed cgroup web memory.max: there is no cgroup v2 hierarchy"]
    );
}

#[test]
fn what_cannot_be_read_is_unknown_and_never_written() {
    let fake = Fake::new(&[("sys/net/ipv4/ip_forward", "0\n")]);
    let path = fake.root.path().join("sys/net/ipv4/ip_forward");
    fs::write(&path, b"\xff").unwrap();
    let report = fake.bench().pass(&desired(&[("net.ipv4.ip_forward", "1")]));
    assert_eq!(report_lines(&report), ["unknown sysctl net.ipv4.ip_forward: it holds no text"]);
    assert_eq!(fs::read(&path).unwrap(), b"\xff");
}
