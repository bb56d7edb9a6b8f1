//! The streaming diff against a model that is too slow and too plain to be wrong: it gathers
//! everything that was said about one key and then decides, key by key.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Declared, DesiredState, Thing, World, cases, compare, ownership, text};
use homeostat_core::{
    Agreement, Focus, OnRelease, Original, Owner, Ownership, Record, Seen, Stage, Standings,
};
use proptest::prelude::*;
use proptest::sample::select;

type OwnedThing = (Thing, Owner);

/// What the model knows of one key.
#[derive(Default)]
struct Known<'a> {
    declared: Option<&'a Declared>,
    there: Vec<OwnedThing>,
    unknown: Vec<String>,
    record: Option<&'a Record<Thing>>,
}

/// Findings by kind, so that they come out in the order of the report.
#[derive(Default)]
struct Found {
    kinds: [Vec<String>; 9],
    owned: usize,
}

const DECLARED: usize = 0;
const UNDECLARED: usize = 1;
const CLAIM: usize = 2;
const WAS: usize = 3;
const CONFLICT: usize = 4;
const MATCHED: usize = 5;
const SETTLED: usize = 6;
const UNKNOWN: usize = 7;
const PRUNE: usize = 8;

struct Model<'a> {
    world: &'a World,
    found: Found,
    confirmed: Vec<String>,
}

fn model(world: &World) -> Vec<String> {
    let mut model = Model { world, found: Found::default(), confirmed: vec![] };
    for (key, known) in gather(world) {
        model.decide(&key, &known);
    }
    let mut lines: Vec<_> = model.found.kinds.into_iter().flatten().collect();
    lines.extend(model.confirmed);
    if model.found.owned > 0 {
        lines.push(format!("owned {}", model.found.owned));
    }
    lines
}

fn gather(world: &World) -> BTreeMap<String, Known<'_>> {
    let mut keys: BTreeMap<String, Known<'_>> = BTreeMap::new();
    for declared in &world.desired.list {
        keys.entry(declared.key.clone()).or_default().declared = Some(declared);
    }
    for (key, record) in &world.records {
        keys.entry(key.clone()).or_default().record = Some(record);
    }
    for seen in world.seen.iter().cloned() {
        match seen {
            Seen::Present { key, object, owner } => {
                keys.entry(key).or_default().there.push((object, owner));
            }
            Seen::Unknown { key, why } => keys.entry(key).or_default().unknown.push(why),
        }
    }
    keys.retain(|key, _| world.focus.covers(key));
    keys
}

