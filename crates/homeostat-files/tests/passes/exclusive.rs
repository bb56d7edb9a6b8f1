//! Directories in which nothing is but what is declared: what becomes of others' files.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Command, Stdio};

use homeostat_engine::Explain as _;
use homeostat_files::{Files, Shrinking};

use crate::bench::{Bench, Declared, make_directory, report_lines};

const EXCLUSIVE: [Declared<'_>; 2] =
    [Declared::Exclusive("/etc/conf.d"), Declared::File("/etc/conf.d/a", "ours\n")];
const SHARED: [Declared<'_>; 1] = [Declared::File("/etc/conf.d/a", "ours\n")];

/// One with a directory, and these files of others in it.
fn bench(theirs: &[&str]) -> Bench {
    let bench = Bench::new();
    make_directory(&bench.at("/etc/conf.d"));
    for name in theirs {
        bench.put(&format!("/etc/conf.d/{name}"), &format!("{name} of others\n"));
    }
    bench
}

/// The directory is as its owner has it.
fn is_there(bench: &Bench, expected: &[&str]) {
    assert_eq!(bench.names("/etc/conf.d"), expected);
}

#[test]
fn files_of_others_are_moved_away_and_return_when_it_is_not_exclusive_any_more() {
    let bench = bench(&["b", "c"]);
    fs::set_permissions(bench.at("/etc/conf.d/b"), Permissions::from_mode(0o604)).unwrap();
    let exclusive = bench.desired(&EXCLUSIVE);
    let plan = report_lines(&bench.plan(&exclusive));
    let told = "~ file /etc/conf.d/b (its directory is exclusive: moved away, and kept)";
    assert!(plan.iter().any(|line| line == told), "{plan:#?}");
    is_there(&bench, &["b", "c"]);
    bench.converge(&exclusive);
    is_there(&bench, &["a"]);
    bench.assert_quiet(&exclusive);
    // The last one of a name is the one that returns.
    bench.put("/etc/conf.d/c", "newer\n");
    bench.converge(&exclusive);
    is_there(&bench, &["a"]);
    // Others are kept as long as these.
    bench.put("/etc/conf.d/d", "d\n");
    bench.converge(&exclusive);
    bench.converge(&bench.desired(&SHARED));
    is_there(&bench, &["a", "b", "c", "d"]);
    assert_eq!(bench.read("/etc/conf.d/b"), "b of others\n");
    assert_eq!(bench.mode("/etc/conf.d/b"), 0o604);
    assert_eq!(bench.read("/etc/conf.d/c"), "newer\n");
    bench.assert_quiet(&bench.desired(&SHARED));
    // They belong to others again.
    bench.converge(&bench.desired(&[]));
    is_there(&bench, &["b", "c", "d"]);
}

#[test]
fn a_file_that_becomes_declared_is_written_and_its_original_stays_known() {
    let bench = bench(&["b"]).restoring();
    bench.converge(&bench.desired(&EXCLUSIVE));
    let declared =
        [EXCLUSIVE[0], EXCLUSIVE[1], Declared::File("/etc/conf.d/b", "declared by us\n")];
    bench.converge(&bench.desired(&declared));
    assert_eq!(bench.read("/etc/conf.d/b"), "declared by us\n");
    bench.converge(&bench.desired(&[]));
    assert_eq!(bench.read("/etc/conf.d/b"), "b of others\n");
}

#[test]
fn directories_and_hidden_and_excepted_files_and_those_of_packages_stay() {
    let stay = [".b.swp", "a.dpkg-new", "mine.keep", "packaged"];
    let bench = bench(&stay);
    make_directory(&bench.at("/etc/conf.d/sub"));
    bench.put("/etc/conf.d/sub/x", "x\n");
    make_directory(&bench.at("/var/lib/dpkg/info"));
    bench.put("/var/lib/dpkg/info/a.list", "/etc\n/etc/conf.d\n/etc/conf.d/packaged\n");
    bench.put("/etc/conf.d/packaged~", "a copy of an editor\n");
    bench.converge(&bench.desired(&EXCLUSIVE));
    is_there(&bench, &[".b.swp", "a", "a.dpkg-new", "mine.keep", "packaged", "sub"]);
    assert_eq!(bench.names("/etc/conf.d/sub"), ["x"]);
    bench.assert_quiet(&bench.desired(&EXCLUSIVE));
}

#[test]
fn links_and_special_files_stay_and_are_named_and_hold_nothing_else() {
    let bench = bench(&["b"]);
    symlink("/etc/passwd", bench.at("/etc/conf.d/link")).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(bench.at("/etc/conf.d/socket")).unwrap();
    let lines = report_lines(&bench.pass(&bench.desired(&EXCLUSIVE))).join("\n");
    for told in ["file /etc/conf.d/link: a symbolic link is there", "file /etc/conf.d/socket: "] {
        assert!(lines.contains(told), "{lines}");
    }
    is_there(&bench, &["a", "link", "socket"]);
    // A link in place of what was moved away is a link, too.
    symlink("/etc/passwd", bench.at("/etc/conf.d/b")).unwrap();
    let lines = report_lines(&bench.pass(&bench.desired(&EXCLUSIVE))).join("\n");
    assert!(lines.contains("file /etc/conf.d/b: a symbolic link is there"), "{lines}");
    for name in ["b", "link", "socket"] {
        fs::remove_file(bench.at(&format!("/etc/conf.d/{name}"))).unwrap();
    }
    drop(listener);
    bench.converge(&bench.desired(&EXCLUSIVE));
    bench.converge(&bench.desired(&[]));
    assert_eq!(bench.read("/etc/conf.d/b"), "b of others\n");
}

#[test]
fn a_file_that_somebody_writes_is_waited_for() {
    let bench = bench(&["b"]);
    let mut open = File::options().append(true).open(bench.at("/etc/conf.d/b")).unwrap();
    let desired = bench.desired(&EXCLUSIVE);
    let lines = report_lines(&bench.pass(&desired)).join("\n");
    assert!(lines.contains(". file /etc/conf.d/b: the process that has it open"), "{lines}");
    is_there(&bench, &["a", "b"]);
    open.write_all(b"and more\n").unwrap();
    drop(open);
    // A process that another test starts has the descriptor for a moment, too.
    while !bench.pass(&desired).is_converged() {}
    is_there(&bench, &["a"]);
    bench.converge(&bench.desired(&SHARED));
    assert_eq!(bench.read("/etc/conf.d/b"), "b of others\nand more\n");
}

#[test]
fn many_files_at_once_are_held() {
    let names: Vec<String> = (0..11).map(|nth| format!("theirs{nth:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bench = bench(&names);
    bench.source.shrinking = Shrinking::Hold { option: "--allow-mass-delete" };
    let desired = bench.desired(&EXCLUSIVE);
    let lines = report_lines(&bench.pass(&desired)).join("\n");
    let told = "11 files would be moved away; if that is meant, use --allow-mass-delete";
    assert!(lines.contains(told), "{lines}");
    assert_eq!(bench.names("/etc/conf.d").len(), 12, "what is declared is written all the same");
    bench.source.shrinking = Shrinking::Allow;
    bench.converge(&desired);
    is_there(&bench, &["a"]);
    // What is moved away already counts no more.
    bench.source.shrinking = Shrinking::Hold { option: "--allow-mass-delete" };
    bench.put("/etc/conf.d/one-more", "x\n");
    bench.converge(&desired);
    is_there(&bench, &["a"]);
}

#[test]
fn what_was_moved_away_outlives_its_directory() {
    let bench = bench(&["b"]);
    let desired = bench.desired(&EXCLUSIVE);
    bench.converge(&desired);
    fs::remove_dir_all(bench.at("/etc/conf.d")).unwrap();
    bench.converge(&desired);
    is_there(&bench, &["a"]);
    bench.converge(&bench.desired(&[]));
    assert_eq!(bench.read("/etc/conf.d/b"), "b of others\n");
}

#[test]
fn a_directory_that_everybody_can_write_to_is_left_alone() {
    let bench = bench(&["b"]);
    fs::set_permissions(bench.at("/etc/conf.d"), Permissions::from_mode(0o777)).unwrap();
    let lines = report_lines(&bench.pass(&bench.desired(&[EXCLUSIVE[0]]))).join("\n");
    assert!(lines.contains("others than root can write to the directory"), "{lines}");
    is_there(&bench, &["b"]);
}

/// Somebody who has a lock as dpkg has it.
struct Dpkg(Child);

impl Dpkg {
    #[expect(clippy::disallowed_methods, reason = "locks of this very process are none to it")]
    fn lock(source: &Files) -> Self {
        let script = "use Fcntl; open F, '>', $ARGV[0]; my $l = pack('s s x4 q q i x4', F_WRLCK, 0, 0, 0, 0); \
            fcntl(F, F_SETLK, $l) or die; $| = 1; print \"locked\\n\"; <STDIN>";
        let mut perl = Command::new("perl");
        perl.args(["-e", script]).arg(source.root.join("var/lib/dpkg/lock"));
        let mut child = perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "locked\n");
        Dpkg(child)
    }
}

impl Drop for Dpkg {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// dpkg makes files before it says that they are its own.
#[test]
fn nothing_is_moved_away_while_dpkg_works() {
    let bench = bench(&["packaged", "b"]);
    make_directory(&bench.at("/var/lib/dpkg/info"));
    let dpkg = Dpkg::lock(&bench.source);
    let desired = bench.desired(&EXCLUSIVE);
    let lines = report_lines(&bench.pass(&desired)).join("\n");
    assert!(lines.contains(". file /etc/conf.d/packaged: dpkg, which is at work"), "{lines}");
    is_there(&bench, &["a", "b", "packaged"]);
    bench.put("/var/lib/dpkg/info/a.list", "/etc/conf.d/packaged\n");
    drop(dpkg);
    bench.converge(&desired);
    is_there(&bench, &["a", "packaged"]);
}
