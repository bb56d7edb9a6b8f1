//! Metrics, in the text that Prometheus reads.
//!
//! What a loop counts is read from it for each request. What takes time is gathered from events.

mod exposition;
mod loop_metrics;
#[cfg(test)]
mod names_tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use homeostat_engine::health::State;
use homeostat_engine::journal::Millis;
use homeostat_engine::pacing::Reason;
use homeostat_engine::{Cause, Event, EventKind, HealthBoard, LedgerKey, Status};
use homeostat_registry::{Registration, Sample, SampleKind, Turn};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

pub(super) use self::exposition::Exposition;
use self::loop_metrics::{LOOP_METRICS, LoopMetric, MetricKind};
use super::clock::Stamp;
use super::loops_snapshot::LoopsSnapshot;
use super::provider_health::ProviderHealth;
use crate::registry::SOURCES;

/// From a tenth of a millisecond to a pass at its deadline.
pub(super) const BUCKETS: [f64; 18] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

/// What may happen to what a loop keeps, as metrics call it.
const PHASES: [&str; 5] = ["rendered", "validated", "deployed", "reloaded", "rolled-back"];

/// Which loop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct Labels {
    source: String,
    scope: String,
}

/// Which loop, and what happened to what it keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    source: String,
    scope: String,
    phase: String,
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// What is gathered from events.
#[derive(Clone, Debug)]
pub(super) struct Meters {
    heal: Histograms,
    waited: Histograms,
    took: Histograms,
    phases: Family<PhaseLabels, Counter>,
    running: Arc<Mutex<BTreeMap<Labels, Running>>>,
}

/// What is known of the last pass of a loop.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    waited: Duration,
    is_hinted: bool,
    healed: usize,
    success: Option<Stamp>,
}

impl Default for Meters {
    fn default() -> Self {
        let histograms = || Histograms::new_with_constructor(|| Histogram::new(BUCKETS));
        let [heal, waited, took] = [histograms(), histograms(), histograms()];
        Meters { heal, waited, took, phases: Family::default(), running: Arc::default() }
    }
}

impl Meters {
    /// Learns from an event.
    pub(super) fn take(&self, event: &Event, at: Stamp) {
        let labels = Labels { source: event.source.to_owned(), scope: event.scope.to_string() };
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = all.entry(labels.clone()).or_default();
        match &event.kind {
            EventKind::Started { reasons, waited, .. } => {
                self.waited.get_or_create(&labels).observe(waited.as_secs_f64());
                let (waited, is_hinted) = (*waited, reasons.contains(Reason::Hint));
                *running = Running { waited, is_hinted, healed: 0, ..*running };
            }
            EventKind::StepApplied { cause: Cause::Drift, .. } => running.healed += 1,
            EventKind::Completed { took, .. } => {
                running.success = Some(at);
                self.took.get_or_create(&labels).observe(took.as_secs_f64());
                // How long drift lasted, from the hint until the pass that healed it had ended. Drift that only a
                // full pass found is not in it: it is unknown when it began.
                if running.is_hinted && running.healed > 0 {
                    let (heal, lasted) = (self.heal.get_or_create(&labels), running.waited + *took);
                    (0..running.healed).for_each(|_| heal.observe(lasted.as_secs_f64()));
                }
            }
            EventKind::Rendered { .. } => self.count(labels, "rendered"),
            EventKind::Validated => self.count(labels, "validated"),
            EventKind::Deployed { .. } => self.count(labels, "deployed"),
            EventKind::Reloaded => self.count(labels, "reloaded"),
            EventKind::RolledBack { .. } => self.count(labels, "rolled-back"),
            _ => {}
        }
    }

    fn count(&self, labels: Labels, phase: &'static str) {
        let Labels { source, scope } = labels;
        self.phases.get_or_create(&PhaseLabels { source, scope, phase: phase.to_owned() }).inc();
    }