impl Model<'_> {
    fn say(&mut self, kind: usize, line: String) {
        self.found.kinds[kind].push(line);
    }

    fn decide(&mut self, key: &str, known: &Known<'_>) {
        self.found.owned += known.there.iter().filter(|at| self.is_ours(key, known, at)).count();
        if !known.unknown.is_empty() {
            let mut whys = known.unknown.clone();
            whys.sort();
            for why in whys {
                self.say(UNKNOWN, format!("unknown {key} {why}"));
            }
            return;
        }
        match (known.declared, known.there.as_slice()) {
            (Some(_), []) => {
                self.say(DECLARED, format!("create {key}"));
                // What was there before us is gone, too.
                if known.record.is_some_and(|record| record.original != Original::Absent) {
                    self.say(PRUNE, format!("prune {key}"));
                }
            }
            (Some(declared), [one]) => self.decide_declared(declared, known, one),
            (Some(_), _) => self.say(CONFLICT, format!("conflict {key} twin unmarked")),
            (None, []) => self.say(PRUNE, format!("prune {key}")),
            (None, all) => self.decide_undeclared(key, known, all),
        }
    }

    fn is_ours(&self, key: &str, known: &Known<'_>, (object, owner): &OwnedThing) -> bool {
        let intended = known.declared.is_some_and(|declared| {
            known.record.is_some_and(|record| record.wrote == declared.object)
                && compare(&declared.object, object) == Agreement::Agrees
        });
        let recorded = known.record.is_some_and(|record| is_proof(record, object)) || intended;
        match (owner, &self.world.ownership) {
            (Owner::Ours, _) | (Owner::Unmarked, Ownership::Exclusive(_)) => true,
            (Owner::Kernel, _) => false,
            (Owner::Nobody, _) => known.record.is_some(),
            (Owner::Foreign(_), ownership) => matches!(ownership, Ownership::Exclusive(_)),
            (Owner::Unmarked, Ownership::Prefix(_)) => key.starts_with('a'),
            (Owner::Unmarked, _) => recorded,
        }
    }

    fn has_lost_its_mark(&self, key: &str, known: &Known<'_>, at: &OwnedThing) -> bool {
        let is_recorded = known.record.is_some_and(|record| is_proof(record, &at.0));
        !self.is_ours(key, known, at) && matches!(at.1, Owner::Foreign(_)) && is_recorded
    }

    fn decide_declared(&mut self, declared: &Declared, known: &Known<'_>, at: &OwnedThing) {
        let (key, (object, owner)) = (&declared.key, at);
        let lost = self.has_lost_its_mark(key, known, at);
        let ours = self.is_ours(key, known, at);
        let differs = match compare(&declared.object, object) {
            Agreement::Agrees => false,
            Agreement::Differs => true,
            Agreement::Unsure { differs, why } => {
                self.say(UNKNOWN, format!("unknown {key} {why}"));
                if !differs && !lost {
                    return;
                }
                differs
            }
        };
        let takes = declared.adopt || self.world.adopt.contains(key);
        let was = format!("{key} was {}", text(object));
        let update = format!("update {key} from {}", text(object));
        match owner {
            _ if ours && !differs => self.decide_confirmed(declared, known.record),
            _ if ours && known.record.is_some_and(|record| settled(record, declared, object)) => {
                self.say(SETTLED, format!("settled {key} {}", text(object)));
            }
            _ if ours => self.say(DECLARED, update),
            Owner::Nobody => {
                let line =
                    if differs { (DECLARED, update) } else { (CLAIM, format!("claim {key}")) };
                self.say(line.0, line.1);
                self.say(WAS, was);
            }
            _ if takes => {
                self.say(DECLARED, format!("adopt {key} from {} of {owner}", text(object)));
                self.say(WAS, was);
            }
            _ if lost => self.say(CONFLICT, format!("conflict {key} lostmark {owner}")),
            _ if differs => self.say(CONFLICT, format!("conflict {key} foreign {owner}")),
            _ => self.say(MATCHED, format!("matched {key} {owner}")),
        }
    }

    fn decide_confirmed(&mut self, declared: &Declared, record: Option<&Record<Thing>>) {
        let is_stale = record.is_some_and(|record| {
            let plain = record.stage == Stage::Done && record.settled.is_none();
            !plain || record.wrote != declared.object
        });
        if is_stale {
            self.confirmed.push(format!("confirm {}", declared.key));
        }
    }

    fn decide_undeclared(&mut self, key: &str, known: &Known<'_>, all: &[OwnedThing]) {
        let mut lines = Vec::new();
        for at in all {
            let (object, owner) = at;
            if self.has_lost_its_mark(key, known, at) {
                lines.push((CONFLICT, format!("conflict {key} lostmark {owner}")));
            } else if self.is_ours(key, known, at) && *owner == Owner::Nobody {
                lines.push((UNDECLARED, self.release(key, known, object)));
            } else if self.is_ours(key, known, at) {
                lines.push((UNDECLARED, format!("delete {key} {}", text(object))));
            }
        }
        if lines.len() > 1 {
            lines = vec![(CONFLICT, format!("conflict {key} twin unmarked"))];
        }
        for (kind, line) in lines {
            self.say(kind, line);
        }
    }

    fn release(&self, key: &str, known: &Known<'_>, seen: &Thing) -> String {
        let original = known.record.and_then(|record| match record.original {
            Original::Was(was) if record.wrote == *seen || record.settled == Some(*seen) => {
                Some(was)
            }
            _ => None,
        });
        match original {
            Some(was) if self.world.on_release == OnRelease::Restore => {
                format!("release {key} restoring {}", text(&was))
            }
            _ => format!("release {key}"),
        }
    }
}

fn is_proof(record: &Record<Thing>, object: &Thing) -> bool {
    let is_create = record.original == Original::Absent
        && record.stage == Stage::Intent
        && record.settled.is_none();
    !is_create || record.wrote == *object
}

fn settled(record: &Record<Thing>, declared: &Declared, seen: &Thing) -> bool {
    record.stage == Stage::Done && record.wrote == declared.object && record.settled == Some(*seen)
}

