//! Targets that cannot be written: a clear error with the way out, and nothing half done.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use homeostat_engine::Explain as _;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::mount::{UnmountFlags, mount_remount, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::bench::{Bench, Declared, make_directory, report_lines};

const FIRST: [Declared<'_>; 2] =
    [Declared::File("/etc/a/file", "old\n"), Declared::File("/etc/b/file", "old\n")];
const SECOND: [Declared<'_>; 2] =
    [Declared::File("/etc/a/file", "new\n"), Declared::File("/etc/b/file", "new\n")];

/// A set in two directories, as first declared.
fn bench() -> Bench {
    let bench = Bench::new();
    make_directory(&bench.at("/etc/a"));
    make_directory(&bench.at("/etc/b"));
    bench.converge(&bench.desired(&FIRST));
    bench
}

/// Expects that the second desired state fails with these words, and that nothing of it is there.
#[track_caller]
fn assert_refused(bench: &Bench, words: &[&str]) {
    let report = bench.pass(&bench.desired(&SECOND));
    assert!(!report.is_converged());
    let lines = report_lines(&report).join("\n");
    for word in words {
        assert!(lines.contains(word), "{word}: {lines}");
    }
    let held = (bench.read("/etc/a/file"), bench.read("/etc/b/file"));
    assert_eq!(held, ("old\n".into(), "old\n".into()), "{lines}");
    assert_eq!(
        (bench.names("/etc/a"), bench.names("/etc/b")),
        (vec!["file".into()], vec!["file".into()])
    );
}

/// Gives the thread of a test mounts of its own, which go with it.
#[expect(unsafe_code, reason = "the kernel's call has no safe wrapper")]
fn own_mounts() {
    // SAFETY: no descriptor is unshared; mounts and working directory are this thread's alone.
    let left = unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) };
    left.expect("these tests mount: run them as root");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
}

fn set_immutable(path: &Path, immutable: bool) {
    let file = fs::File::open(path).unwrap();
    let mut flags = ioctl_getflags(&file).unwrap();
    flags.set(IFlags::IMMUTABLE, immutable);
    ioctl_setflags(&file, flags).expect("TMPDIR must be on a file system with immutable files");
}

#[test]
fn an_immutable_file_takes_the_whole_set_back() {
    let bench = bench();
    set_immutable(&bench.at("/etc/b/file"), true);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert_refused(&bench, &["file /etc/b/file", "Operation not permitted", "lsattr"]);
    }));
    set_immutable(&bench.at("/etc/b/file"), false);
    refused.unwrap();
    bench.converge(&bench.desired(&SECOND));
}

#[test]
fn a_file_that_is_a_mount_names_the_directory_to_mount() {
    own_mounts();
    let bench = bench();
    let file = bench.at("/etc/b/file");
    mount_bind(&file, &file).unwrap();
    assert_refused(&bench, &["file /etc/b/file", "busy", "mount", "/etc/b in its place"]);
    unmount(&file, UnmountFlags::empty()).unwrap();
    bench.converge(&bench.desired(&SECOND));
}

