//! Whose a file is, and what becomes of it when it leaves the desired state.

use std::fs;

use crate::bench::{Bench, Declared, make_directory, names, report_lines};

#[test]
fn a_foreign_file_holds_the_whole_set_until_it_is_adopted() {
    let bench = Bench::new();
    bench.put("/etc/b", "theirs\n");
    let other = Declared::File("/etc/a", "ours\n");
    let report = bench.pass(&bench.desired(&[other, Declared::File("/etc/b", "ours\n")]));
    let expected =
        [". file /etc/a: file /etc/b", "conflict file /etc/b: another program, or a person"];
    assert_eq!(report_lines(&report), expected);
    assert_eq!((bench.names("/etc"), bench.read("/etc/b")), (vec!["b".into()], "theirs\n".into()));
    let adopted = bench.desired(&[other, Declared::Adopted("/etc/b", "ours\n")]);
    bench.converge(&adopted);
    assert_eq!((bench.read("/etc/a"), bench.read("/etc/b")), ("ours\n".into(), "ours\n".into()));
    bench.assert_quiet(&adopted);
}

#[test]
fn a_foreign_file_that_is_as_declared_is_left_to_its_owner() {
    let bench = Bench::new();
    bench.put("/etc/a", "same\n");
    let desired = bench.desired(&[Declared::File("/etc/a", "same\n")]);
    let report = bench.converge(&desired);
    assert_eq!(report_lines(&report), ["= file /etc/a"]);
    bench.converge(&bench.desired(&[]));
    assert_eq!(bench.read("/etc/a"), "same\n");
}

#[test]
fn what_we_made_goes_and_what_others_changed_since_stays() {
    let bench = Bench::new();
    let declared = [
        Declared::Directory("/etc/d", 0o755),
        Declared::Directory("/etc/shared", 0o755),
        Declared::File("/etc/a", "a\n"),
        Declared::File("/etc/d/b", "b\n"),
        Declared::File("/etc/d/c", "c\n"),
    ];
    bench.converge(&bench.desired(&declared));
    bench.put("/etc/d/c", "changed\n");
    bench.put("/etc/shared/theirs", "x\n");
    let report = bench.converge(&bench.desired(&[]));
    assert_eq!(bench.names("/etc"), ["d", "shared"], "{:#?}", report_lines(&report));
    assert_eq!(bench.names("/etc/d"), ["c"]);
    assert_eq!(bench.read("/etc/d/c"), "changed\n");
    let told = "- file /etc/d/c (released, it stays: others have changed it)";
    assert!(report_lines(&report).iter().any(|line| line == told), "{:#?}", report_lines(&report));
    bench.assert_quiet(&bench.desired(&[]));
}

#[test]
fn an_original_returns_if_that_is_asked_for() {
    let bench = Bench::new().restoring();
    bench.put("/etc/a", "original\n");
    fs::set_permissions(bench.at("/etc/a"), std::os::unix::fs::PermissionsExt::from_mode(0o604))
        .unwrap();
    bench.converge(&bench.desired(&[Declared::Adopted("/etc/a", "ours\n")]));
    bench.converge(&bench.desired(&[Declared::WithMode("/etc/a", "ours again\n", 0o600)]));
    // The original outlives the file.
    fs::remove_file(bench.at("/etc/a")).unwrap();
    bench.converge(&bench.desired(&[Declared::WithMode("/etc/a", "ours again\n", 0o600)]));
    bench.converge(&bench.desired(&[]));
    assert_eq!((bench.read("/etc/a").as_str(), bench.mode("/etc/a")), ("original\n", 0o604));
    bench.assert_quiet(&bench.desired(&[]));
}

#[test]
fn without_being_asked_an_adopted_file_stays_as_it_is() {
    let bench = Bench::new();
    bench.put("/etc/a", "original\n");
    bench.converge(&bench.desired(&[Declared::Adopted("/etc/a", "ours\n")]));
    bench.converge(&bench.desired(&[]));
    assert_eq!(bench.read("/etc/a"), "ours\n");
    bench.assert_quiet(&bench.desired(&[]));
}

#[test]
fn a_conffile_as_its_package_shipped_it_is_claimed() {
    let bench = Bench::new().restoring();
    make_directory(&bench.at("/var/lib/dpkg"));
    let status = "Package: web\nConffiles:\n /etc/a b1946ac92492d2347c6235b4d2611184\n";
    bench.put("/var/lib/dpkg/status", status);
    bench.put("/etc/a", "hello\n");
    let desired = bench.desired(&[Declared::File("/etc/a", "ours\n")]);
    bench.converge(&desired);
    assert_eq!(bench.read("/etc/a"), "ours\n");
    bench.converge(&bench.desired(&[]));
    assert_eq!(bench.read("/etc/a"), "hello\n");
    bench.put("/etc/a", "edited\n");
    assert!(!bench.pass(&desired).plan().findings.is_empty(), "an edited conffile is somebody's");
    assert_eq!(bench.read("/etc/a"), "edited\n");
}

#[test]
fn originals_can_be_read_by_root_only_and_go_when_nobody_needs_them() {
    use std::os::unix::fs::MetadataExt as _;
    let bench = Bench::new();
    bench.put("/etc/a", "original\n");
    bench.converge(&bench.desired(&[Declared::Adopted("/etc/a", "ours\n")]));
    let blobs = bench.state().join("sets/web/blobs");
    assert_eq!(names(&blobs).len(), 2, "the original, and what was good last");
    for path in [&blobs, &blobs.join(&names(&blobs)[0]), &bench.state().join("key")] {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o077, 0, "{}", path.display());
    }
    bench.converge(&bench.desired(&[]));
    bench.converge(&bench.desired(&[Declared::File("/etc/b", "b\n")]));
    bench.converge(&bench.desired(&[Declared::File("/etc/b", "c\n")]));
    assert_eq!(names(&blobs).len(), 1, "what was good last");
}
