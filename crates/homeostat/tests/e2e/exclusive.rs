//! Exclusive directories, from the document to the disk.

use std::fs;
use std::path::PathBuf;

use crate::keeping::until;
use crate::world::World;

/// The check sees the directory as it will be.
const EXCLUSIVE: &str = r#"
[files.web]
check = ["/bin/sh", "-c", "test ! -e @/conf.d/theirs"]
[files.web.directories."@/conf.d"]
exclusive = true
except = ["*.key"]
[files.web.write]
"@/conf.d/ours" = { text = "ours\n" }
"#;

const SHARED: &str = "[files.web.write]\n\"@/conf.d/ours\" = { text = \"ours\\n\" }\n";

struct Place(World);

impl Place {
    /// A directory with a file of somebody else.
    fn new() -> Self {
        let place = Place(World::new());
        fs::create_dir_all(place.at("")).unwrap();
        place.put("theirs", "CANARY of others\n");
        place.put("root.key", "made by the program itself\n");
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join("etc/conf.d").join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    fn document(&self, text: &str) -> String {
        text.replace('@', &self.0.path().join("etc").display().to_string())
    }

    fn declare(&self, text: &str) {
        self.0.write("host.toml", self.document(text));
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.at("")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[track_caller]
    fn shows(&self, args: &str, code: i32, words: &[&str]) {
        let ran = self.0.run(args).exits(code);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        for word in words {
            assert!(text.contains(word), "{args}: {word} is not in\n{text}");
        }
        assert!(!text.contains("CANARY"), "nothing of others' files is shown:\n{text}");
    }
}

#[test]
fn an_exclusive_directory_is_planned_applied_verified_and_given_back() {
    let place = Place::new();
    place.declare(EXCLUSIVE);
    place.shows("check host.toml", 0, &[]);
    let moved = ["conf.d/theirs", "its directory is exclusive: moved away, and kept"];
    place.shows("plan host.toml", 0, &moved);
    assert_eq!(place.names(), ["root.key", "theirs"], "a plan writes nothing");
    place.shows("apply --yes host.toml", 0, &moved);
    assert_eq!(place.names(), ["ours", "root.key"]);
    place.shows("verify host.toml", 0, &[]);
    place.put("theirs", "CANARY again\n");
    place.shows("verify host.toml", 2, &moved);
    place.shows("apply --yes --json host.toml", 0, &[]);
    place.declare(SHARED);
    place.shows("apply --yes host.toml", 0, &["conf.d/theirs", "original restored"]);
    assert_eq!(place.names(), ["ours", "root.key", "theirs"]);
    assert_eq!(fs::read_to_string(place.at("theirs")).unwrap(), "CANARY again\n");
    place.shows("verify host.toml", 0, &[]);
}

#[test]
fn a_trial_that_nobody_confirms_brings_the_files_of_others_back() {
    let place = Place::new();
    place.declare(SHARED);
    place.shows("apply --yes host.toml", 0, &[]);
    place.declare(EXCLUSIVE);
    place.0.run("apply --yes --confirm-within 1s host.toml").exits(1);
    until("the rollback", || place.names() == ["ours", "root.key", "theirs"]);
    assert_eq!(fs::read_to_string(place.at("theirs")).unwrap(), "CANARY of others\n");
}

#[test]
fn a_daemon_moves_new_files_away_at_once() {
    let place = Place::new();
    let settings = "[settings.files]\nresync = \"1h\"\n";
    let _daemon = place.0.keep(&format!("{settings}{}", place.document(EXCLUSIVE)));
    place.0.converges();
    assert_eq!(place.names(), ["ours", "root.key"]);
    for nth in 0..5 {
        let name = format!("new{nth}");
        place.put(&name, "new\n");
        until("the end of it", || !place.at(&name).exists());
    }
    // What the program makes itself, and what an editor leaves for a while, stays.
    place.put(".ours.swp", "editing\n");
    place.put("other.key", "key\n");
    place.put("last", "last\n");
    // It is put aside for a moment before it goes.
    let others = [".ours.swp", "other.key", "ours", "root.key"];
    until("the end of it", || place.names() == others);
}

#[test]
fn a_set_writes_nothing_into_the_exclusive_directory_of_another() {
    let place = Place::new();
    let other = "[files.other.write]\n\"@/conf.d/other\" = { text = \"x\" }\n";
    place.declare(&format!("{EXCLUSIVE}{other}"));
    let words = ["is exclusive to the set `web`", "name it in `except`"];
    place.shows("check host.toml", 1, &words);
    let excepted = EXCLUSIVE.replace("\"*.key\"", "\"*.key\", \"other\"");
    place.declare(&format!("{excepted}{other}"));
    place.shows("check host.toml", 0, &[]);
    place.declare(&EXCLUSIVE.replace("exclusive = true\n", ""));
    place.shows("check host.toml", 1, &["`except` is for a directory that is `exclusive`"]);
    place.declare(&EXCLUSIVE.replace("*.key", "keys/a"));
    place.shows("check host.toml", 1, &["names of files in the directory, not paths"]);
}
