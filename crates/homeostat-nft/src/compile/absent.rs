//! The links that a text speaks of and that are not there: its tables wait for them.

use std::collections::BTreeMap;

use super::CompileError;
use crate::devices;
use crate::key::Key;
use crate::model::Table;
use crate::placeholders::Link;

/// More links that are not there than this are a mistake.
const MOST: usize = 64;

/// What is stood in for.
#[derive(Debug, Default)]
pub(super) struct Absent {
    /// Meant by number, in rules.
    by_number: Vec<Link>,
    /// Hooked into by chains and flowtables, where the kernel wants them to be there.
    by_hook: Vec<Link>,
}

impl Absent {
    /// Everything that is stood in for.
    pub(super) fn all(&self) -> impl Iterator<Item = &Link> {
        self.by_number.iter().chain(&self.by_hook)
    }

    /// Learns from a refusal what was missing; nothing, if it must have another reason.
    pub(super) fn learn(&mut self, refused: &CompileError, (text, links): (&str, &[Link])) -> bool {
        let count = self.all().count();
        if let Some(name) = refused.missing_link() {
            let may_be = count < MOST && !name.starts_with('$');
            self.by_number.extend(may_be.then(|| Link::absent(name, count)));
            return may_be;
        }
        if !refused.is_absence() {
            return false;
        }
        let mut names = devices::named(text);
        names.retain(|name| links.iter().chain(self.all()).all(|link| link.name != *name));
        let hooked = (count..MOST).zip(names).map(|(nth, name)| Link::absent(name, nth));
        self.by_hook.extend(hooked);
        self.all().count() > count
    }

    /// Which tables speak of one of them.
    pub(super) fn waiting(&self, tables: &[Table]) -> BTreeMap<Key, String> {
        let waits = |table: &Table| {
            let by_number = self.by_number.iter().find(|link| table.mentions(&link.index));
            let by_hook = || self.by_hook.iter().find(|link| table.hooks_into(&link.name));
            Some((table.key.clone(), by_number.or_else(by_hook)?.name.clone()))
        };
        tables.iter().filter_map(waits).collect()
    }
}
