//! What the docs, the alerts and the dashboard call metrics is what they are called.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use homeostat_engine::{Condition, Verdict};

use super::*;

const PREFIX: &str = "homeostat_";

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// The names that a text has, without what histograms append. Those of sources are tested where they are counted.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_part(letter)).filter(|word| word.starts_with(PREFIX));
    words.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

fn of_sources(name: &str) -> bool {
    name.starts_with("homeostat_files_")
}

/// Every name that this module gives.
fn existing() -> BTreeSet<String> {
    let meters = Meters::default();
    let now = Stamp::now();
    for kind in [
        EventKind::Started { reasons: Reason::Hint.into(), keys: None, waited: Duration::ZERO },
        EventKind::StepApplied {
            action: homeostat_engine::Action::Create,
            key: String::new(),
            cause: Cause::Drift,
            by: None,
        },
        EventKind::Completed {
            summary: homeostat_engine::Summary::default(),
            converged: true,
            took: Duration::ZERO,
        },
        EventKind::Reloaded,
    ] {
        let event = Event::new(homeostat_engine::PassId(1), "rtnl", "host".into(), kind);
        meters.take(&event, now);
    }
    let mut registry = Registry::with_prefix("homeostat");
    meters.add(&mut registry);
    let labels = Labels { source: "rtnl".to_owned(), scope: "host".to_owned() };
    add_loop_metrics(&mut registry, &[(labels, Status::default())]);
    add_provider(&mut registry, &ProviderHealth::new("files"));
    add_documents(&mut registry, &LoopsSnapshot::default());
    let checked = LoopsSnapshot::default();
    let condition = Condition::new("ping:127.0.0.1".parse().unwrap());
    checked.memory.of::<HealthBoard>().set("host", &condition, Verdict::undecided());
    add_checks(&mut registry, &checked);
    let (leads, since) = (Roles::default(), Roles::default());
    for family in [&leads, &since] {
        family.get_or_create(&[("source", "guests")]).set(1);
    }
    register_roles(&mut registry, leads, since);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let classic = Exposition::Classic.of(text);
    let types = classic.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

#[test]
fn the_docs_name_every_metric_and_no_other() {
    let page = file("docs/daemon.md");
    let (_, table) = page.split_once("### Metrics\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let documented: String = rows.filter_map(|row| row.split(" | ").next()).collect();
    let documented: BTreeSet<String> =
        named(&documented).into_iter().filter(|name| !of_sources(name)).collect();
    assert_eq!(documented, existing());
}

#[test]
fn alerts_and_dashboard_name_only_metrics_that_are_documented() {
    let documented = named(&file("docs/daemon.md"));
    for path in ["packaging/prometheus/homeostat.rules.yml", "packaging/grafana/homeostat.json"] {
        let used = named(&file(path));
        assert!(used.len() > 8, "{path}: {used:?}");
        let unknown: Vec<&String> = used.difference(&documented).collect();
        assert_eq!(unknown, [""; 0], "{path}");
    }
}

#[test]
fn every_panel_of_the_dashboard_asks_for_something() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&file("packaging/grafana/homeostat.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        let asks = targets.iter().all(|one| !named(one["expr"].as_str().unwrap()).is_empty());
        assert!(asks && !targets.is_empty(), "{}", panel["title"]);
    }
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len());
}