    /// Everything, about these loops and no others.
    pub(super) fn text(
        &self,
        now: &LoopsSnapshot,
        format: Exposition,
    ) -> Result<String, fmt::Error> {
        let statuses = now.loops.iter().map(|one| {
            let LedgerKey { source, scope, .. } = one.ledger_key().clone();
            (Labels { source, scope }, one.status())
        });
        let statuses: Vec<(Labels, Status)> = statuses.collect();
        self.forget_others(&statuses);
        let mut registry = Registry::with_prefix("homeostat");
        self.add(&mut registry);
        add_loop_metrics(&mut registry, &statuses);
        let samples = SOURCES.iter().flat_map(|source| {
            let samples = (source.metrics)(&now.memory).into_iter();
            samples.map(|sample| (source.name(), sample))
        });
        let is_running = |labels: &Labels| statuses.iter().any(|(running, _)| running == labels);
        add_samples(&mut registry, samples, is_running);
        if let Some(provider) = &now.provider {
            add_provider(&mut registry, provider);
        }
        add_documents(&mut registry, now);
        add_roles(&mut registry, now);
        add_checks(&mut registry, now);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(format.of(text))
    }

    /// Scopes come and go, and would pile up.
    fn forget_others(&self, statuses: &[(Labels, Status)]) {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|labels, _| {
            let stays = statuses.iter().any(|(one, _)| one == labels);
            for gone in [&self.heal, &self.waited, &self.took].iter().filter(|_| !stays) {
                gone.remove(labels);
            }
            for phase in PHASES.iter().filter(|_| !stays) {
                let Labels { source, scope } = labels.clone();
                self.phases.remove(&PhaseLabels { source, scope, phase: (*phase).to_owned() });
            }
            stays
        });
    }

    fn add(&self, to: &mut Registry) {
        let success = Family::<Labels, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
        let all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for (labels, running) in &*all {
            if let Some(at) = running.success {
                success.get_or_create(labels).set(at.as_seconds());
            }
        }
        let help = "When the last successful pass ended";
        to.register_with_unit("last_success_timestamp", help, Unit::Seconds, success);
        let help = "How often what a loop keeps was rendered, validated, deployed, reloaded or rolled back";
        to.register("phases", help, self.phases.clone());
        let help = "How long drift lasted, from the hint to the end of the healing pass";
        to.register_with_unit("heal", help, Unit::Seconds, self.heal.clone());
        let help = "Age of the oldest wakeup when its pass began";
        to.register_with_unit("queue_age", help, Unit::Seconds, self.waited.clone());
        let help = "Duration of passes";
        to.register_with_unit("pass_duration", help, Unit::Seconds, self.took.clone());
    }
}

/// Adds how the provider of the document is doing.
fn add_provider(to: &mut Registry, provider: &ProviderHealth) {
    let is_ok: Gauge = Gauge::default();
    is_ok.set(i64::from(provider.failure.is_none()));
    let help = "Whether the provider's last document was accepted";
    to.register("provider_ok", help, is_ok);
    let good = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
    good.set(provider.good_stamp.as_seconds());
    let help = "When the provider's document was last accepted";
    to.register_with_unit("provider_last_good_timestamp", help, Unit::Seconds, good);
}

/// Adds which document is in force, and how trials ended.
fn add_documents(to: &mut Registry, now: &LoopsSnapshot) {
    let fallback: Gauge = Gauge::default();
    fallback.set(i64::from(now.fallback.is_some()));
    let help = "Whether a confirmed document is in force because the provider's could not be taken";
    to.register("fallback_document", help, fallback);
    let tried_before: Gauge = Gauge::default();
    tried_before.set(i64::from(now.tried_before));
    let help = "Whether a document is in force that was rolled back, since none was ever confirmed";
    to.register("rolled_back_document", help, tried_before);
    let open: Gauge = Gauge::default();
    open.set(i64::from(now.trials.open.is_some()));
    to.register("trial_open", "Whether a trial waits for its confirm", open);
    let ended = Family::<[(&str, &str); 1], Counter>::default();
    for (end, count) in now.trials.counts() {
        ended.get_or_create(&[("end", end)]).inc_by(count);
    }
    to.register("trials", "Trials that ended", ended);
}

