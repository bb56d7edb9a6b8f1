//! Sets of files, from the document to the disk.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::keeping::until;
use crate::world::World;

impl World {
    /// A world with a directory for files, and a document that writes there.
    fn with_files(document: &str) -> Self {
        let world = World::new();
        fs::create_dir(world.path().join("etc")).unwrap();
        world.declare(document);
        world
    }

    /// Writes the document; `@` stands for the directory of the files.
    fn declare(&self, document: &str) {
        let etc = self.path().join("etc").display().to_string();
        self.write("host.toml", document.replace('@', &etc));
    }

    fn holds(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path().join("etc").join(name)).ok()
    }

    fn shows(&self, args: &str, code: i32, words: &[&str]) {
        let ran = self.run(args).exits(code);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        for word in words {
            assert!(text.contains(word), "{args}: {word} is not in\n{text}");
        }
    }
}

const TWO_SETS: &str = r#"
[files.web.directories."@/web"]
[files.web.write]
"@/web/a.cfg" = { text = "one\ntwo\n", mode = "0640" }
"@/web/key" = { copy = "key.txt", secret = true }
[files.other.write]
"@/other.cfg" = { text = "other\n" }
"#;

#[test]
fn a_set_is_planned_applied_and_verified() {
    let world = World::with_files(TWO_SETS);
    world.write("key.txt", "CANARY\n");
    world.shows("check host.toml", 0, &[]);
    let words = ["files in files/web", "files in files/other", "+one", "its content is secret"];
    world.shows("plan host.toml", 0, &words);
    assert_eq!(world.holds("other.cfg"), None, "a plan writes nothing");
    assert!(!world.state().join("files").exists(), "a plan keeps nothing");
    world.shows("apply --yes host.toml", 0, &["4 created"]);
    assert_eq!(world.holds("web/a.cfg").as_deref(), Some("one\ntwo\n"));
    world.shows("verify host.toml", 0, &[]);
    let kept = "# Sets of files that are kept here, and not shown: other (file ";
    world.shows("show", 0, &[kept, "web/a.cfg"]);
    world.declare(&TWO_SETS.replace("two", "2"));
    fs::write(world.path().join("etc/other.cfg"), "edited\n").unwrap();
    world.shows("plan host.toml", 0, &["-two", "+2", "drifted", "-edited", "+other"]);
    world.shows("apply --yes host.toml", 0, &["2 updated"]);
    assert_eq!(world.holds("other.cfg").as_deref(), Some("other\n"));
}

/// The link is there only, and the reload leaves a trace of what it saw.
#[test]
fn a_set_of_a_namespace_is_checked_and_reloaded_there() {
    let world = World::with_files(
        "[files.web]\nnamespace = \"blue\"\ncheck = [\"/bin/sh\", \"-c\", \"ip link show dev only-there\"]\n\
         reload = [\"/bin/sh\", \"-c\", \"ip -o link show dev only-there > @/reloaded\"]\n\
         [files.web.write]\n\"@/a.cfg\" = { text = \"a\\n\" }\n",
    );
    let world = world.with_own_names();
    world.shows("apply --yes host.toml", 1, &["the namespace `blue` does not exist"]);
    world.ip("netns add blue");
    world.ip("link add only-there type veth peer name other");
    world.shows("apply --yes host.toml", 1, &["its program refuses it", "does not exist"]);
    assert_eq!(world.holds("a.cfg"), None);
    world.ip("link set only-there netns blue");
    world.shows("apply --yes host.toml", 0, &["1 created"]);
    assert_eq!(world.holds("a.cfg").as_deref(), Some("a\n"));
    assert!(world.holds("reloaded").is_some_and(|seen| seen.contains("only-there")));
}

#[test]
fn a_program_that_others_could_replace_is_not_started() {
    let document = "[files.web]\n@check = [\"@/program\"]\n[files.web.write]\n\"@/a.cfg\" = { text = \"a\\n\" }\n";
    for field in ["check", "reload"] {
        let world = World::with_files(&document.replace("@check", field));
        let program = world.write("etc/program", "#!/bin/sh\ntouch $0.ran\n");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o757)).unwrap();
        let words = ["could put another program in its place", "chmod go-w"];
        world.shows("apply --yes host.toml", 1, &words);
        assert_eq!(world.holds("a.cfg"), None, "{field}");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        world.shows("apply --yes host.toml", 0, &["1 created"]);
        assert_eq!(
            world.holds("program.ran").is_some(),
            field == "reload",
            "what a check writes is gone"
        );
    }
}

#[test]
fn a_lost_section_of_files_is_held_and_an_empty_one_is_not() {
    let world = World::with_files(TWO_SETS);
    world.write("key.txt", "x\n");
    world.shows("apply --yes host.toml", 0, &[]);
    world.declare("");
    world.shows("apply --yes host.toml", 1, &["`[files]` is missing", "an empty `[files]`"]);
    assert_eq!(world.holds("other.cfg").as_deref(), Some("other\n"));
    // One set that goes while others stay was removed on purpose.
    world.declare("[files.other.write]\n\"@/other.cfg\" = { text = \"other\\n\" }\n");
    world.shows("apply --yes host.toml", 0, &["3 deleted"]);
    world.declare("[files]\n");
    world.shows("apply --yes host.toml", 0, &["1 deleted"]);
    assert_eq!(fs::read_dir(world.path().join("etc")).unwrap().count(), 0);
}

