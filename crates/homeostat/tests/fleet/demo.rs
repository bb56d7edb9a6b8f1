//! `homeostat fleet demo`: it ends by itself, everything goes as it should, and nothing of the host is touched.

use homeostat_testkit::namespace::Namespace;

use crate::world::{World, command_in};

#[test]
fn the_demo_rolls_a_good_document_out_and_a_bad_one_back_and_ends_within_a_minute() {
    let namespace = Namespace::enter().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let before = namespace.ip_json(&["link"]).unwrap();
    let ran = World::finish(command_in(directory.path(), "fleet demo")).exits(0);
    let (_, took) = ran.stdout.split_once("# The end, after ").unwrap();
    let seconds: u64 = took.split(' ').next().unwrap().parse().unwrap();
    assert!(seconds < 60, "{seconds}");
    let said = |text: &str| assert!(ran.stdout.contains(text), "{text:?} is not in {}", ran.stdout);
    said("10 nodes: 1 to create, 1 to update, 0 to delete");
    said("good  generation 1  done: 10 of 10 nodes good");
    said("bad  generation 2  stopped: 1 of 10 nodes touched\n      because 1 failed: r1");
    said("r1   good  fallback of generation 2");
    said("r2   good  document of generation 1");
    let judged = "In the kernel: 10 of 10 nodes have the time to live 61 of the good document";
    assert_eq!(ran.stdout.matches(judged).count(), 2, "{}", ran.stdout);
    assert_eq!(namespace.ip_json(&["link"]).unwrap(), before);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn without_etcd_the_demo_says_how_to_install_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = command_in(directory.path(), "fleet demo");
    command.env("PATH", directory.path());
    let ran = World::finish(command).exits(1);
    assert!(
        ran.stderr.contains("the demo needs etcd and ssh-keygen, not installed here")
            && ran.stderr.contains("apt install etcd-server openssh-client"),
        "{}",
        ran.stderr
    );
}