/// Adds how the checks stand of what is there only while they are good.
fn add_checks(to: &mut Registry, now: &LoopsSnapshot) {
    let verdicts = now.memory.of::<HealthBoard>().verdicts();
    if verdicts.is_empty() {
        return;
    }
    let (good, failures) = (Family::<_, Gauge>::default(), Family::<_, Counter>::default());
    for ((scope, condition), verdict) in verdicts {
        let labels = [("scope", scope), ("check", condition.check.to_string())];
        // Conditions may differ in their numbers alone: the check is good only if all of them say so.
        let is_good = i64::from(verdict.state == State::Good);
        let gauge = good.get_or_create_owned(&labels);
        let is_first = failures.get(&labels).is_none();
        gauge.set(if is_first { is_good } else { gauge.get().min(is_good) });
        failures.get_or_create(&labels).inc_by(verdict.failures);
    }
    to.register("check_good", "Whether what depends on the check may be there", good);
    to.register("check_failures", "How often the check began to fail", failures);
}

/// Whether this machine acts on what machines of a fleet share, and since when it does or does not.
fn add_roles(to: &mut Registry, now: &LoopsSnapshot) {
    let (leads, since) = (Roles::default(), Roles::default());
    let mut is_shared = false;
    for source in SOURCES.iter().map(Registration::name) {
        let (is_leader, Millis(began)) = match now.turns.of(source) {
            Turn::Alone => continue,
            Turn::Leader(leader) => (true, leader.since),
            Turn::Standby(standby) => (false, standby.since),
        };
        is_shared = true;
        leads.get_or_create(&[("source", source)]).set(i64::from(is_leader));
        let seconds = i64::try_from(began / 1000).unwrap_or(i64::MAX);
        since.get_or_create(&[("source", source)]).set(seconds);
    }
    if is_shared {
        register_roles(to, leads, since);
    }
}

type Roles = Family<[(&'static str, &'static str); 1], Gauge>;

fn register_roles(to: &mut Registry, leads: Roles, since: Roles) {
    to.register("leader", "Whether this machine acts on a target that machines share", leads);
    let help = "When this machine began to lead or to stand by, in seconds since 1970";
    to.register("role_since", help, since);
}

/// Adds the counters and gauges of all loops.
fn add_loop_metrics(to: &mut Registry, statuses: &[(Labels, Status)]) {
    for LoopMetric { kind, name, help, label, read } in LOOP_METRICS {
        let samples = statuses.iter().flat_map(|(labels, status)| {
            read(status).into_iter().map(|(value, count)| {
                let of_loop = [("source", &*labels.source), ("scope", &*labels.scope)];
                let own = (!label.is_empty()).then_some((*label, value));
                let labels = of_loop.into_iter().chain(own);
                (labels.map(|(name, value)| (name, value.to_owned())).collect::<Vec<_>>(), count)
            })
        });
        match kind {
            MetricKind::Counter => {
                let family = Family::<_, Counter>::default();
                samples.for_each(|(labels, count)| {
                    family.get_or_create(&labels).inc_by(count);
                });
                to.register(*name, *help, family);
            }
            MetricKind::Gauge => {
                let family = Family::<_, Gauge>::default();
                samples.for_each(|(labels, count)| {
                    family.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
                });
                to.register(*name, *help, family);
            }
        }
    }
}

