//! How a program binds queues: a link's `qdisc` and `ingress`.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{Ownership, StepKind, Undo};
use homeostat_registry::{
    BindResult, Binding, Connection, DocumentPlace, Error, MissingSections, Registration, Shown,
};

use crate::key::{Key, LinkName, Side};
use crate::section::{self, LINKS, desired, is_stated, sides};
use crate::show;
use crate::source::Qdiscs;
use crate::step::{FILTERS, UNCOPIED};

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new("a qdisc or a redirection is made, changed or deleted", Undo::FormerDesired),
    StepKind::new("a qdisc or an ingress of another owner is taken over", Undo::Record),
    StepKind::losing(
        "a qdisc of another owner is taken over that has filters, or a kind that cannot be made again",
        Undo::Never,
        UNCOPIED,
    ),
    StepKind::losing("a qdisc goes at which others have put filters", Undo::Never, FILTERS),
];

/// Queues of links, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    steps: STEP_KINDS,
    waiting: |_, section| sides(section).map(|(key, ..)| key.to_string()).collect(),
    written: |section, key| {
        let key: Key = key.parse().ok()?;
        sides(section).find(|(one, ..)| *one == key).map(|(.., span)| span)
    },
    show: |binding, _| show(binding),
    carries: |key, connection| key.parse().is_ok_and(|key| carries(&key, connection)),
    ..Registration::new(section::SECTIONS, bind)
};

/// Whether a connection takes this link.
fn carries(key: &Key, connection: &Connection) -> bool {
    connection.route.as_ref().is_some_and(|way| way.link == key.link.as_str())
}

fn bind(binding: &Binding<'_>) -> BindResult {
    let held = binding.holdings::<Qdiscs>()?;
    if !binding.section.is_some_and(is_stated) && held.is_empty() {
        return Ok(Vec::new());
    }
    let desired = binding.section.map(desired).unwrap_or_default();
    let missing = binding.missing(|place| missing(binding, place));
    // What other owners of this state directory hold: a queue can be kept by one of them only.
    let others = binding.pages.others(&binding.ledger_key())?.into_iter();
    let others = others.filter_map(|(owner, key)| Some((key.parse().ok()?, owner))).collect();
    let source = source(binding).with_others(others);
    Ok(vec![binding.bound(source, desired, Ownership::Checkpoint, missing)])
}

fn source(binding: &Binding<'_>) -> Qdiscs {
    Qdiscs::of(Arc::clone(&binding.scope.netns))
}

/// Which sections are missing: all links, or the table of a link that is still written. To let go what is ours on a link
/// that stays, its table is left empty.
fn missing(binding: &Binding<'_>, place: DocumentPlace) -> MissingSections<Key> {
    let links = binding.section.into_iter().flat_map(section::links);
    let without = |side: Side, is_written: bool, link: Option<&LinkName>| {
        link.filter(|_| !is_written).map(|link| Key::new(link.clone(), side))
    };
    let tables = links.flat_map(|one| {
        let link = one.link.as_ref();
        [
            without(Side::Root, one.qdisc.is_written(), link),
            without(Side::Ingress, one.ingress.is_written(), link),
        ]
    });
    let missing =
        Missing { links: !binding.states(LINKS), tables: tables.flatten().collect(), place };
    MissingSections::new(missing, Missing::why)
}

#[derive(PartialEq)]
struct Missing {
    /// `[links]`.
    links: bool,
    /// The tables that links do not have which are written.
    tables: BTreeSet<Key>,
    place: DocumentPlace,
}

impl Missing {
    /// Why the removal of a key is held.
    fn why(&self, key: &Key) -> Option<String> {
        if self.links {
            return Some(self.place.missing_table(&[LINKS]));
        }
        let table = [LINKS, key.link.as_str(), key.side.word()];
        self.tables.contains(key).then(|| self.place.missing_table(&table))
    }
}

/// Everything that is not the kernel's default.
fn show(binding: &Binding<'_>) -> Result<Shown, Error> {
    let found = show::list(&source(binding))?;
    let notes = found.left_out.into_iter().map(|(key, kind)| {
        format!("`{key}` is of kind `{kind}`, of which nothing can be declared")
    });
    Ok(Shown { notes: notes.collect(), sections: section::show(found.sides), ..Shown::default() })
}

#[cfg(test)]
mod tests {
    use homeostat_core::{Owner, Slot, Taken};
    use homeostat_testkit::undoing::{self, Example};
    use serde_json::json;

    use super::*;
    use crate::model::{DesiredState, Object, Wanted};
    use crate::step::{Delete, GiveBack, How, Place, Step, Update};

    fn fifo() -> Object {
        Object::try_from(json!({ "kind": "pfifo", "limit": 10 })).unwrap()
    }

    fn kind_of(step: &Step) -> &'static str {
        let takes = !homeostat_core::Step::<DesiredState>::takes(step).is_empty();
        match step {
            _ if takes => STEP_KINDS[3].step,
            Step::Update(update) if update.adopts.is_some() && update.is_restorable => {
                STEP_KINDS[1].step
            }
            Step::Update(update) if update.adopts.is_some() => STEP_KINDS[2].step,
            _ => STEP_KINDS[0].step,
        }
    }

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let key: Key = "qdisc eth0".parse().unwrap();
        let wanted = Wanted { side: fifo().side, adopt: true };
        let desired = DesiredState::new([(key.clone(), wanted)]);
        let (slot, place, link) = (Slot::at(0), Place { link: 1, to: None }, 1);
        let somebody = || Owner::foreign("handle 1:");
        let filters = || vec![Taken::new("filter 10 of qdisc eth0", somebody())];
        let update = |adopts: Option<Owner>, how, takes, is_restorable| {
            let before = fifo();
            Step::Update(Box::new(Update {
                slot,
                place,
                before,
                adopts,
                how,
                takes,
                is_restorable,
            }))
        };
        let delete = |takes| {
            Step::Delete(Box::new(Delete { key: key.clone(), link, before: fifo(), takes }))
        };
        let (before, original, copied, takes) = (fifo(), fifo(), None, Vec::new());
        let give_back = GiveBack { key: key.clone(), link, before, original, copied, takes };
        let plain = [
            Step::Create { slot, place },
            update(None, How::InPlace, Vec::new(), false),
            update(None, How::Again, Vec::new(), false),
            update(None, How::Again, filters(), false),
            update(Some(somebody()), How::Over, Vec::new(), false),
            delete(Vec::new()),
            delete(filters()),
            Step::GiveBack(Box::new(give_back)),
        ];
        let adopted = update(Some(somebody()), How::Over, Vec::new(), true);
        let plain = plain.map(|step| Example::new(kind_of(&step), step));
        let examples = plain.into_iter().chain([Example::adopting(kind_of(&adopted), adopted)]);
        undoing::check(STEP_KINDS, &desired, examples).unwrap();
    }
}
