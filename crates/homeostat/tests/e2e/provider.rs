//! The provider of the daemon's document in trouble: who learns of it, and what stands meanwhile.

use serde_json::Value;

use crate::http::{listening, read};
use crate::keeping::until;
use crate::world::World;

const GOOD: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";
const OTHER: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 6\n";
const BROKEN: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = {}\n";
const KEY: &str = "net/ipv4/tcp_retries1";

impl World {
    pub(crate) fn provider(&self) -> Value {
        let status: Value = serde_json::from_str(&self.run("status --json").stdout).unwrap();
        status["provider"].clone()
    }

    pub(crate) fn event(&self, name: &str) -> Option<Value> {
        let output = self.run("events --json").exits(0).stdout;
        let mut events = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.rfind(|event| event["event"] == name)
    }
}

/// The value of a metric.
pub(crate) fn metric(name: &str) -> String {
    let (_, text) = read("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn a_broken_document_is_in_status_events_and_metrics_and_the_last_good_one_is_kept() {
    let (world, _daemon) = listening();
    world.converges();
    let provider = world.provider();
    assert_eq!((&provider["ok"], &provider["from"]), (&true.into(), &"host.toml".into()));
    assert!(provider["last_error"].is_null() && provider["last_good_ago_ms"].is_u64());
    assert_eq!(metric("homeostat_provider_ok"), "1");
    let good_at = metric("homeostat_provider_last_good_timestamp_seconds");
    assert!(good_at.parse::<f64>().unwrap() > 1e9, "{good_at}");

    world.write("host.toml", BROKEN);
    until("the trouble", || world.provider()["ok"] == false);
    let provider = world.provider();
    let error = provider["last_error"]["error"].as_str().unwrap();
    assert!(error.contains("host.toml:2:27"), "{error}");
    assert_eq!(metric("homeostat_provider_ok"), "0");
    assert_eq!(metric("homeostat_provider_last_good_timestamp_seconds"), good_at);
    let event = world.event("document-refused").unwrap();
    assert_eq!((&event["level"], &event["from"]), (&"error".into(), &"host.toml".into()));
    assert!(event["error"].as_str().unwrap().contains("host.toml:2:27"), "{event}");
    let drawn = world.run("status").exits(2).stdout;
    assert!(drawn.ends_with("Converged by the last good document.\n"), "{drawn}");
    assert!(drawn.contains("document: cannot be taken from host.toml, last good "), "{drawn}");
    assert!(drawn.contains("\n  error: "), "{drawn}");
    let over_http: Value = serde_json::from_str(&read("/api/v1/status").1).unwrap();
    assert_eq!(over_http["provider"]["ok"], false);
    world.meddle(KEY, "9");
    until("the last good document is kept", || world.knob(KEY) == "5");

    world.write("host.toml", OTHER);
    until("the next good document", || world.knob(KEY) == "6");
    until("the end of the trouble", || world.provider()["ok"] == true);
    assert!(world.provider()["last_error"].is_null());
    assert_eq!(metric("homeostat_provider_ok"), "1");
    assert_ne!(metric("homeostat_provider_last_good_timestamp_seconds"), good_at);
    assert_eq!(world.event("document-accepted").unwrap()["from"], "host.toml");
    assert!(!world.run("status").exits(0).stdout.contains("document: "));
}

#[test]
fn the_trouble_is_over_when_the_document_is_again_as_it_was() {
    let world = World::new();
    let _daemon = world.keep(GOOD);
    world.converges();
    world.write("host.toml", BROKEN);
    until("the trouble", || world.provider()["ok"] == false);
    world.write("host.toml", GOOD);
    until("the end of the trouble", || world.provider()["ok"] == true);
    assert!(world.event("document-accepted").is_some());
}

#[test]
fn a_document_that_cannot_be_bound_is_the_providers_trouble_until_it_is_mended() {
    let world = World::new();
    let _daemon = world.keep(GOOD);
    world.converges();
    world.write("host.toml", format!("[settings]\nowner = \"other\"\nprotocol = 77\n{OTHER}"));
    world.run("reload").exits(1);
    let provider = world.provider();
    let error = provider["last_error"]["error"].as_str().unwrap();
    assert!(error.contains("another owner or protocol"), "{error}");
    assert_eq!(provider["last_error"]["help"], "restart the daemon for it");
    assert_eq!(world.knob(KEY), "5");
    world.write("host.toml", OTHER);
    world.run("reload").exits(0);
    assert_eq!(world.provider()["ok"], true);
    assert_eq!(world.knob(KEY), "6");
}

#[test]
fn files_that_vanish_delete_nothing_and_are_reported() {
    let world = World::new();
    world.write("conf/a.toml", GOOD);
    let _daemon = world.keep_at("conf");
    world.converges();
    std::fs::rename(world.path().join("conf"), world.path().join("away")).unwrap();
    until("the trouble", || world.provider()["ok"] == false);
    world.meddle(KEY, "9");
    until("the last good document is kept", || world.knob(KEY) == "5");
    std::fs::rename(world.path().join("away"), world.path().join("conf")).unwrap();
    until("the end of the trouble", || world.provider()["ok"] == true);
}
