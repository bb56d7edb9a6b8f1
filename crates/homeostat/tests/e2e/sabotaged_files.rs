//! What others do to files that a daemon keeps: each of it is undone at once, by hint, and who did it is named.

use std::fs;
use std::io::Write as _;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::daemon::Daemon;
use crate::keeping::until;
use crate::world::World;

const KEPT: &str = "kept\n";

impl World {
    /// A daemon that keeps `etc/a` and looks at it again only by hint.
    fn keeping_a_file(&self) -> Daemon {
        fs::create_dir_all(self.path().join("etc")).unwrap();
        let daemon = self.keep(&format!(
            "[settings.files]\nresync = \"1h\"\nmin-interval = \"1ms\"\n[files.set.write.\"{}\"]\n\
             text = \"kept\\n\"\nmode = \"0640\"\nowner = \"root\"\n",
            self.a()
        ));
        self.converges();
        daemon
    }

    fn a(&self) -> String {
        self.path().join("etc/a").display().to_string()
    }

    fn is_kept(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let path = self.path().join("etc/a");
        let is_file = |about: &fs::Metadata| about.is_file() && about.mode() & 0o7777 == 0o640;
        fs::symlink_metadata(&path).is_ok_and(|about| is_file(&about) && about.uid() == 0)
            && fs::read_to_string(&path).is_ok_and(|text| text == KEPT)
    }

    /// Somebody who does something each time that he is told, and does not go: `$f` is the file.
    fn saboteur(&self, act: &str) -> Saboteur {
        let script = format!("$f = shift; while (<STDIN>) {{ {act} }}");
        let mut command = self.command("perl");
        command.args(["-e", &script]).arg(self.a()).stdin(Stdio::piped());
        Saboteur(command.spawn().unwrap())
    }
}

struct Saboteur(Child);

impl Saboteur {
    fn act(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Saboteur {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn is_healed(event: &Value) -> bool {
    event["event"] == "step-applied" && event["source"] == "files"
}

#[test]
fn whatever_is_done_to_a_file_is_healed_and_who_did_it_is_named() {
    let world = World::new();
    let _daemon = world.keeping_a_file();
    let mut events = world.follow();
    for act in [
        "open(F, '>', $f); print F 'truncated'; close(F);",
        "open(F, '>>', $f); print F 'appended'; close(F);",
        "open(F, '>', \"$f.new\"); print F 'renamed'; close(F); rename(\"$f.new\", $f);",
        "chmod 0666, $f;",
        "chown 1, 1, $f;",
        "unlink $f;",
        "unlink $f; symlink '/etc/passwd', $f;",
        "rename($f, \"$f.away\");",
    ] {
        let mut saboteur = world.saboteur(act);
        saboteur.act();
        let healed = events.until(is_healed);
        assert_eq!(healed["cause"], "drift", "{act}: {healed}");
        let by = healed["by"].as_str().unwrap_or_else(|| panic!("{act}: {healed}"));
        assert!(by.starts_with("perl -e $f = shift;"), "{act}: {healed}");
        assert!(by.contains(&format!("(pid {}", saboteur.0.id())), "{act}: {healed}");
        until(act, || world.is_kept());
        world.converges();
    }
}

/// A process that lives for two milliseconds may be gone when it is asked about: then it is unknown, and never another one.
#[test]
fn short_lived_programs_are_named_or_unknown() {
    let world = World::new();
    let _daemon = world.keeping_a_file();
    let mut events = world.follow();
    for _ in 0..5 {
        let edited = world.command("sed").args(["-i", "s/kept/edited/", &world.a()]).status();
        assert!(edited.unwrap().success());
        let healed = events.until(is_healed);
        let by = healed["by"].as_str().unwrap_or("sed");
        assert!(by.starts_with("sed"), "{healed}");
        until("the heal", || world.is_kept());
    }
}

#[test]
fn a_package_that_installs_its_conffile_is_undone() {
    let world = World::new();
    for directory in ["deb/DEBIAN", "deb/etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "tmp"] {
        fs::create_dir_all(world.path().join(directory)).unwrap();
    }
    let control = "Package: shipped\nVersion: 1\nArchitecture: all\nMaintainer: none <none@localhost>\n\
                   Description: a conffile\n";
    world.write("deb/DEBIAN/control", control);
    world.write("deb/DEBIAN/conffiles", "/etc/a\n");
    world.write("deb/etc/a", "shipped\n");
    world.write("var/lib/dpkg/status", "");
    let _daemon = world.keeping_a_file();
    let run = |program: &str, arguments: &[&str]| {
        let output = world
            .command(program)
            .args(arguments)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run("dpkg-deb", &["--build", "deb", "shipped.deb"]);
    let mut events = world.follow();
    let root = format!("--root={}", world.path().display());
    run("dpkg", &[&root, "--force-confnew", "-i", "shipped.deb"]);
    let healed = events.until(is_healed);
    let by = healed["by"].as_str().unwrap_or("dpkg");
    assert!(by.contains("dpkg"), "{healed}");
    until("the heal", || world.is_kept());
}

#[test]
fn a_tool_that_fights_for_a_file_is_named() {
    let world = World::new();
    let _daemon = world.keeping_a_file();
    let mut events = world.follow();
    let mut saboteur = world.saboteur("open(F, '>', $f); print F 'mine'; close(F);");
    let is_contention = |event: &Value| event["event"] == "contention";
    // Five times within ten seconds; on a busy machine it may take some more to be so fast.
    let contention = (1..=50)
        .map(|_| {
            saboteur.act();
            events.until(|event| is_healed(event) || is_contention(event))
        })
        .find(is_contention);
    let contention = contention.unwrap();
    assert_eq!(contention["key"], format!("file {}", world.a()));
    assert!(contention["culprit"].as_str().unwrap().starts_with("perl -e"), "{contention}");
}

/// The second text waits for its turn, and nothing but the end of the interval brings it.
#[test]
fn a_reload_that_had_to_wait_is_made_when_it_may() {
    let world = World::new();
    fs::create_dir_all(world.path().join("etc")).unwrap();
    let document = |text: &str| {
        format!(
            "[settings.files]\nresync = \"1h\"\n[files.set]\nmin-interval = \"1s\"\n\
             reload = [\"/bin/sh\", \"-c\", \"cat {a} >> {a}.log\"]\n\
             [files.set.write.\"{a}\"]\ntext = \"{text}\\n\"\n",
            a = world.a()
        )
    };
    let _daemon = world.keep(&document("one"));
    world.converges();
    let log = || fs::read_to_string(world.path().join("etc/a.log")).unwrap_or_default();
    assert_eq!(log(), "one\n");
    world.write("host.toml", document("two"));
    until("the second reload", || log() == "one\ntwo\n");
}
