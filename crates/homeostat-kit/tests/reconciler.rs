//! The one-call interface: what goes in, what comes out, and who waits for what.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use homeostat_engine::{
    Action, Budget, Cause, Edit, EventKind, Failure, Finding, HeldBy, Ledger, LedgerKey,
    MemoryLedger, Owner, Page, Pages, Retry, Seen, Summary, WaitsOn,
};
use homeostat_kit::provider::channel;
use homeostat_kit::simple::{Api, DesiredObjects, Listed, Refusal, Written};
use homeostat_kit::{
    Applied, DeletePolicy, Error, Objects, Reconciler, Strategy, Verdict, reconcile,
};
use tokio::sync::oneshot;

/// Numbers by name. They have no room for a mark.
#[derive(Default)]
struct Numbers {
    held: Mutex<BTreeMap<String, u32>>,
    /// What the next writes are answered with.
    answers: Mutex<Vec<Refusal>>,
    /// How many of the next lists fail.
    blind: Mutex<u32>,
}

impl Numbers {
    fn held(&self) -> BTreeMap<String, u32> {
        self.held.lock().unwrap().clone()
    }

    fn refuse(&self) -> Result<(), Refusal> {
        self.answers.lock().unwrap().pop().map_or(Ok(()), Err)
    }
}

impl Api for Numbers {
    const NAME: &'static str = "numbers";
    type Key = String;
    type Object = u32;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let mut blind = self.blind.lock().unwrap();
        if *blind > 0 {
            *blind -= 1;
            return Err(Failure::new("nobody answers", Retry::Soon));
        }
        let seen =
            |(key, object): (String, u32)| Seen::Present { key, object, owner: Owner::Unmarked };
        Ok(self.held().into_iter().map(seen).collect())
    }

    async fn create(&self, key: &String, wanted: &u32) -> Written<Self> {
        self.refuse()?;
        match self.held.lock().unwrap().entry(key.clone()) {
            Entry::Vacant(free) => Ok(Some(*free.insert(*wanted))),
            Entry::Occupied(_) => Err(Refusal::Conflict(Owner::foreign("somebody"))),
        }
    }

    async fn update(&self, key: &String, before: &u32, wanted: &u32) -> Written<Self> {
        self.refuse()?;
        match self.held.lock().unwrap().get_mut(key) {
            Some(held) if *held == *before => Ok(Some({
                *held = *wanted;
                *wanted
            })),
            Some(_) => Err(Refusal::Moved),
            None => Err(Refusal::Gone),
        }
    }

    async fn delete(&self, key: &String, _: &u32) -> Result<(), Refusal> {
        self.refuse()?;
        self.held.lock().unwrap().remove(key).map(drop).ok_or(Refusal::Gone)
    }
}

fn numbers(pairs: &[(&str, u32)]) -> Objects<Numbers> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
}

fn shared() -> (Arc<Numbers>, Reconciler<Numbers>) {
    let api = Arc::new(Numbers::default());
    (Arc::clone(&api), Reconciler::shared(api, Strategy::Checkpoint))
}

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_value_goes_in_and_a_value_comes_out() {
    let api = Arc::new(Numbers::default());
    api.held.lock().unwrap().insert("theirs".to_owned(), 1);
    let desired = numbers(&[("a", 1), ("b", 2)]);
    let call = async |desired: Objects<Numbers>, applied| {
        reconcile(&api, &Strategy::Checkpoint, &desired, &applied).await.unwrap()
    };
    let (report, applied) = call(desired, Applied::default()).await;
    assert_eq!(report.verdict(), Verdict::Converged);
    let changed: Vec<_> = report.applied.iter().map(|it| (&*it.key, it.action, it.cause)).collect();
    assert_eq!(
        changed,
        [("a", Action::Create, Cause::Config), ("b", Action::Create, Cause::Config)]
    );

    // As text, as a program keeps it; then one object is dropped, and another one drifts.
    let applied: Applied = serde_json::from_str(&serde_json::to_string(&applied).unwrap()).unwrap();
    api.held.lock().unwrap().insert("a".to_owned(), 9);
    let (report, applied) = call(numbers(&[("a", 1)]), applied).await;
    assert_eq!(report.summary(), Summary::from_iter([Action::Update, Action::Delete]));
    assert_eq!(report.applied[0].cause, Cause::Drift);
    assert_eq!(api.held(), numbers(&[("a", 1), ("theirs", 1)]));

    // Who forgets what was applied owns nothing.
    let (report, _) = call(numbers(&[]), Applied::default()).await;
    assert_eq!((report.summary().total(), api.held().len()), (0, 2));
    let (report, _) = call(numbers(&[]), applied).await;
    assert_eq!((report.summary().delete, api.held()), (1, numbers(&[("theirs", 1)])));
}

