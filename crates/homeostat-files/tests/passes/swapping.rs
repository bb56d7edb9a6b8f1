//! How sets are written: staged, exchanged, compared, and left alone when they are as declared.

use std::fs::{self, Permissions};
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::{Arc, Mutex};

use homeostat_engine::Explain as _;
use homeostat_engine::Kind;
use homeostat_files::{Check, Files, Network, Store};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::bench::{Bench, Declared, report_lines};

#[test]
fn a_set_is_made_and_then_left_alone() {
    let bench = Bench::new();
    let desired = bench.desired(&[
        Declared::Directory("/etc/web", 0o750),
        Declared::File("/etc/web/a.cfg", "one\n"),
        Declared::WithMode("/etc/web/b.cfg", "two\n", 0o640),
        Declared::Secret("/etc/web/key", "hush\n"),
    ]);
    bench.converge(&desired);
    assert_eq!(bench.names("/etc/web"), ["a.cfg", "b.cfg", "key"]);
    assert_eq!(bench.read("/etc/web/a.cfg"), "one\n");
    let modes = ["/etc/web", "/etc/web/a.cfg", "/etc/web/b.cfg", "/etc/web/key"];
    assert_eq!(modes.map(|path| bench.mode(path)), [0o750, 0o644, 0o640, 0o600]);
    bench.assert_quiet(&desired);
}

#[test]
fn every_kind_of_sabotage_is_healed() {
    let bench = Bench::new();
    let desired = bench.desired(&[
        Declared::WithMode("/etc/a", "one\n", 0o640),
        Declared::OwnedBy("/etc/b", "two\n", "0"),
    ]);
    bench.converge(&desired);
    let (a, b) = (bench.at("/etc/a"), bench.at("/etc/b"));
    let sabotages: [(&str, &dyn Fn()); 7] = [
        ("edited in place", &|| fs::write(&a, "uno\n").unwrap()),
        ("truncated", &|| drop(fs::File::create(&a).unwrap())),
        ("replaced", &|| {
            fs::write(bench.at("/etc/new"), "neu\n").unwrap();
            fs::rename(bench.at("/etc/new"), &a).unwrap();
        }),
        ("removed", &|| fs::remove_file(&a).unwrap()),
        ("chmod", &|| fs::set_permissions(&a, Permissions::from_mode(0o666)).unwrap()),
        ("chown", &|| std::os::unix::fs::chown(&b, Some(1234), None).unwrap()),
        ("a link in its place", &|| {
            fs::remove_file(&a).unwrap();
            symlink("/etc/passwd", &a).unwrap();
        }),
    ];
    for (name, sabotage) in sabotages {
        sabotage();
        let report = bench.converge(&desired);
        assert_eq!(report.plan().steps.len(), 1, "{name}");
        assert_eq!((bench.read("/etc/a"), bench.read("/etc/b")), ("one\n".into(), "two\n".into()));
        assert_eq!(bench.mode("/etc/a"), 0o640, "{name}");
        assert_eq!(fs::metadata(&b).unwrap().uid(), 0, "{name}");
        assert_eq!(bench.names("/etc"), ["a", "b"], "{name}");
        bench.assert_quiet(&desired);
    }
}

#[test]
fn owner_mode_and_labels_are_there_before_the_content() {
    let bench = Bench::new();
    bench.put("/etc/a", "old\n");
    let path = bench.at("/etc/a");
    std::os::unix::fs::chown(&path, Some(7), Some(8)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    setxattr(&path, "user.label", b"kept", XattrFlags::empty()).unwrap();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&calls);
    let tap = Arc::new(move |call: &'static str| noted.lock().unwrap().push(call));
    let bench = Bench { source: bench.source.clone().tapped(tap), ..bench };
    bench.converge(&bench.desired(&[Declared::Adopted("/etc/a", "new\n")]));
    let calls = calls.lock().unwrap();
    let staged = ["create", "chown", "setxattr", "chmod", "write", "fsync"];
    assert!(calls.windows(6).any(|calls| calls == staged), "{calls:?}");
    let now = fs::metadata(&path).unwrap();
    assert_eq!((now.uid(), now.gid(), now.mode() & 0o7777), (7, 8, 0o640));
    let mut label = [0; 4];
    getxattr(&path, "user.label", &mut label[..]).unwrap();
    assert_eq!(&label, b"kept");
    assert_eq!(bench.read("/etc/a"), "new\n");
}

/// An access list as the kernel keeps it: the user 9 may read, beside the owner and the group.
fn access_list() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, NOBODY), (2, 4, 9), (4, 4, NOBODY), (16, 4, NOBODY), (32, 0, NOBODY)];
    let entry = |(tag, may, whom): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &may.to_le_bytes(), &whom.to_le_bytes()].concat()
    };
    [&2_u32.to_le_bytes()[..], &entries.map(entry).concat()].concat()
}

#[test]
fn access_lists_and_security_labels_are_those_of_the_file_that_was_there() {
    let bench = Bench::new();
    bench.put("/etc/a", "old\n");
    let path = bench.at("/etc/a");
    let attributes =
        [("system.posix_acl_access", access_list()), ("security.label", b"kept".to_vec())];
    for (name, value) in &attributes {
        setxattr(&path, *name, value, XattrFlags::empty()).unwrap();
    }
    bench.converge(&bench.desired(&[Declared::Adopted("/etc/a", "new\n")]));
    assert_eq!(bench.read("/etc/a"), "new\n");
    for (name, value) in &attributes {
        let mut found = vec![0; value.len()];
        assert_eq!(getxattr(&path, *name, &mut found[..]).unwrap(), value.len(), "{name}");
        assert_eq!(found, *value, "{name}");
    }
    assert_eq!(bench.mode("/etc/a"), 0o640);
}

