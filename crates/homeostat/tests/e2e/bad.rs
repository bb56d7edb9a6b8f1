//! Bad and hostile documents: an error with its place, never a panic, nothing changed.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::world::{Ran, World};

#[track_caller]
fn refused(ran: Ran, what: &str) -> Ran {
    let ran = ran.exits(1);
    assert!(ran.stderr.contains("error"), "{what}: {}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{what}: {}", ran.stderr);
    assert!(ran.stderr.contains("nothing was changed"), "{what}: {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{what}");
    ran
}

fn bad_documents() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents/bad");
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_document = |path: &PathBuf| path.extension().is_some_and(|end| end != "txt");
    paths.filter(is_document).collect()
}

#[test]
fn every_bad_document_is_refused_with_a_place() {
    let world = World::new();
    let documents = bad_documents();
    assert!(documents.len() >= 40, "only {} bad documents", documents.len());
    for path in documents {
        let mut command = world.homeostat("check");
        command.arg(&path);
        let ran = refused(world.finish(command), &path.display().to_string());
        let place = format!("--> {}:", path.display());
        assert!(ran.stderr.contains(&place), "{place}: {}", ran.stderr);
    }
    assert!(!world.state().exists());
}

#[test]
fn a_bad_document_is_refused_by_every_command_that_reads_one() {
    let world = World::new();
    world.apply("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let before = world.knobs();
    for path in bad_documents().into_iter().step_by(9) {
        for command in ["plan", "verify", "apply --yes"] {
            let mut command = world.homeostat(command);
            command.arg(&path);
            refused(world.finish(command), &path.display().to_string());
        }
    }
    assert!(world.knobs() == before, "a knob was turned");
}

#[test]
fn knobs_that_no_kernel_can_hold_are_refused_with_their_place() {
    for (line, column) in [
        ("\"net.ipv4.ip_forward\" = \"1\\u0000\"", 25),
        ("\"net.ipv4.ip_forward\" = \"1\\n2\"", 25),
        ("\"net.ipv4.ip_forward\" = 1.5", 25),
        ("\"net.ipv4.ip_forward\" = {}", 25),
        ("\"\" = 1", 1),
        ("\"net..ipv4\" = 1", 1),
        ("\"../net.ipv4.ip_forward\" = 1", 1),
        ("\"/etc/passwd\" = 1", 1),
        ("\"net/ipv4/./ip_forward\" = 1", 1),
        ("\"net.ipv4.ip_forward\\u0000\" = 1", 1),
        ("\"net.ipv4.route.flush\" = 1", 1),
    ] {
        let world = World::with(&format!("[sysctl]\n{line}\n"));
        let ran = refused(world.run("check host.toml"), line);
        let place = format!("--> host.toml:2:{column}");
        assert!(ran.stderr.contains(&place), "{line}: {}", ran.stderr);
    }
}

#[test]
fn files_of_sysfs_that_are_no_settings_are_refused_with_the_way_out() {
    for (line, way_out) in [
        ("\"power/state\" = \"mem\"", "run it from a script"),
        ("\"devices/pci0000:00/remove\" = 1", "run it from a script"),
        ("\"class/net/eth0/mtu\" = 9000", "in `[links]`"),
        ("\"class/net/br0/bridge/stp_state\" = 1", "an option of the link"),
        ("\"class/net/bonding_masters\" = \"+bond0\"", "kind `bond`"),
        ("\"block/sda/queue/scheduler\" = \"\"", "leave the knob out"),
    ] {
        let world = World::with(&format!("[sysfs]\n{line}\n"));
        let ran = refused(world.run("check host.toml"), line);
        assert!(ran.stderr.contains("--> host.toml:2:1"), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(way_out), "{line}: {}", ran.stderr);
    }
}

#[test]
fn modules_and_files_of_the_host_are_refused_in_a_sandbox() {
    for (document, what) in [
        ("modules = [\"dummy\"]\n", "the module `dummy` belongs to the host, not to a sandbox"),
        ("[sysfs]\n\"kernel/mm/ksm/run\" = 1\n", "belongs to the whole host, not to the sandbox"),
    ] {
        let world = World::with(document);
        let ran = refused(world.run("plan host.toml --sandbox"), what);
        assert!(ran.stderr.contains(what), "{}", ran.stderr);
    }
}

/// Files that no editor makes.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let junk = (0..40_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8);
    let deep =
        |open: &str, close: &str| (open.repeat(100_000) + &close.repeat(100_000)).into_bytes();
    vec![
        ("junk.toml", junk.clone().collect()),
        ("junk.yaml", junk.clone().collect()),
        ("junk.json", junk.collect()),
        ("nul.toml", b"[sysctl]\n\0\0\0\n".to_vec()),
        ("nul.yaml", b"sysctl:\n  a: \0\n".to_vec()),
        ("nul.json", b"{\"sysctl\": \0}".to_vec()),
        ("mark.toml", b"\xef\xbb\xbf[sysctl]\n".to_vec()),
        ("wide.toml", b"\xff\xfe[\0s\0".to_vec()),
        ("deep.json", deep("[", "]")),
        ("objects.json", deep("{\"a\":", "}")),
        ("deep.yaml", deep("[", "]")),
        ("blocks.yaml", "- ".repeat(100_000).into_bytes()),
        ("deep.toml", [b"a = ".to_vec(), deep("[", "]")].concat()),
        ("dotted.toml", ["a", &".a".repeat(100_000), " = 1"].concat().into_bytes()),
        ("open.json", b"{".repeat(100_000)),
        ("line.toml", [b"x = \"".to_vec(), vec![b'a'; 10_000_000], b"\"".to_vec()].concat()),
        ("line.yaml", vec![b'a'; 10_000_000]),
        ("empty.json", Vec::new()),
        ("laughs.yaml", laughs()),
        ("number.json", [b"{\"sysctl\": {\"a.b\": ".to_vec(), vec![b'9'; 100_000]].concat()),
    ]
}

