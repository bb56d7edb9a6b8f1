//! Files of sysfs: in a tree of the test's own, and those of links in a fresh namespace.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use homeostat_engine::Explain as _;
use homeostat_knobs::{DesiredState, Knobs};
use tempfile::TempDir;

use crate::bench::{Bench, fresh_network, report_lines, roots_below};

const HUGE: &str = "kernel/mm/transparent_hugepage/enabled";

struct Tree(TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let tree = Tree(tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.0.path().join("sysfs")).unwrap();
        for (path, text) in files {
            tree.write(path, text);
        }
        tree
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join("sysfs").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap().trim_end().to_owned()
    }

    fn bench(&self) -> Bench {
        Bench::new(Knobs::new(roots_below(self.0.path()), None))
    }
}

fn desired(pairs: &[(&str, &str)]) -> DesiredState {
    let builder = DesiredState::builder();
    let add = |builder: homeostat_knobs::Builder, (path, value): &(&str, &str)| {
        builder.sysfs(path, value).unwrap()
    };
    pairs.iter().fold(builder, add).build().unwrap()
}

#[test]
fn the_word_in_brackets_is_the_value_and_comes_back_on_release() {
    let tree = Tree::new(&[(HUGE, "always [madvise] never\n")]);
    let bench = tree.bench().restoring();
    assert_eq!(
        report_lines(&bench.plan(&desired(&[(HUGE, "never")]))),
        [format!("~ sysfs {HUGE}: madvise -> never")]
    );
    assert!(bench.pass(&desired(&[(HUGE, "never")])).is_converged());
    assert_eq!(tree.read(HUGE), "never");
    // The kernel shows all the words again.
    tree.write(HUGE, "always madvise [never]\n");
    bench.assert_quiet(&desired(&[(HUGE, "never")]));
    assert!(bench.pass(&desired(&[])).is_converged());
    assert_eq!(tree.read(HUGE), "madvise");
}

#[test]
fn values_are_compared_as_their_files_mean_them() {
    let rps = "class/net/eth0/queues/rx-0/rps_cpus";
    let switch = "module/kvm/parameters/halt_poll";
    let tree = Tree::new(&[(rps, "00000000,0000000f\n"), (switch, "Y\n"), ("fs/x/size", "16\n")]);
    tree.bench().assert_quiet(&desired(&[(rps, "f"), (switch, "1"), ("fs/x/size", "0x10")]));
}

#[test]
fn what_is_no_setting_is_refused_with_the_reason() {
    let tree = Tree::new(&[("a/only_written", "1\n"), ("a/only_read", "1\n"), ("a/b/c", "1\n")]);
    for (path, mode) in [("a/only_written", 0o200), ("a/only_read", 0o444)] {
        fs::set_permissions(tree.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink("/proc/self", tree.path("a/out")).unwrap();
    fs::create_dir_all(tree.path("class/net")).unwrap();
    let plan = tree.bench().plan(&desired(&[
        ("a/b", "1"),
        ("a/b/d", "1"),
        ("a/only_read", "2"),
        ("a/only_written", "1"),
        ("a/out/comm", "1"),
        ("class/net/eth0/threaded", "1"),
    ]));
    let mut lines = report_lines(&plan);
    lines.sort();
    assert_eq!(
        lines,
        [
            "failed sysfs a/b/d: the kernel has no such knob",
            "failed sysfs a/b: it is a directory, not a knob",
            "failed sysfs a/only_read: the kernel allows no write here",
            "failed sysfs a/only_written: it can be written but not read, so it cannot be compared",
            "failed sysfs a/out/comm: it is in another file system than sysfs, not a knob",
            "pending sysfs class/net/eth0/threaded on link eth0",
        ]
    );
}

/// What a sysfs shows that is mounted for the namespace of the calling thread, as `ip netns exec` does it.
#[expect(clippy::disallowed_methods, reason = "the judge is another program")]
fn judged(path: &str) -> String {
    let script = format!("mount -t sysfs none /sys && cat /sys/{path}");
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn a_file_of_a_link_is_the_one_of_the_namespace() {
    let network = fresh_network();
    network.ip("link add v0 type veth peer name v1");
    let path = "class/net/v0/gro_flush_timeout";
    let desired = desired(&[(path, "20000")]);
    let bench = Bench::of_the_kernel().restoring();
    assert!(!Path::new("/sys/class/net/v0").exists(), "this machine has a link `v0` of its own");
    let report = bench.pass(&desired);
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(judged(path), "20000");
    bench.assert_quiet(&desired);
    assert!(bench.pass(&DesiredState::default()).is_converged());
    assert_eq!(judged(path), "0");
}