/// What a program reads first is there last: it never names a part that is not there yet, or is gone already.
#[test]
fn parts_come_before_the_file_that_the_check_names_and_removals_last() {
    let bench = Bench::new();
    let at = |name: &str| bench.at(&format!("/etc/{name}")).display().to_string();
    let [main, part, gone] = ["a-main", "part", "gone"].map(at);
    let arguments = vec!["/bin/true".to_owned(), main.clone()];
    let check = Check { arguments, network: Network::Here, profile: None };
    let source = Files::new("web", Store::open(&bench.state()).unwrap());
    let source = source.checked_by(Some(check));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (noted, paths) = (Arc::clone(&seen), [main.clone(), part.clone(), gone.clone()]);
    let tap = Arc::new(move |_: &'static str| {
        let texts = paths.clone().map(|path| fs::read_to_string(path).unwrap_or_default());
        let (now, mut noted) = (texts.concat().replace('\n', " "), noted.lock().unwrap());
        if noted.last() != Some(&now) {
            noted.push(now);
        }
    });
    let bench = Bench { source: source.clone(), ..bench };
    let file = |path, text| Declared::File(path, text);
    let first = [file(&main, "1\n"), file(&part, "1\n"), file(&gone, "1\n")];
    bench.converge(&bench.desired(&first));
    let bench = Bench { source: source.tapped(tap), ..bench };
    bench.converge(&bench.desired(&[file(&main, "2\n"), file(&part, "2\n")]));
    let seen = seen.lock().unwrap();
    assert_eq!(*seen, ["1 1 1 ", "1 2 1 ", "2 2 1 ", "2 2 "]);
}

/// The tap is called right after the first exchange: by then somebody has edited the file that is still to come.
#[test]
fn a_file_that_is_edited_during_the_swap_takes_the_whole_set_back() {
    let bench = Bench::new();
    let first = [Declared::File("/etc/a", "1\n"), Declared::File("/etc/b", "1\n")];
    bench.converge(&bench.desired(&first));
    let b = bench.at("/etc/b");
    let tap = Arc::new(move |call: &'static str| {
        if call == "exchange" && fs::read(&b).unwrap() == b"1\n" {
            fs::write(&b, "mine\n").unwrap();
        }
    });
    let second = [Declared::File("/etc/a", "2\n"), Declared::File("/etc/b", "2\n")];
    let desired = bench.desired(&second);
    let untapped = bench.source.clone();
    let bench = Bench { source: untapped.clone().tapped(tap), ..bench };
    let report = bench.pass(&desired);
    assert!(!report.is_converged());
    assert_eq!((bench.read("/etc/a"), bench.read("/etc/b")), ("1\n".into(), "mine\n".into()));
    assert_eq!(bench.names("/etc"), ["a", "b"]);
    let lines = report_lines(&report);
    assert!(lines.iter().any(|line| line.contains("another program has changed it")), "{lines:#?}");
    let bench = Bench { source: untapped, ..bench };
    bench.converge(&desired);
    assert_eq!(bench.read("/etc/b"), "2\n");
}

#[test]
fn a_plan_shows_the_lines_that_change_and_nothing_of_a_secret() {
    let bench = Bench::new();
    bench.converge(&bench.desired(&[
        Declared::File("/etc/a", "one\ntwo\nthree\n"),
        Declared::Secret("/etc/key", "CANARY-OLD\n"),
    ]));
    let plan = bench.plan(&bench.desired(&[
        Declared::WithMode("/etc/a", "one\n2\nthree\n", 0o600),
        Declared::Secret("/etc/key", "CANARY-NEW\n"),
    ]));
    let mut shown = Vec::new();
    plan.explain(Kind::Change, &mut |entry| shown.push(format!("{entry:?}")));
    let all = shown.join("\n");
    assert!(!all.contains("CANARY"), "{all}");
    let difference = r"mode 0644 -> 0600\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three";
    assert!(all.contains(difference), "{all}");
    assert!(all.contains("its content is secret"), "{all}");
}

/// Once the times of the files are old enough to be trusted.
#[test]
fn a_look_at_files_that_have_not_changed_reads_none_of_them() {
    let bench = Bench::new();
    let paths: Vec<String> = (0..100).map(|nth| format!("/etc/{nth}")).collect();
    let declared: Vec<_> = paths.iter().map(|path| Declared::File(path, "same\n")).collect();
    let desired = bench.desired(&declared);
    bench.converge(&desired);
    let queue = inotify::init(CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&queue, bench.at("/etc"), WatchFlags::ACCESS | WatchFlags::OPEN).unwrap();
    let mut looking = bench.looking();
    loop {
        looking.look(&desired);
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&queue, &mut space);
        let read =
            std::iter::from_fn(|| reader.next().ok().map(|event| event.file_name().is_some()));
        if read.filter(|is_file| *is_file).count() == 0 {
            break;
        }
    }
    bench.put("/etc/7", "edit\n");
    assert_eq!(looking.look(&desired).steps.len(), 1);
}
