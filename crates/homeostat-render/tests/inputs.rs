//! Inputs that are followed: files that are written in many ways, directories, credentials, restarts.
//!
//! The clock of the runtime is paused, and the files get their times from it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use homeostat_render::{
    Credentials, FileReader, Form, InputSpec, InputState, InputTasks, Inputs, Origin, Secrecy,
    Value, Verdict,
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::time::Instant;

/// The time of the files: it stands where the runtime's does.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000) + self.0.elapsed()
    }
}

struct World {
    directory: TempDir,
    clock: Clock,
    tasks: InputTasks,
    inputs: Inputs,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock(Instant::now());
        let credentials = Credentials::in_directory(directory.path().join("credentials"));
        let tasks = InputTasks::new(FileReader::with_clock(move || clock.now()), credentials);
        World { directory, clock, tasks, inputs: Inputs::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn kept(&self) -> PathBuf {
        self.path("kept")
    }

    fn add(&mut self, name: &str, spec: InputSpec) {
        self.inputs.add(name, spec.kept(&self.kept(), "set", name));
        self.tasks.start(name, spec);
    }

    /// Gives a file the time that it is now.
    fn touch(&self, path: &Path) {
        File::options().append(true).open(path).unwrap().set_modified(self.clock.now()).unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        self.touch(&self.path(name));
    }

    /// Accepts all that has come.
    fn accept(&mut self) {
        self.tasks.deliver(&mut self.inputs);
        while let Some(proposal) = self.inputs.propose() {
            let reads: BTreeSet<String> = proposal.values.keys().cloned().collect();
            self.inputs.judge(&proposal, Verdict::Accepted { reads }).unwrap();
        }
    }

    fn value(&self, name: &str) -> Option<Json> {
        let values: BTreeMap<String, Value> = self.inputs.accepted();
        values.get(name).map(|value| serde_json::to_value(value).unwrap())
    }

    /// Takes answers until the input has this value; no other than those in `before` may come on the way.
    async fn wait_for(&mut self, name: &str, expected: &Json, before: &[Json]) {
        loop {
            self.accept();
            match self.value(name) {
                Some(value) if value == *expected => return,
                Some(value) => assert!(before.contains(&value), "{value}"),
                None => {}
            }
            self.tasks.changed().await;
        }
    }

    /// Lets so much time pass, in small steps, with everything that is due in it.
    async fn pass(&mut self, time: Duration) {
        for _ in 0..20 {
            tokio::time::advance(time / 20).await;
            tokio::task::yield_now().await;
            self.accept();
        }
    }

    async fn wait_for_state(&mut self, name: &str, is_reached: impl Fn(&InputState) -> bool) {
        loop {
            self.accept();
            let mut states = self.inputs.states();
            if states.any(|(found, state)| found == name && is_reached(&state)) {
                return;
            }
            drop(states);
            self.tasks.changed().await;
        }
    }
}

fn file(path: &Path, form: Form) -> InputSpec {
    InputSpec::new(Origin::File(path.to_owned())).form(form)
}

#[tokio::test(start_paused = true)]
async fn a_file_is_followed_however_it_is_replaced() {
    let mut world = World::new();
    world.write("list", "a\n");
    world.add("list", file(&world.path("list"), Form::Lines));
    world.wait_for("list", &json!(["a"]), &[]).await;
    // In place, by a rename, and by removing it before.
    world.write("list", "b\n");
    world.wait_for("list", &json!(["b"]), &[json!(["a"])]).await;
    world.write("new", "c\n");
    fs::rename(world.path("new"), world.path("list")).unwrap();
    world.wait_for("list", &json!(["c"]), &[json!(["b"])]).await;
    fs::remove_file(world.path("list")).unwrap();
    world
        .wait_for_state("list", |state| matches!(state, InputState::Accepted { silence: Some(_) }))
        .await;
    assert_eq!(world.value("list"), Some(json!(["c"])), "the last good one stays");
    world.write("list", "d\n");
    world.wait_for("list", &json!(["d"]), &[json!(["c"])]).await;
}

/// As a directory is swapped by one link, of which the file's name says nothing.
#[tokio::test(start_paused = true)]
async fn a_link_that_leads_elsewhere_is_followed() {
    let mut world = World::new();
    for (directory, text) in [("one", "1\n"), ("two", "2\n")] {
        fs::create_dir(world.path(directory)).unwrap();
        world.write(&format!("{directory}/list"), text);
    }
    symlink("one", world.path("current")).unwrap();
    symlink("current/list", world.path("list")).unwrap();
    world.add("direct", file(&world.path("current/list"), Form::Text));
    world.wait_for("direct", &json!("1\n"), &[]).await;
    symlink("two", world.path("next")).unwrap();
    fs::rename(world.path("next"), world.path("current")).unwrap();
    world.wait_for("direct", &json!("2\n"), &[json!("1\n")]).await;
    world.write("two/list", "3\n");
    world.wait_for("direct", &json!("3\n"), &[json!("2\n")]).await;
}

/// The change is two levels above the file, where its own directory hears nothing of it.
#[tokio::test(start_paused = true)]
async fn a_file_is_followed_when_a_whole_tree_is_put_in_the_place_of_another() {
    let mut world = World::new();
    for (tree, text) in [("one", "1\n"), ("two", "2\n")] {
        fs::create_dir_all(world.path(tree).join("lists/sites")).unwrap();
        world.write(&format!("{tree}/lists/list"), text);
        world.write(&format!("{tree}/lists/sites/a"), text);
    }
    fs::rename(world.path("one"), world.path("current")).unwrap();
    world.add("list", file(&world.path("current/lists/list"), Form::Text));
    let sites = Origin::Directory(world.path("current/lists/sites"));
    world.add("sites", InputSpec::new(sites));
    world.wait_for("list", &json!("1\n"), &[]).await;
    world.wait_for("sites", &json!({ "a": "1\n" }), &[]).await;
    fs::rename(world.path("current"), world.path("old")).unwrap();
    fs::rename(world.path("two"), world.path("current")).unwrap();
    world.wait_for("list", &json!("2\n"), &[json!("1\n")]).await;
    world.wait_for("sites", &json!({ "a": "2\n" }), &[json!({ "a": "1\n" })]).await;
}

/// The writer opens the file for each line, and closes it again: only the time says that it is not finished. Every beginning
/// of the text would be a valid value.
#[tokio::test(start_paused = true)]
async fn a_file_that_is_truncated_and_filled_slowly_is_never_read_by_half() {
    let mut world = World::new();
    let lines: Vec<String> = (0..30).map(|number| format!("10.0.0.{number}")).collect();
    world.write("list", "old\n");
    world.add("list", file(&world.path("list"), Form::Lines));
    world.wait_for("list", &json!(["old"]), &[]).await;
    world.write("list", "");
    for line in &lines {
        world.pass(Duration::from_millis(900)).await;
        assert_eq!(world.value("list"), Some(json!(["old"])));
        let mut writer = File::options().append(true).open(world.path("list")).unwrap();
        // In two halves of a line.
        let (first, second) = line.split_at(6);
        writer.write_all(first.as_bytes()).unwrap();
        writer.write_all(format!("{second}\n").as_bytes()).unwrap();
        writer.set_modified(world.clock.now()).unwrap();
    }
    world.wait_for("list", &json!(lines), &[json!(["old"])]).await;
}

/// The writer pauses for as long as it likes while it has the file open.
#[tokio::test(start_paused = true)]
async fn a_file_that_a_process_has_open_for_writing_is_not_read() {
    let mut world = World::new();
    world.write("list", "old\n");
    world.add("list", file(&world.path("list"), Form::Lines));
    world.wait_for("list", &json!(["old"]), &[]).await;
    let mut writer = File::create(world.path("list")).unwrap();
    writer.write_all(b"half\n").unwrap();
    writer.set_modified(world.clock.now()).unwrap();
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(world.value("list"), Some(json!(["old"])));
    writer.write_all(b"whole\n").unwrap();
    writer.set_modified(world.clock.now()).unwrap();
    drop(writer);
    world.wait_for("list", &json!(["half", "whole"]), &[json!(["old"])]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_empty_cut_off_or_broken_is_unknown() {
    let mut world = World::new();
    for (name, text, form) in [
        ("empty", "", Form::Json),
        ("blank", " \n", Form::Text),
        ("cut", "a\nb", Form::Lines),
        ("broken", "{\"a\": [1, 2", Form::Json),
    ] {
        world.write(name, text);
        world.add(name, file(&world.path(name), form));
    }
    world.add("absent", file(&world.path("none/absent"), Form::Text));
    world.add("pipe", file(Path::new("/dev/null"), Form::Text));
    for name in ["empty", "blank", "cut", "broken", "absent", "pipe"] {
        world.wait_for_state(name, |state| {
            matches!(state, InputState::Unknown { why: Some(why) } if !why.contains("being written"))
        })
        .await;
    }
    // Nothing is something only where that is said.
    world.add("none", file(&world.path("empty"), Form::Lines).allow_empty());
    world.wait_for("none", &json!([]), &[]).await;
    // The directory of a file may come later.
    fs::create_dir(world.path("none")).unwrap();
    world.write("none/absent", "x");
    world.wait_for("absent", &json!("x"), &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_directory_is_a_table_of_its_files() {
    let mut world = World::new();
    fs::create_dir_all(world.path("sites/below")).unwrap();
    world.write("sites/b.json", "{\"port\": 2}");
    world.write("sites/.hidden", "x");
    let spec = InputSpec::new(Origin::Directory(world.path("sites"))).form(Form::Json);
    // The directory itself has the time of the machine, which is in the future here.
    world.add("sites", spec);
    let first = json!({ "b.json": { "port": 2 } });
    world.wait_for("sites", &first, &[]).await;
    world.write("sites/a.json", "{\"port\": 1}");
    let second = json!({ "a.json": { "port": 1 }, "b.json": { "port": 2 } });
    world.wait_for("sites", &second, &[first]).await;
    fs::remove_file(world.path("sites/b.json")).unwrap();
    let third = json!({ "a.json": { "port": 1 } });
    world.wait_for("sites", &third, &[second]).await;
    // The whole of it is not known while one of them is broken, or none is there.
    world.write("sites/a.json", "{\"port\"");
    world.wait_for_state("sites", |state| matches!(state, InputState::Accepted { silence: Some(why) } if why.contains("a.json:1:"))).await;
    fs::remove_file(world.path("sites/a.json")).unwrap();
    world.wait_for_state("sites", |state| matches!(state, InputState::Accepted { silence: Some(why) } if why.contains("empty"))).await;
    assert_eq!(world.value("sites"), Some(third));
}

#[tokio::test(start_paused = true)]
async fn a_credential_is_read_and_never_kept() {
    let mut world = World::new();
    fs::create_dir(world.path("credentials")).unwrap();
    world.write("credentials/site.pem", "canary\n");
    let credential =
        |name: &str| InputSpec::new(Origin::Credential(name.to_owned())).secrecy(Secrecy::Secret);
    world.add("cert", credential("site.pem"));
    world.wait_for("cert", &json!("canary\n"), &[]).await;
    assert!(!world.kept().exists());
    world.add("up", credential("../list"));
    world.wait_for_state("up", |state| matches!(state, InputState::Unknown { why: Some(_) })).await;
    // A program that systemd has given none.
    let mut tasks = InputTasks::new(FileReader::once(), Credentials::default());
    tasks.start("cert", credential("site.pem"));
    tasks.changed().await;
}

#[tokio::test(start_paused = true)]
async fn the_accepted_value_outlives_a_restart_in_which_the_source_is_silent() {
    let mut world = World::new();
    world.write("list", "good\n");
    let spec = file(&world.path("list"), Form::Lines);
    world.add("list", spec.clone());
    world.wait_for("list", &json!(["good"]), &[]).await;
    fs::remove_file(world.path("list")).unwrap();
    // Another process, so to speak.
    world.inputs = Inputs::default();
    world.tasks = InputTasks::new(FileReader::once(), Credentials::default());
    world.add("list", spec.clone());
    assert_eq!(world.value("list"), Some(json!(["good"])));
    world
        .wait_for_state("list", |state| matches!(state, InputState::Accepted { silence: Some(_) }))
        .await;
    // What was not accepted is not kept, and another origin has no value.
    world.inputs = Inputs::default();
    world.inputs.add("list", spec.kept(&world.kept(), "set", "list"));
    world.inputs.answer("list", Ok(Value::from("pending")));
    world.inputs = Inputs::default();
    world.inputs.add("list", spec.kept(&world.kept(), "set", "list"));
    assert_eq!(world.value("list"), Some(json!(["good"])));
    let other = file(&world.path("other"), Form::Lines);
    world.inputs.add("list", other.kept(&world.kept(), "set", "list"));
    assert_eq!(world.value("list"), None);
}