#[test]
fn a_read_only_file_system_is_named() {
    own_mounts();
    let bench = bench();
    let directory = bench.at("/etc/b");
    mount_bind(&directory, &directory).unwrap();
    mount_remount(&directory, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    assert_refused(&bench, &["file /etc/b/file", "Read-only", "ReadWritePaths="]);
    unmount(&directory, UnmountFlags::empty()).unwrap();
    bench.converge(&bench.desired(&SECOND));
}

#[test]
fn a_full_file_system_keeps_what_it_has() {
    own_mounts();
    let bench = Bench::new();
    make_directory(&bench.at("/etc/a"));
    make_directory(&bench.at("/etc/b"));
    let flags = MountFlags::empty();
    mount("tmpfs", bench.at("/etc/b"), "tmpfs", flags, Some(c"size=64k,mode=755")).unwrap();
    bench.converge(&bench.desired(&FIRST));
    let large = "x".repeat(100_000);
    let desired = [Declared::File("/etc/a/file", "new\n"), Declared::File("/etc/b/file", &large)];
    let report = bench.pass(&bench.desired(&desired));
    let lines = report_lines(&report).join("\n");
    assert!(lines.contains("No space left") && lines.contains("make room"), "{lines}");
    assert_eq!(
        (bench.read("/etc/a/file"), bench.read("/etc/b/file")),
        ("old\n".into(), "old\n".into())
    );
    assert_eq!(bench.names("/etc/b"), ["file"]);
}

/// What a container sees: a directory that is joined of two.
#[test]
fn a_set_on_an_overlay_is_written() {
    own_mounts();
    let bench = Bench::new();
    for name in ["lower", "upper"] {
        make_directory(&bench.temp.path().join(name));
    }
    fs::write(bench.temp.path().join("lower/file"), "lower\n").unwrap();
    make_directory(&bench.at("/etc/a"));
    make_directory(&bench.at("/etc/b"));
    let base = bench.temp.path().display();
    let flags = MountFlags::empty();
    // The directory of this test may be on an overlay itself, which cannot carry another one.
    mount("tmpfs", bench.temp.path().join("upper"), "tmpfs", flags, None).unwrap();
    for name in ["upper/u", "upper/w"] {
        make_directory(&bench.temp.path().join(name));
    }
    let options = format!("lowerdir={base}/lower,upperdir={base}/upper/u,workdir={base}/upper/w");
    let options = std::ffi::CString::new(options).unwrap();
    mount("overlay", bench.at("/etc/b"), "overlay", flags, Some(&*options)).unwrap();
    let adopted =
        [Declared::File("/etc/a/file", "new\n"), Declared::Adopted("/etc/b/file", "new\n")];
    bench.converge(&bench.desired(&adopted));
    assert_eq!(bench.read("/etc/b/file"), "new\n");
    bench.converge(&bench.desired(&[]));
    assert_eq!(bench.names("/etc/a"), Vec::<String>::new());
}

#[test]
fn a_path_through_a_link_or_a_missing_directory_is_refused_with_the_way_out() {
    let bench = Bench::new();
    make_directory(&bench.at("/etc/real"));
    symlink("real", bench.at("/etc/link")).unwrap();
    make_directory(&bench.at("/etc/open"));
    fs::set_permissions(bench.at("/etc/open"), Permissions::from_mode(0o777)).unwrap();
    make_directory(&bench.at("/etc/dir/in-the-way"));
    for (path, words) in [
        ("/etc/link/a", ["is a symbolic link", "the path to which the link leads"]),
        ("/etc/gone/a", ["is missing", "`directories`"]),
        ("/etc/open/a", ["others than root can write", "chmod go-w"]),
    ] {
        let desired =
            bench.desired(&[Declared::File(path, "new\n"), Declared::File("/etc/other", "x\n")]);
        let lines = report_lines(&bench.pass(&desired)).join("\n");
        assert!(words.iter().all(|word| lines.contains(word)), "{path}: {lines}");
        assert!(!bench.at("/etc/other").exists(), "{path}: the set is written as one");
    }
    let lines = report_lines(&bench.pass(&bench.desired(&[Declared::Adopted("/etc/dir", "x\n")])));
    assert!(lines.join("\n").contains("a directory is there"), "{lines:?}");
}

#[test]
fn a_user_that_does_not_exist_is_waited_for() {
    let bench = Bench::new();
    let desired = bench.desired(&[Declared::OwnedBy("/etc/a", "x\n", "web")]);
    let lines = report_lines(&bench.pass(&desired));
    assert_eq!(lines, [". file /etc/a: the user `web`, which does not exist"]);
    bench.put("/etc/passwd", "root:x:0:0::/:\nweb:x:33:33::/:\n");
    bench.converge(&desired);
    bench.assert_quiet(&desired);
}
