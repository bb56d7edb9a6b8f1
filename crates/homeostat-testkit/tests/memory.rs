//! The target in memory misbehaves as it was set up, and a pass says so.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Error, Explain as _, Finding, Focus, Hint, Kind, LedgerKey, LedgerPage,
    MemoryLedger, Observer, OnRelease, Ownership, PassInput, Report, Source as _, Table, pass,
};
use homeostat_testkit::memory::{HintFault, Independent, Mark, Memory, Ordered, Target};

struct Scene {
    source: Memory<Independent>,
    observer: Observer<Memory<Independent>>,
    ledger_page: LedgerPage<Memory<Independent>>,
    ownership: Ownership,
    config: Config<String>,
}

impl Scene {
    fn open(source: Memory<Independent>, ownership: Ownership) -> Self {
        let place = LedgerKey::new("me", "memory", "test").with_identity("now");
        let observer = Observer::open(&source, "test").unwrap();
        let ledger_page = LedgerPage::open(Arc::new(MemoryLedger::default()), place).unwrap();
        Scene { source, observer, ledger_page, ownership, config: Config::default() }
    }

    async fn pass(
        &mut self,
        desired: &[(&str, &str)],
    ) -> Result<Report<Memory<Independent>>, Error> {
        let Scene { source, observer, ledger_page, ownership, config } = self;
        let pairs = desired.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let desired = Arc::new(Table::new(pairs).unwrap());
        let order = PassInput { source, desired, ownership, focus: Focus::All, config };
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        pass(&order, observer, &writer, ledger_page).await
    }
}

fn marked(target: &Target) -> Scene {
    Scene::open(Memory::marked(target.clone()), Ownership::Marked)
}

fn entries(report: &Report<Memory<Independent>>, kind: Kind) -> Vec<Entry> {
    let mut entries = Vec::new();
    report.explain(kind, &mut |entry| entries.push(entry));
    entries
}

#[tokio::test]
async fn a_look_that_is_cut_short_leads_to_no_write() {
    let target = Target::default();
    let mut scene = marked(&target);
    scene.pass(&[("a", "1"), ("b", "2")]).await.unwrap();
    target.faults(|faults| faults.torn_after = Some(1));
    let writes = target.writes();
    assert!(matches!(scene.pass(&[]).await, Err(Error::Observe { .. })));
    assert_eq!(target.writes(), writes);
}

#[tokio::test]
async fn a_key_that_is_there_twice_is_a_conflict_and_untouched() {
    let target = Target::default();
    target.add("a", "1", Mark::Ours);
    target.add("a", "2", Mark::Foreign);
    let report = marked(&target).pass(&[("a", "3")]).await.unwrap();
    assert!(
        matches!(&entries(&report, Kind::Conflict)[..], [Entry::Finding { key, finding: Finding::Conflict { .. } }] if key == "a")
    );
    assert_eq!(target.writes(), 0);
}

#[tokio::test]
async fn a_lost_answer_is_found_by_the_second_look() {
    let target = Target::default();
    target.faults(|faults| _ = faults.answer_lost.insert("a".to_owned()));
    let mut scene = marked(&target);
    for _ in 0..2 {
        let report = scene.pass(&[("a", "1")]).await.unwrap();
        assert!(report.is_converged());
        assert_eq!(target.writes(), 1);
    }
}

#[tokio::test]
async fn the_write_with_the_chosen_number_is_refused() {
    let target = Target::default();
    target.faults(|faults| faults.refuse_write = Some(2));
    let report = marked(&target).pass(&[("a", "1"), ("b", "2"), ("c", "3")]).await.unwrap();
    assert!(
        matches!(&entries(&report, Kind::Failed)[..], [Entry::Finding { key, finding: Finding::Failed { .. } | Finding::NotShown { .. } }] if key == "b")
    );
    assert_eq!(target.objects().len(), 2);
}

#[tokio::test]
async fn without_a_read_back_a_second_look_finds_what_was_not_kept() {
    let target = Target::default();
    target.faults(|faults| {
        faults.no_read_back = true;
        faults.rewrite = Some(str::to_uppercase);
    });
    let report = marked(&target).pass(&[("a", "x"), ("b", "Y")]).await.unwrap();
    assert!(
        matches!(&entries(&report, Kind::Failed)[..], [Entry::Finding { key, finding: Finding::Failed { .. } | Finding::NotShown { .. } }] if key == "a")
    );
}

#[tokio::test]
async fn a_value_that_the_target_rewrites_is_settled_and_not_written_again() {
    let target = Target::default();
    target.faults(|faults| faults.rewrite = Some(str::to_uppercase));
    let mut scene = Scene::open(Memory::unmarked(target.clone()), Ownership::Checkpoint);
    for _ in 0..3 {
        let report = scene.pass(&[("a", "x")]).await.unwrap();
        assert!(report.is_converged());
        assert_eq!(entries(&report, Kind::Settled).len(), 1);
        assert_eq!(target.writes(), 1);
    }
}

#[tokio::test]
async fn a_value_of_nobody_is_claimed_and_goes_back_to_its_original() {
    let target = Target::default();
    target.add("a", "0", Mark::Foreign);
    target.add("b", "1", Mark::Foreign);
    let mut scene = Scene::open(Memory::values(target.clone()), Ownership::Checkpoint);
    scene.config.on_release = OnRelease::Restore;
    assert!(scene.pass(&[("a", "1"), ("b", "1")]).await.unwrap().is_converged());
    assert_eq!(scene.ledger_page.holdings().records.len(), 2, "an equal value is claimed too");
    scene.pass(&[]).await.unwrap();
    assert_eq!(target.snapshot()["a"], "0 (Foreign)");
    assert!(scene.ledger_page.holdings().records.is_empty());
}

#[tokio::test]
async fn hints_are_lost_doubled_or_wrong_as_configured() {
    for (fault, expected) in [
        (HintFault::None, vec!["a", "end"]),
        (HintFault::Lost, vec!["end"]),
        (HintFault::Twice, vec!["a", "a", "end"]),
        (HintFault::Wrong, vec!["no-such-key", "end"]),
    ] {
        let target = Target::default();
        let mut observer = Observer::open(&Memory::<Ordered>::marked(target.clone()), "").unwrap();
        target.faults(|faults| faults.hints = fault);
        target.add("a", "1", Mark::Foreign);
        target.faults(|faults| faults.hints = HintFault::None);
        target.add("end", "1", Mark::Foreign);
        for key in expected {
            assert_eq!(observer.hint().await.unwrap(), Hint::keys([key.to_owned()]), "{fault:?}");
        }
    }
}