/// Aliases of aliases, which would be a billion when followed.
fn laughs() -> Vec<u8> {
    let mut text = "a0: &a0 [lol]\n".to_owned();
    for level in 1..30 {
        let below = format!("*a{},", level - 1).repeat(10);
        writeln!(text, "a{level}: &a{level} [{below}]").unwrap();
    }
    text.into_bytes()
}

#[test]
fn hostile_documents_are_refused() {
    let world = World::new();
    for (name, content) in hostile() {
        world.write(name, content);
        let ran = refused(world.run(&format!("check {name}")), name);
        assert!(ran.stderr.len() < 300_000, "{name}: {} bytes of errors", ran.stderr.len());
    }
}

#[test]
fn an_empty_document_declares_nothing() {
    let world = World::new();
    for name in ["empty.toml", "empty.yaml"] {
        world.write(name, "");
        world.run(&format!("check {name}")).says(0, "");
    }
    world.write("empty.json", "{}");
    world.run("check empty.json").says(0, "");
}

#[test]
fn what_is_no_file_with_a_document_is_refused_by_name() {
    let world = World::new();
    fs::create_dir_all(world.path().join("empty")).unwrap();
    fs::create_dir_all(world.path().join("directory.toml")).unwrap();
    symlink("loop.toml", world.path().join("loop.toml")).unwrap();
    symlink("nowhere", world.path().join("dangling.toml")).unwrap();
    let pipe = world.path().join("pipe.toml");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    world.write("document.txt", "[sysctl]\n");
    let names = [
        "missing.toml",
        "empty",
        "directory.toml",
        "loop.toml",
        "dangling.toml",
        "pipe.toml",
        "document.txt",
        "/dev/zero",
        "/dev/null",
    ];
    for name in names {
        let ran = refused(world.run(&format!("check {name}")), name);
        assert!(ran.stderr.contains(name), "{name}: {}", ran.stderr);
    }
    let ran = refused(world.run(&format!("check {}", names.join(" "))), "all together");
    assert!(ran.stderr.contains(&format!("{} errors", names.len())), "{}", ran.stderr);
}

#[test]
fn an_unreadable_document_is_refused_by_name() {
    let world = World::with("[sysctl]\n");
    fs::set_permissions(world.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(world.path().join("host.toml"), fs::Permissions::from_mode(0o000)).unwrap();
    let program = world.path().join("homeostat");
    crate::program::copy_program(&program);
    let mut command = world.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(program).args(["check", "host.toml"]);
    let ran = refused(world.finish(command), "unreadable");
    assert!(ran.stderr.contains("Permission denied"), "{}", ran.stderr);
}