#[test]
fn a_secret_is_in_no_output() {
    let world = World::with_files(TWO_SETS);
    world.write("key.txt", "CANARY-ONE\n");
    let mut all = String::new();
    let mut run = |args: &str| {
        let ran = world.run(args);
        all.push_str(&ran.stdout);
        all.push_str(&ran.stderr);
    };
    run("plan host.toml");
    run("plan --json host.toml");
    run("apply --yes --json host.toml");
    world.write("key.txt", "CANARY-TWO\n");
    fs::write(world.path().join("etc/web/key"), "CANARY-THREE\n").unwrap();
    for args in ["plan host.toml", "plan --json host.toml", "verify --json host.toml", "show"] {
        run(args);
    }
    run("apply --yes host.toml");
    run("--revert-on-release plan host.toml");
    assert!(all.contains("its content is secret"));
    assert!(!all.contains("CANARY"), "{all}");
}

/// A program that refuses a file may quote it, and one that accepts it, too.
#[test]
fn a_secret_that_a_program_quotes_is_in_no_output() {
    let quoting = "[files.web]\ncheck = [\"/bin/sh\", \"-c\", \"cat @/key >&2; grep -q good @/a\"]\n\
                   [files.web.write]\n\"@/a\" = { text = \"bad\\n\" }\n\
                   \"@/key\" = { copy = \"key.txt\", secret = true }\n";
    let world = World::with_files(quoting);
    world.write("key.txt", "password CANARY-1\n");
    let mut all = String::new();
    let mut run = |args: &str| {
        let ran = world.run(args);
        all.push_str(&ran.stdout);
        all.push_str(&ran.stderr);
    };
    for args in ["plan host.toml", "plan --json host.toml", "apply --yes --json host.toml"] {
        run(args);
    }
    world.declare(&quoting.replace("\"bad", "\"good"));
    for args in ["plan --out saved.plan host.toml", "apply --yes host.toml", "verify host.toml"] {
        run(args);
    }
    all.push_str(&fs::read_to_string(world.path().join("saved.plan")).unwrap());
    for word in ["its program refuses it: ***", "its program says: ***"] {
        assert!(all.contains(word), "{word}: {all}");
    }
    assert!(!all.contains("CANARY"), "{all}");
    assert_eq!(world.holds("a").as_deref(), Some("good\n"));
}

#[test]
fn a_trial_that_nobody_confirms_brings_files_back() {
    let before = "[files.web.write]\n\"@/a\" = { text = \"before\\n\" }\n";
    let world = World::with_files(before);
    world.shows("apply --yes host.toml", 0, &[]);
    fs::write(world.path().join("etc/theirs"), "theirs\n").unwrap();
    let tried = "[files.web.write]\n\"@/a\" = { text = \"tried\\n\" }\n\
                 \"@/new\" = { text = \"new\\n\" }\n\
                 \"@/theirs\" = { text = \"ours\\n\", adopt = true }\n";
    world.declare(tried);
    world.run("apply --yes --confirm-within 1s host.toml").exits(1);
    until("the rollback", || world.holds("a").as_deref() == Some("before\n"));
    until("the end of what is new", || world.holds("new").is_none());
    until("the original", || world.holds("theirs").as_deref() == Some("theirs\n"));
}

#[test]
fn files_of_a_namespace_or_a_sandbox_are_refused() {
    let world = World::with_files(TWO_SETS);
    world.write("key.txt", "x\n");
    world.shows("--sandbox plan host.toml", 1, &["belong to the whole host, not to the sandbox"]);
    world.declare("[namespaces.blue.files.web]\n");
    world.shows("check host.toml", 1, &["files belong to the host, not to a namespace"]);
}

#[test]
fn a_set_that_its_program_refuses_is_not_written() {
    let checked = "[files.web]\ncheck = [\"/bin/sh\", \"-c\", \"grep -q good @/a.cfg || \
                   { echo '@/a.cfg:1: bad' >&2; exit 1; }; echo told; cat @/part\"]\n\
                   [files.web.write]\n\"@/a.cfg\" = { text = \"bad\\n\" }\n\"@/part\" = { text = \"part\\n\" }\n";
    let world = World::with_files(checked);
    let refused = ["its program refuses it", "a.cfg:1: bad; 1: bad", "waits on file"];
    world.shows("plan host.toml", 0, &refused);
    world.shows("apply --yes host.toml", 1, &refused);
    assert_eq!((world.holds("a.cfg"), world.holds("part")), (None, None));
    world.declare(&checked.replace("\"bad\\n", "\"good\\n"));
    world.shows("plan host.toml", 0, &["its program says: told; part"]);
    world.shows("apply --yes host.toml", 0, &["2 created"]);
    world.declare(&checked.replace("/bin/sh", "/usr/sbin/not-installed"));
    world.shows("apply --yes host.toml", 1, &["it could not be checked", "No such file"]);
    assert_eq!(world.holds("a.cfg").as_deref(), Some("good\n"));
}

#[test]
fn a_daemon_heals_an_edit_at_once_and_keeps_sets_apart() {
    let world = World::with_files("");
    let etc = world.path().join("etc").display().to_string();
    let two = format!(
        "[settings.files]\nresync = \"1h\"\n[files.one.write]\n\"{etc}/one\" = {{ text = \"1\\n\" }}\n\
         [files.two.write]\n\"{etc}/two\" = {{ text = \"2\\n\" }}\n"
    );
    let _daemon = world.keep(&two);
    world.converges();
    for _ in 0..5 {
        fs::write(world.path().join("etc/one"), "edited\n").unwrap();
        until("the heal", || world.holds("one").as_deref() == Some("1\n"));
        fs::remove_file(world.path().join("etc/two")).unwrap();
        until("the file", || world.holds("two").as_deref() == Some("2\n"));
    }
    // The file is there before the pass that wrote it has ended.
    let status = world.run("status --wait").exits(0).stdout;
    assert!(status.contains("files/one") && status.contains("files/two"), "{status}");
}
