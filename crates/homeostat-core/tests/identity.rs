//! A target that distinguishes objects of one key: a record is about one of them only.

use std::collections::BTreeSet;

use homeostat_core::{
    Agreement, Change, Changes, Desired, Diff, Finding, Focus, OnRelease, Original, Owner,
    Ownership, Record, Records, Rights, Seen, Slot, Stage,
};

/// All declared objects are alike; what is seen has a serial number.
struct DesiredState(Vec<String>);

impl Desired for DesiredState {
    type Key = String;
    type Object = u32;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn slot(&self, key: &String, _near: Option<Slot>) -> Option<Slot> {
        self.0.iter().position(|declared| declared == key).map(Slot::at)
    }

    fn key(&self, slot: Slot) -> String {
        self.0[slot.index()].clone()
    }

    fn object(&self, _slot: Slot) -> u32 {
        0
    }

    fn compare(&self, _slot: Slot, _seen: &u32) -> Agreement {
        Agreement::Agrees
    }

    fn identity(&self, seen: &u32) -> Option<String> {
        Some(seen.to_string())
    }
}

fn record(stage: Stage, identity: Option<&str>) -> Records<String, u32> {
    let identity = identity.map(str::to_owned);
    let record = Record { identity, ..Record::new(0, Original::Absent, stage) };
    Records::from([("blue".to_owned(), record)])
}

fn diff(
    desired: &[&str],
    seen: Option<u32>,
    records: &Records<String, u32>,
) -> Changes<String, u32> {
    let (desired, adopt) =
        (DesiredState(desired.iter().map(|key| (*key).to_owned()).collect()), BTreeSet::new());
    let (ownership, on_release) = (&Ownership::Checkpoint, OnRelease::Leave);
    let rights = Rights { ownership, records, adopt: &adopt, on_release };
    let mut diff = Diff::new(&desired, &Focus::All, rights);
    if let Some(object) = seen {
        diff.see(Seen::Present { key: "blue".to_owned(), object, owner: Owner::Unmarked });
    }
    diff.finish()
}

#[test]
fn the_recorded_object_is_ours_and_costs_no_write() {
    let found = diff(&["blue"], Some(7), &record(Stage::Done, Some("7")));
    assert!(found.list.is_empty() && found.confirmed.is_empty() && found.pruned.is_empty());
    assert_eq!(found.owned, 1);
    let found = diff(&[], Some(7), &record(Stage::Done, Some("7")));
    assert!(matches!(found.list.others(), [Change::Delete { .. }]));
}

#[test]
fn another_object_of_the_same_key_is_foreign_and_the_record_is_dropped() {
    let records = record(Stage::Done, Some("7"));
    let found = diff(&["blue"], Some(8), &records);
    assert_eq!(found.findings, [("blue".to_owned(), Finding::Matched { owner: Owner::Unmarked })]);
    assert_eq!((found.owned, found.pruned), (0, vec!["blue".to_owned()]));
    let found = diff(&[], Some(8), &records);
    assert!(found.list.is_empty() && found.findings.is_empty());
    assert_eq!(found.pruned, ["blue"]);
}

#[test]
fn the_record_of_an_object_that_is_gone_is_dropped_before_another_is_made() {
    let found = diff(&["blue"], None, &record(Stage::Done, Some("7")));
    assert!(found.list.creates().len() == 1);
    assert_eq!(found.pruned, ["blue"]);
}

#[test]
fn a_record_learns_which_object_it_is_about() {
    for stage in [Stage::Intent, Stage::Done] {
        let found = diff(&["blue"], Some(7), &record(stage, None));
        assert_eq!(found.confirmed, ["blue"], "{stage:?}");
        assert_eq!(found.identities.get("blue").unwrap(), "7");
    }
}
