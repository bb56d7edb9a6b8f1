//! Trials on machines whose clock of the day is set while they are open, or between two starts: they end by the clock that
//! counts from the boot, and their records by their numbers. The clock that is set is that of `libfaketime`, which tells one
//! program another time of day than the kernel has.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::daemon::Daemon;
use crate::keeping::until;
use crate::program::output;
use crate::world::World;

const KEY: &str = "net/ipv4/tcp_retries1";

fn document(value: u8) -> String {
    format!("[sysctl]\n\"net.ipv4.tcp_retries1\" = {value}\n")
}

/// The library of the package `faketime`, which is in a directory of the processor.
fn library() -> PathBuf {
    let directories = fs::read_dir("/usr/lib").unwrap().flatten();
    let mut found = directories.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    let found = found.find(|path| path.exists());
    found.unwrap_or_else(|| panic!("`cargo xtask setup` installs faketime"))
}

impl World {
    /// Sets the clock of the programs that go by it: `-1d` is a day back.
    fn set_clock(&self, offset: &str) {
        self.write("clock.new", offset);
        fs::rename(self.path().join("clock.new"), self.path().join("clock")).unwrap();
    }

    fn by_the_clock(&self, args: &str) -> Command {
        let mut command = self.homeostat(args);
        command.env("LD_PRELOAD", library());
        command.env("FAKETIME_TIMESTAMP_FILE", self.path().join("clock"));
        command.env("FAKETIME_NO_CACHE", "1");
        // The kernel's other clocks cannot be set, and the times of files are its own.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        command
    }

    fn keep_by_the_clock(&self, value: u8) -> Daemon {
        self.write("host.toml", document(value));
        self.keep_by(self.by_the_clock("run host.toml"))
    }

    /// Begins a trial, and leaves it to the daemon.
    fn try_value(&self, value: u8, within: &str) {
        self.write("new.toml", document(value));
        let apply = format!("apply --yes --confirm-within {within} new.toml");
        let mut client = self.by_the_clock(&apply);
        let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the trial", || {
            self.knob(KEY) == value.to_string() && !self.stands()["trial"].is_null()
        });
        client.kill().unwrap();
        client.wait().unwrap();
    }

    /// The last trial that was rolled back: why, when it began, and when it ended.
    fn last_end(&self) -> [String; 3] {
        let ended = self.rolled_back().pop().unwrap();
        ["why", "began_at", "ended_at"].map(|name| ended[name].as_str().unwrap().to_owned())
    }

    /// The machine is booted, as far as programs can see it.
    fn boots(&self) {
        self.meddle(KEY, "3");
        let boot = self.write("boot_id", "11111111-2222-3333-4444-555555555555\n");
        let mut mount = self.command("mount");
        mount.arg("--bind").arg(boot).arg("/proc/sys/kernel/random/boot_id");
        output(mount);
    }
}

#[test]
fn a_clock_that_is_set_in_a_trial_changes_nothing_of_its_time() {
    for (offset, is_back) in [("-1d", true), ("+400d", false)] {
        let world = World::new();
        world.set_clock("+0");
        let daemon = world.keep_by_the_clock(5);
        world.converges();
        world.confirms(1);
        world.try_value(6, "1h");
        world.set_clock(offset);
        let left = world.stands()["trial"]["left_ms"].as_u64().unwrap();
        assert!((3_000_000..=3_600_000).contains(&left), "{offset}: {left}");
        world.run("confirm --extend 1s").exits(0);
        until("the end", || world.rolled_back().len() == 1);
        assert_eq!(world.knob(KEY), "5");
        let [why, began, ended] = world.last_end();
        assert_eq!(why, "nobody confirmed it in time");
        assert_eq!(ended < began, is_back, "the clock was not set: {began}, {ended}");
        // What is confirmed after that is the newest, whatever its time is.
        world.try_value(7, "1h");
        world.in_another_session("confirm").exits(0);
        let numbers: Vec<_> = world.history().iter().map(|entry| entry["number"].clone()).collect();
        assert_eq!(numbers, [1, 2]);
        drop(daemon);
        let _daemon = world.keep_by(world.by_the_clock("run host.toml"));
        world.converges();
        assert_eq!((world.knob(KEY).as_str(), &world.stands()["handed_number"]), ("7", &2.into()));
    }
}

/// A machine without a battery begins in the past.
#[test]
fn after_a_boot_with_a_clock_that_is_behind_the_confirmed_document_is_in_force() {
    let world = World::new().with_own_names();
    world.set_clock("+400d");
    let daemon = world.keep_by_the_clock(5);
    world.converges();
    world.confirms(1);
    world.try_value(6, "1h");
    daemon.kill();
    world.boots();
    world.set_clock("-400d");
    let daemon = world.keep_by_the_clock(6);
    until("the document before", || world.knob(KEY) == "5");
    until("the end", || world.rolled_back().len() == 1);
    let [why, began, ended] = world.last_end();
    assert_eq!(why, "the machine was booted");
    assert!(ended < began, "the clock was not set: {began}, {ended}");
    let status = world.stands();
    assert_eq!((&status["fallback"], &status["trial"]), (&1.into(), &serde_json::Value::Null));
    // Trials are possible as ever, and the newest document is the one that was confirmed last.
    world.write("host.toml", document(7));
    until("a new document", || world.knob(KEY) == "7");
    world.confirms(2);
    world.try_value(8, "1s");
    until("the end of the next trial", || world.rolled_back().len() == 2);
    assert_eq!(world.knob(KEY), "7");
    drop(daemon);
    world.write("host.toml", "[sysctl\n");
    let _daemon = world.keep_by(world.by_the_clock("run host.toml"));
    until("the newest confirmed one", || world.stands()["fallback"].is_u64());
    assert_eq!(world.knob(KEY), "7");
}

#[test]
fn a_trial_without_a_daemon_ends_in_its_time_whatever_the_clock_says() {
    let world = World::new();
    world.set_clock("+0");
    world.write("host.toml", document(5));
    world.finish(world.by_the_clock("apply --yes host.toml")).exits(0);
    world.write("new.toml", document(6));
    let mut client = world.by_the_clock("apply --yes --confirm-within 1h new.toml");
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the trial", || !world.status_if_any()["trial"].is_null());
    world.set_clock("-1d");
    world.run("confirm --extend 1s").exits(0);
    assert_eq!(client.wait().unwrap().code(), Some(1));
    assert_eq!(world.knob(KEY), "5");
    let [why, began, ended] = world.last_end();
    assert_eq!(why, "nobody confirmed it in time");
    assert!(ended < began, "the clock was not set: {began}, {ended}");
}