#[tokio::test]
async fn what_was_recorded_about_a_former_target_is_void() {
    let (api, reconciler) = shared();
    let first = reconciler.identity("disk 1");
    first.reconcile(&numbers(&[("a", 1)])).await.unwrap();
    let second = Reconciler::shared(Arc::clone(&api), Strategy::Checkpoint).identity("disk 2");
    let second = second.since(&first.applied().await.unwrap()).unwrap();
    assert_eq!(second.reconcile(&numbers(&[])).await.unwrap().summary().total(), 0);
    assert_eq!(api.held(), numbers(&[("a", 1)]));
}

/// A ledger that must not be read or written on the thread that made it.
struct Elsewhere {
    ledger: MemoryLedger,
    thread: ThreadId,
}

impl Elsewhere {
    fn ledger(&self) -> &MemoryLedger {
        assert_ne!(
            thread::current().id(),
            self.thread,
            "the ledger is used on the caller's thread"
        );
        &self.ledger
    }
}

impl Pages for Elsewhere {
    fn page(&self, at: &LedgerKey) -> Result<Page, homeostat_engine::Error> {
        self.ledger().page(at)
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, homeostat_engine::Error> {
        self.ledger().places(owner)
    }
}

impl Ledger for Elsewhere {
    fn write(&self, at: &LedgerKey, edits: &[Edit]) -> Result<(), homeostat_engine::Error> {
        self.ledger().write(at, edits)
    }