// Few keys and few values, so that they meet often. The letter `a` begins the prefix.
fn any_key() -> impl Strategy<Value = String> {
    select(vec!["a1", "a2", "a3", "b1", "b2", "b3"]).prop_map(str::to_owned)
}

fn any_thing() -> impl Strategy<Value = Thing> {
    (0u32..3, proptest::option::of(0u32..2)).prop_map(|(main, extra)| Thing { main, extra })
}

fn any_desired() -> impl Strategy<Value = DesiredState> {
    proptest::collection::btree_map(any_key(), (any_thing(), any::<bool>()), 0..6).prop_map(|all| {
        let declared = |(key, (object, adopt))| Declared { key, object, adopt };
        DesiredState::new(all.into_iter().map(declared).collect())
    })
}

fn any_owner() -> impl Strategy<Value = Owner> {
    let foreign = [Owner::foreign("bird"), Owner::foreign("frr")];
    select(
        [vec![Owner::Ours, Owner::Kernel, Owner::Unmarked, Owner::Nobody], foreign.into()].concat(),
    )
}

fn any_seen() -> impl Strategy<Value = Seen<String, Thing>> {
    prop_oneof![
        8 => (any_key(), any_thing(), any_owner())
            .prop_map(|(key, object, owner)| Seen::Present { key, object, owner }),
        1 => (any_key(), select(vec!["x", "y"]))
            .prop_map(|(key, why)| Seen::Unknown { key, why: why.to_owned() }),
    ]
}

fn any_record() -> impl Strategy<Value = Record<Thing>> {
    let original = proptest::option::of(any_thing())
        .prop_map(|was| was.map_or(Original::Absent, Original::Was));
    let stage = select(vec![Stage::Intent, Stage::Done]);
    (any_thing(), original, proptest::option::of(any_thing()), stage).prop_map(
        |(wrote, original, settled, stage)| Record {
            settled,
            ..Record::new(wrote, original, stage)
        },
    )
}

fn any_focus() -> impl Strategy<Value = Focus<String>> {
    let keys = proptest::collection::btree_set(any_key(), 0..4).prop_map(Focus::Keys);
    prop_oneof![3 => Just(Focus::All), 1 => keys]
}

fn any_world() -> impl Strategy<Value = World> {
    let strategy = select(vec!["marked", "checkpoint", "exclusive", "a*"]).prop_map(ownership);
    let seen = proptest::collection::vec(any_seen(), 0..9);
    let records = proptest::collection::btree_map(any_key(), any_record(), 0..4);
    let adopt = proptest::collection::btree_set(any_key(), 0..2);
    let on_release = select(vec![OnRelease::Leave, OnRelease::Restore]);
    (strategy, any_desired(), seen, records, (adopt, any_focus(), on_release)).prop_map(
        |(ownership, desired, seen, records, (adopt, focus, on_release))| World {
            standings: Standings::new(),
            ownership,
            desired,
            seen,
            records,
            adopt,
            focus,
            on_release,
        },
    )
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn the_diff_finds_what_the_model_finds(world in any_world()) {
        prop_assert_eq!(world.findings(), model(&world));
    }

    #[test]
    fn the_findings_do_not_depend_on_the_order_of_the_list(
        (world, shuffled) in any_world().prop_flat_map(|world| {
            let seen = Just(world.seen.clone()).prop_shuffle();
            (Just(world), seen)
        })
    ) {
        let other = World { seen: shuffled, ..world.clone() };
        prop_assert_eq!(world.findings(), other.findings());
    }

    #[test]
    fn the_hint_of_the_stream_never_changes_an_answer(world in any_world()) {
        let mut plain = world.clone();
        plain.desired.ignores_near = true;
        prop_assert_eq!(world.findings(), plain.findings());
    }

    #[test]
    fn nothing_is_removed_that_is_not_ours_or_was_not_seen(world in any_world()) {
        use homeostat_core::Change;
        let reported: BTreeSet<_> = world.seen.iter().filter_map(|seen| match seen {
            Seen::Present { key, owner, .. } if *owner != Owner::Kernel => Some(key),
            _ => None,
        }).collect();
        for change in world.diff().list {
            if let Change::Delete { key, .. } | Change::Release { key, .. } = change {
                prop_assert!(reported.contains(&key));
            }
        }
    }
}
