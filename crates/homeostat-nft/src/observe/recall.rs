//! A look at a few tables that reads no more of the kernel than it must: what was told of commits since the
//! last full look says the rest.

use std::collections::BTreeSet;

use homeostat_core::{Desired as _, Focus, View};

use super::{Found, Moment, Reader, Reading, is_absence};
use crate::dump::{self, Head};
use crate::error::Error;
use crate::key::Key;
use crate::object::Object;
use crate::op;
use crate::shadow::Known;
use crate::source::{Nft, Wording};

/// How often a commit may come between what was told and what the kernel says of its generation.
const TRIES: u32 = 3;

/// What another look at single tables has shown.
type Anew = Vec<(Key, Option<(Head, Object)>)>;

impl Reader {
    /// The tables as they are at the kernel's own generation, if that can be told without reading them all.
    pub(super) fn recall(
        &mut self,
        view: &View<'_, Nft>,
    ) -> Result<Option<(Moment, Found)>, Error> {
        let Focus::Keys(keys) = view.focus else { return Ok(None) };
        if self.source.wording == Wording::Listed || !self.ear.is_open() {
            return Ok(None);
        }
        let refusals = self.source.refusals.count();
        if refusals != std::mem::replace(&mut self.refusals, refusals) {
            return Ok(None);
        }
        for _ in 0..TRIES {
            self.ear.catch_up();
            let Some(generation) = self.ear.shadow.generation() else { return Ok(None) };
            let (found, unknown) = self.told(view, keys);
            let was_read = !unknown.is_empty();
            let read = match self.read_anew(view, unknown) {
                Err(Error::Netlink(error)) if is_absence(&error) => continue,
                read => read?,
            };
            if dump::generation(&mut self.connection)? == generation {
                self.note(&read);
                let read = read.into_iter().filter_map(|(_, seen)| seen);
                let moment = Moment { generation, was_read };
                return Ok(Some((moment, found.into_iter().chain(read).collect())));
            }
        }
        Ok(None)
    }

    /// What is known of these tables, and those of which too little is.
    fn told(&self, view: &View<'_, Nft>, keys: &BTreeSet<Key>) -> (Found, BTreeSet<Key>) {
        let (mut found, mut unknown) = (Found::new(), BTreeSet::new());
        for key in keys {
            match self.ear.shadow.known(key) {
                Known::Absent => {}
                Known::Held(head, _) if !self.is_of_interest(view, &head) => {}
                Known::Held(_, table) if table.may_go_unheard() => _ = unknown.insert(key.clone()),
                Known::Held(head, table) => {
                    let object = self.object(view, &head, table);
                    if needs_counts(view, key, &object) {
                        unknown.insert(key.clone());
                    } else {
                        found.push((head, object));
                    }
                }
                Known::Nothing => _ = unknown.insert(key.clone()),
            }
        }
        (found, unknown)
    }

    fn read_anew(&mut self, view: &View<'_, Nft>, keys: BTreeSet<Key>) -> Result<Anew, Error> {
        if keys.is_empty() {
            return Ok(Anew::new());
        }
        let focus = Focus::Keys(keys.clone());
        let mut found = self.read(&View { focus: &focus, ..*view })?;
        let of_key = |key: Key| {
            let at = found.iter().position(|(head, _)| head.key == key);
            (key, at.map(|at| found.swap_remove(at)))
        };
        Ok(keys.into_iter().map(of_key).collect())
    }

    fn note(&mut self, read: &Anew) {
        for (key, seen) in read {
            let seen =
                seen.as_ref().and_then(|(head, object)| Some((head, object.table.as_ref()?)));
            self.ear.shadow.know(key.clone(), seen);
        }
    }

    /// Lets the shadow begin with what a look has shown, if nothing moved meanwhile.
    pub(super) fn remember(&mut self, view: &View<'_, Nft>, reading: &Reading) {
        if !self.ear.is_open() {
            return;
        }
        if reading.before != reading.after {
            return self.ear.shadow.give_up();
        }
        self.ear.shadow.begin(reading.before);
        let expected = view.desired.keys().into_iter().chain(view.records.keys().cloned());
        for key in expected.filter(|key| view.focus.covers(key)) {
            self.ear.shadow.know(key, None);
        }
        for (head, object) in &reading.found {
            self.ear
                .shadow
                .know(head.key.clone(), object.table.as_ref().map(|table| (head, table)));
        }
    }
}

/// Whether a change of this table would carry on counts, which nobody tells of.
fn needs_counts(view: &View<'_, Nft>, key: &Key, object: &Object) -> bool {
    let compiled = view.desired.compiled();
    let desired = view.desired.slot(key, None).and_then(|slot| compiled.table(slot));
    let (Some(desired), Some(table)) = (desired, &object.table) else { return false };
    object.acts(desired).iter().any(|op| op::carries(op, table))
}