/// Adds what sources count, in scopes that are running.
fn add_samples(
    to: &mut Registry,
    samples: impl Iterator<Item = (&'static str, Sample)>,
    is_running: impl Fn(&Labels) -> bool,
) {
    let (mut counters, mut gauges) = (BTreeMap::new(), BTreeMap::new());
    for (source, Sample { kind, name, help, scope, value }) in samples {
        let labels = Labels { source: source.to_owned(), scope };
        if !is_running(&labels) {
            continue;
        }
        match kind {
            SampleKind::Counter => {
                let (_, family) =
                    counters.entry(name).or_insert((help, Family::<_, Counter>::default()));
                family.get_or_create(&labels).inc_by(value);
            }
            SampleKind::Gauge => {
                let (_, family) =
                    gauges.entry(name).or_insert((help, Family::<_, Gauge>::default()));
                family.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
            }
        }
    }
    for (name, (help, family)) in counters {
        to.register(name, help, family);
    }
    for (name, (help, family)) in gauges {
        to.register(name, help, family);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homeostat_engine::pacing::Reasons;
    use homeostat_engine::{Action, PassId, Summary};

    fn take(meters: &Meters, what: EventKind) {
        let event = Event::new(PassId(1), "rtnl", "host".into(), what);
        meters.take(&event, Stamp::now());
    }

    fn pass(meters: &Meters, reasons: impl Into<Reasons>, cause: Cause) {
        let (reasons, waited, key) =
            (reasons.into(), Duration::from_millis(2), "route x".to_owned());
        take(meters, EventKind::Started { reasons, keys: Some(1), waited });
        take(meters, EventKind::StepApplied { action: Action::Create, key, cause, by: None });
        let (summary, took) = (Summary::default(), Duration::from_millis(1));
        take(meters, EventKind::Completed { summary, converged: true, took });
    }

    /// What the meters have of how long healing took.
    fn heals(meters: &Meters) -> Vec<String> {
        let (mut registry, mut text) = (Registry::with_prefix("homeostat"), String::new());
        meters.add(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("homeostat_heal_seconds_"));
        lines.filter(|line| !line.contains("_bucket")).map(str::to_owned).collect()
    }

    #[test]
    fn only_drift_that_a_hint_found_has_a_heal_latency() {
        let meters = Meters::default();
        pass(&meters, Reason::Resync, Cause::Drift);
        pass(&meters, Reason::Hint, Cause::Config);
        assert_eq!(heals(&meters), [""; 0]);
        pass(&meters, Reason::Hint, Cause::Drift);
        let expected = [
            r#"homeostat_heal_seconds_sum{source="rtnl",scope="host"} 0.003"#,
            r#"homeostat_heal_seconds_count{source="rtnl",scope="host"} 1"#,
        ];
        assert_eq!(heals(&meters), expected);
    }

    #[test]
    fn metrics_of_loops_that_are_gone_are_dropped() {
        let meters = Meters::default();
        pass(&meters, Reason::Hint, Cause::Drift);
        let text = meters.text(&LoopsSnapshot::default(), Exposition::OpenMetrics).unwrap();
        assert!(!text.contains("rtnl"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn what_a_source_counts_is_shown_for_scopes_that_run() {
        let sample = |kind, name, scope: &str| {
            let (help, scope) = ("Help", scope.to_owned());
            ("files", Sample { kind, name, help, scope, value: 7 })
        };
        let samples = [
            sample(SampleKind::Counter, "files_reloads", "files/a"),
            sample(SampleKind::Counter, "files_reloads", "files/gone"),
            sample(SampleKind::Gauge, "files_old_processes", "files/a"),
        ];
        let mut registry = Registry::with_prefix("homeostat");
        add_samples(&mut registry, samples.into_iter(), |labels| labels.scope == "files/a");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            r#"homeostat_files_reloads_total{source="files",scope="files/a"} 7"#,
            r#"homeostat_files_old_processes{source="files",scope="files/a"} 7"#,
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn every_sort_is_a_sample_with_its_labels() {
        let labels = Labels { source: "rtnl".to_owned(), scope: "a\"b".to_owned() };
        let mut registry = Registry::with_prefix("homeostat");
        add_loop_metrics(&mut registry, &[(labels, Status::default())]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"homeostat_passes_total{source="rtnl",scope="a\"b",focus="full"} 0"#,
            r#"homeostat_drift_total{source="rtnl",scope="a\"b",found_by="resync"} 0"#,
            r#"homeostat_open{source="rtnl",scope="a\"b",why="conflict"} 0"#,
            r#"homeostat_hints_lost_total{source="rtnl",scope="a\"b"} 0"#,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