    fn is_offloaded(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_offloaded_ledger_is_never_used_on_the_thread_of_the_caller() {
    let ledger = Elsewhere { ledger: MemoryLedger::default(), thread: thread::current().id() };
    let (_, reconciler) = shared();
    let reconciler = reconciler.ledger(Arc::new(ledger));
    let desired = numbers(&[("a", 1)]);
    assert_eq!(reconciler.plan(&desired).await.unwrap().summary().create, 1);
    assert!(reconciler.reconcile(&desired).await.unwrap().is_converged());
    assert_ne!(reconciler.applied().await.unwrap(), Applied::default());
    assert!(reconciler.plan(&desired).await.unwrap().is_converged());
}

#[tokio::test]
async fn a_plan_writes_nothing_and_reads_like_one() {
    let (api, reconciler) = shared();
    let plan = reconciler.plan(&numbers(&[("a", 1)])).await.unwrap();
    assert_eq!(plan.to_string(), "+ a\n1 to create, 0 to update, 0 to replace, 0 to delete");
    assert_eq!(serde_json::to_value(&plan).unwrap()["changes"][0]["after"], 1);
    assert!(api.held().is_empty() && !plan.is_converged());
}

#[tokio::test]
async fn a_report_can_be_matched_on_printed_and_serialized() {
    let (api, reconciler) = shared();
    api.held.lock().unwrap().insert("moon".to_owned(), 1);
    let report = reconciler.reconcile(&numbers(&[("desk", 8), ("moon", 9)])).await.unwrap();
    let Verdict::Open(open) = report.verdict() else { panic!("{report}") };
    assert!(matches!(open[..], [(key, Finding::Conflict { .. })] if key == "moon"));
    let text = report.to_string();
    assert!(text.starts_with("+ desk\n! moon: "), "{text}");
    assert!(
        text.ends_with("1 created, 0 updated, 0 replaced, 0 deleted; 1 key is not as declared")
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        (&json["applied"][0]["key"], &json["conflicts"][0]["key"]),
        (&"desk".into(), &"moon".into())
    );
    assert_eq!(json["converged"], false);
}

#[tokio::test]
async fn a_target_that_cannot_be_listed_is_trouble_and_no_key() {
    let (api, reconciler) = shared();
    *api.blind.lock().unwrap() = 1;
    let report = reconciler.reconcile(&numbers(&[("numbers", 1)])).await.unwrap();
    let Verdict::Broken(failure) = report.verdict() else { panic!("{report}") };
    assert!(failure.error.contains("nobody answers"), "{failure}");
    assert!(report.findings.is_empty(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_target_puts_off_is_waited_for() {
    let (api, reconciler) = shared();
    let later = Refusal::NotNow { after: Duration::from_secs(5), on: "a backup".to_owned() };
    *api.answers.lock().unwrap() = vec![later.clone()];
    let report = reconciler.reconcile(&numbers(&[("a", 1)])).await.unwrap();
    let waits = Finding::Pending { on: WaitsOn::Later("a backup".to_owned()) };
    assert_eq!(report.finding(&"a".to_owned()), Some(&waits));
    *api.answers.lock().unwrap() = vec![later];
    let report = reconciler.converge(&numbers(&[("a", 1)]), MINUTE).await.unwrap();
    assert!(report.is_converged(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn what_may_work_in_a_moment_is_tried_until_the_deadline() {
    let (api, reconciler) = shared();
    let failed = Refusal::Failed(Failure::new("not yet", Retry::Soon));
    *api.blind.lock().unwrap() = 2;
    *api.answers.lock().unwrap() = vec![failed.clone(); 3];
    let report = reconciler.converge(&numbers(&[("a", 1)]), MINUTE).await.unwrap();
    assert!(report.is_converged(), "{report}");
    *api.answers.lock().unwrap() = vec![failed; 1000];
    let began = tokio::time::Instant::now();
    let report = reconciler.converge(&numbers(&[("a", 2)]), MINUTE).await.unwrap();
    assert!(matches!(report.finding(&"a".to_owned()), Some(Finding::Failed { .. })), "{report}");
    assert!(began.elapsed() <= MINUTE + Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_time_cannot_cure_is_not_waited_for() {
    let (api, reconciler) = shared();
    api.held.lock().unwrap().insert("moon".to_owned(), 1);
    let began = tokio::time::Instant::now();
    let report = reconciler.converge(&numbers(&[("moon", 9)]), MINUTE).await.unwrap();
    assert!(matches!(report.verdict(), Verdict::Open(_)));
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn what_a_policy_protects_stays_and_is_reported() {
    let (api, reconciler) = shared();
    let keeps = |key: &String| match &**key {
        "data" => DeletePolicy::Protect,
        _ => DeletePolicy::Delete,
    };
    let reconciler = reconciler.on_delete(keeps);
    reconciler.reconcile(&numbers(&[("data", 1), ("web", 2)])).await.unwrap();
    let report = reconciler.reconcile(&numbers(&[])).await.unwrap();
    assert_eq!(api.held(), numbers(&[("data", 1)]));
    assert!(matches!(report.finding(&"data".to_owned()), Some(Finding::Held { .. })), "{report}");
    assert!(reconciler.reconcile(&numbers(&[("data", 1)])).await.unwrap().is_converged());
}

#[tokio::test]
async fn a_state_directory_remembers_and_keeps_a_second_writer_out() {
    let directory = tempfile::tempdir().unwrap();
    let api = Arc::new(Numbers::default());
    let open =
        || Reconciler::shared(Arc::clone(&api), Strategy::Checkpoint).state(directory.path());
    open().reconcile(&numbers(&[("a", 1)])).await.unwrap();
    assert_eq!(open().plan(&numbers(&[])).await.unwrap().summary().delete, 1);

    let (stop, stopped) = oneshot::channel::<()>();
    let (sender, provider) = channel();
    sender.put(numbers(&[("a", 2)]));
    let reconciler = open();
    let mut events = reconciler.events().subscribe();
    let running =
        tokio::spawn(async move { reconciler.run(provider, async { _ = stopped.await }).await });
    while !matches!(events.recv().await.unwrap().kind, EventKind::Completed { converged: true, .. })
    {
    }
    let refused = open().reconcile(&numbers(&[])).await.unwrap_err();
    assert!(matches!(refused, Error::Engine(homeostat_engine::Error::Locked { .. })), "{refused}");
    assert!(
        open().plan(&numbers(&[("a", 2)])).await.unwrap().is_converged(),
        "a plan needs no lock"
    );
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    assert!(open().reconcile(&numbers(&[])).await.unwrap().is_converged());
    assert!(api.held().is_empty());
}

#[tokio::test]
async fn a_running_reconciler_follows_its_provider_and_reports_an_input_that_is_broken() {
    let api = Arc::new(Numbers::default());
    let strategy = Strategy::Prefix(homeostat_engine::Prefixes::default().claim("my-").unwrap());
    let reconciler = Reconciler::shared(Arc::clone(&api), strategy);
    let (sender, provider) = channel();
    let mut events = reconciler.events().subscribe();
    let (stop, stopped) = oneshot::channel::<()>();
    let running =
        tokio::spawn(async move { reconciler.run(provider, async { _ = stopped.await }).await });
    let mut failure = async |sender: &homeostat_kit::provider::Sender<_>, desired| {
        sender.put(desired);
        loop {
            match events.recv().await.unwrap().kind {
                EventKind::Failed { failure } => break failure.error,
                EventKind::Completed { converged: true, .. } => break "converged".to_owned(),
                _ => {}
            }
        }
    };
    assert!(failure(&sender, numbers(&[("yours", 1)])).await.contains("`yours` does not begin"));
    assert!(matches!(sender.verdict(), Some(homeostat_kit::provider::Verdict::Refused { .. })));
    assert!(api.held().is_empty(), "nothing is written before a desired state is known");
    assert_eq!(failure(&sender, numbers(&[("my-a", 1)])).await, "converged");
    assert!(failure(&sender, numbers(&[("yours", 1)])).await.contains("`yours`"));
    assert_eq!(api.held(), numbers(&[("my-a", 1)]), "the last good one stands");
    assert_eq!(failure(&sender, numbers(&[("my-b", 1)])).await, "converged");
    assert_eq!(api.held(), numbers(&[("my-b", 1)]));
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_desired_state_that_is_put_in_again_is_accepted_again() {
    let (_, reconciler) = shared();
    let (sender, provider) = channel();
    let stop = async {
        for _ in 0..2 {
            sender.put(numbers(&[("a", 1)]));
            assert_eq!(sender.verdict(), None);
            while sender.verdict().is_none() {
                tokio::task::yield_now().await;
            }
            assert_eq!(sender.verdict(), Some(homeostat_kit::provider::Verdict::Accepted));
        }
    };
    tokio::time::timeout(MINUTE, reconciler.run(provider, stop)).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_owner_of_the_mark_is_the_owner_of_the_state() {
    let marked = |owner: &str| Strategy::marker(owner).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let api = Arc::new(Numbers::default());
    for owner in ["me", "you"] {
        let one = Reconciler::shared(Arc::clone(&api), marked(owner)).state(directory.path());
        one.reconcile(&numbers(&[])).await.unwrap();
        assert!(directory.path().join(format!("{owner}.numbers.lock")).exists());
    }
}

#[tokio::test]
async fn one_bad_declaration_stops_only_itself() {
    let (api, reconciler) = shared();
    reconciler.reconcile(&numbers(&[("a", 1), ("b", 1), ("c", 1)])).await.unwrap();
    // What is declared of `b` cannot be read, nor that of `d`, which is not there yet; `c` goes.
    let unknown = ["b", "d"].map(|key| (key.to_owned(), "line 3 is no number".to_owned()));
    let desired = DesiredObjects::from(numbers(&[("a", 2)])).with_unknown(unknown);
    let plan = reconciler.plan(&desired).await.unwrap();
    assert_eq!((plan.summary().update, plan.summary().delete, plan.changes.len()), (1, 1, 2));
    let report = reconciler.reconcile(&desired).await.unwrap();
    assert_eq!(api.held(), numbers(&[("a", 2), ("b", 1)]));
    let Verdict::Open(open) = report.verdict() else { unreachable!("{report}") };
    let open: Vec<_> = open.iter().map(|(key, finding)| (key.as_str(), finding.reason())).collect();
    let why = || "what is declared is not known: line 3 is no number".to_owned();
    assert_eq!(open, [("b", why()), ("d", why())]);
    // It is still ours: once it is known that it is not declared, it goes.
    let report = reconciler.reconcile(&numbers(&[("a", 2)])).await.unwrap();
    assert_eq!((report.summary().delete, report.is_converged()), (1, true));
    assert_eq!(api.held(), numbers(&[("a", 2)]));
}

#[tokio::test]
async fn a_running_reconciler_notices_that_a_declaration_became_known() {
    let (api, reconciler) = shared();
    let (sender, provider) = channel::<DesiredObjects<Numbers>>();
    let mut events = reconciler.events().subscribe();
    let broken = [("a".to_owned(), "broken".to_owned())];
    sender.put(DesiredObjects::from(numbers(&[("b", 1)])).with_unknown(broken));
    let shutdown = async {
        let mut is_mended = false;
        loop {
            match events.recv().await.unwrap().kind {
                EventKind::Completed { converged: false, .. } if !is_mended => {
                    is_mended = true;
                    sender.put(DesiredObjects::from(numbers(&[("b", 1)])));
                }
                EventKind::Completed { converged: true, .. } => break,
                _ => {}
            }
        }
    };
    reconciler.run(provider, shutdown).await.unwrap();
    assert_eq!(api.held(), numbers(&[("b", 1)]));
}

#[tokio::test]
async fn a_budget_without_free_deletes_holds_the_last_object() {
    let (api, reconciler) = shared();
    let reconciler = reconciler.delete_budget(Budget::percent(50).with_free(0));
    reconciler.reconcile(&numbers(&[("a", 1)])).await.unwrap();
    let report = reconciler.reconcile(&numbers(&[])).await.unwrap();
    assert!(
        matches!(
            report.finding(&"a".to_owned()),
            Some(Finding::Held { by: HeldBy::DeleteBudget, .. })
        ),
        "{report}"
    );
    assert_eq!(api.held(), numbers(&[("a", 1)]));
    let report = reconciler.allow_mass_delete().reconcile(&numbers(&[])).await.unwrap();
    assert_eq!((report.is_converged(), api.held()), (true, numbers(&[])));
}

#[tokio::test(flavor = "current_thread")]
async fn a_state_directory_that_keeps_us_waiting_holds_up_no_other_task() {
    let directory = tempfile::tempdir().unwrap();
    let reconciler =
        Reconciler::new(Numbers::default(), Strategy::Checkpoint).state(directory.path());
    // The other writer of these files holds the lock of the directory; the other task of this thread releases it.
    let neighbour = std::fs::File::open(directory.path()).unwrap();
    neighbour.lock().unwrap();
    let desired = numbers(&[("a", 1)]);
    let other_task = async {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        neighbour.unlock().unwrap();
    };
    let (report, ()) = tokio::join!(reconciler.reconcile(&desired), other_task);
    assert!(report.unwrap().is_converged());
}

/// How long drift stays that sends no hint.
async fn drift_lasts(reconciler: Reconciler<Numbers>, api: &Numbers) -> Duration {
    let (sender, provider) = channel();
    sender.put(numbers(&[("a", 1)]));
    let mut events = reconciler.events().subscribe();
    let mut drifted = None;
    let mut healed = Duration::MAX;
    let shutdown = async {
        loop {
            let kind = events.recv().await.unwrap().kind;
            if !matches!(kind, EventKind::Completed { converged: true, .. }) {
                continue;
            }
            match drifted {
                None => drifted = Some(tokio::time::Instant::now()),
                Some(since) => break healed = since.elapsed(),
            }
            api.held.lock().unwrap().insert("a".to_owned(), 9);
        }
    };
    reconciler.run(provider, shutdown).await.unwrap();
    assert_eq!(api.held(), numbers(&[("a", 1)]));
    healed
}

#[tokio::test(start_paused = true)]
async fn drift_that_is_not_announced_is_healed_at_the_resync() {
    let (api, reconciler) = shared();
    let usual = drift_lasts(reconciler, &api).await;
    assert!((4500..=5600).contains(&usual.as_millis()), "{usual:?}");
    let (api, reconciler) = shared();
    let rare = drift_lasts(reconciler.resync(60 * MINUTE), &api).await;
    assert!((54 * MINUTE..=67 * MINUTE).contains(&rare), "{rare:?}");
    let (api, reconciler) = shared();
    let hot = drift_lasts(reconciler.resync(Duration::ZERO), &api).await;
    assert!((90..=210).contains(&hot.as_millis()), "{hot:?}");
}

#[tokio::test]
async fn a_report_names_what_its_caller_can_do_about_a_conflict() {
    let (api, reconciler) = shared();
    api.held.lock().unwrap().insert("moon".to_owned(), 1);
    let desired = numbers(&[("moon", 9)]);
    let text = reconciler.reconcile(&desired).await.unwrap().to_string();
    assert!(text.contains("Reconciler::adopting") && !text.contains("adopt = true"), "{text}");
    let plan = reconciler.plan(&desired).await.unwrap().to_string();
    assert!(plan.contains("Reconciler::adopting") && !plan.contains("adopt = true"), "{plan}");
    let report = reconciler.adopting(["moon".to_owned()]).reconcile(&desired).await.unwrap();
    assert_eq!((report.is_converged(), api.held()), (true, desired), "{report}");
}

#[tokio::test]
async fn a_report_names_what_its_caller_can_do_about_held_deletes() {
    let (_, reconciler) = shared();
    let reconciler = reconciler.delete_budget(Budget::percent(50).with_free(0));
    reconciler.reconcile(&numbers(&[("a", 1)])).await.unwrap();
    let text = reconciler.reconcile(&numbers(&[])).await.unwrap().to_string();
    assert!(text.contains("Reconciler::allow_mass_delete"), "{text}");
}
