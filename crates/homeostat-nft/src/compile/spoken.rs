//! The links that a text speaks of, learned from `nft` itself: whatever is included or defined, it knows.

use std::collections::{BTreeMap, BTreeSet};

use super::CompileError;
use crate::key::Key;
use crate::model::Table;
use crate::placeholders::Link;

/// More links that are not there than this are a mistake.
const MOST: usize = 64;

/// What is stood in for.
#[derive(Debug)]
pub(super) struct Spoken<'a> {
    /// Everything that could be spoken of.
    there: &'a [Link],
    /// What is there, and spoken of.
    present: Vec<Link>,
    /// Not there, and meant by number, in rules: its tables wait for it.
    by_number: Vec<Link>,
    /// Not there, and hooked into by chains and flowtables, where the kernel wants them to be there.
    by_hook: Vec<Link>,
}

impl<'a> Spoken<'a> {
    /// What is known to be spoken of before anything was tried.
    pub(super) fn new(there: &'a [Link], is_spoken_of: impl Fn(&str) -> bool) -> Self {
        let present = there.iter().filter(|link| is_spoken_of(&link.name)).cloned().collect();
        Spoken { there, present, by_number: Vec::new(), by_hook: Vec::new() }
    }

    /// Everything that is stood in for.
    pub(super) fn all(&self) -> impl Iterator<Item = &Link> {
        self.present.iter().chain(&self.by_number).chain(&self.by_hook)
    }

    /// Learns what is meant by number: what is not stood in for yet.
    pub(super) fn learn_numbers(&mut self, names: Vec<String>) -> Vec<Link> {
        let news = self.news(names);
        self.by_number.extend(news.iter().filter(|link| !self.there.contains(link)).cloned());
        news
    }

    /// Learns what is hooked into: what is not stood in for yet.
    pub(super) fn learn_hooks(&mut self, names: BTreeSet<String>) -> Vec<Link> {
        let news = self.news(names);
        self.by_hook.extend(news.iter().filter(|link| !self.there.contains(link)).cloned());
        news
    }

    fn news(&mut self, names: impl IntoIterator<Item = String>) -> Vec<Link> {
        let mut news: Vec<Link> = Vec::new();
        let mut absent = self.by_number.len() + self.by_hook.len();
        for name in names {
            if self.all().chain(&news).any(|link| link.name == name) {
                continue;
            }
            let there = self.there.iter().find(|link| link.name == name);
            if there.is_none() && absent == MOST {
                continue;
            }
            news.push(there.cloned().unwrap_or_else(|| Link::absent(name, absent)));
            absent += usize::from(there.is_none());
        }
        self.present.extend(news.iter().filter(|link| self.there.contains(link)).cloned());
        news
    }

    /// Whether a table hooks into a link that is not there, and that others mean by number: `nft` had no
    /// reason to miss it.
    pub(super) fn may_hide_hooks(&self, tables: &[Table]) -> bool {
        let is_hooked = |link: &Link| tables.iter().any(|table| table.hooks_into(&link.name));
        self.by_hook.is_empty() && self.by_number.iter().any(is_hooked)
    }

    /// Which tables wait for one of them.
    pub(super) fn waiting(&self, tables: &[Table], hooks: Hooks) -> BTreeMap<Key, String> {
        let waits = |table: &Table| {
            let by_number = self.by_number.iter().find(|link| table.mentions(&link.index));
            let mut absent = self.by_number.iter().chain(&self.by_hook);
            let by_hook = || absent.find(|link| table.hooks_into(&link.name));
            let by_hook = || (hooks == Hooks::WantLinks).then(by_hook).flatten();
            Some((table.key.clone(), by_number.or_else(by_hook)?.name.clone()))
        };
        tables.iter().filter_map(waits).collect()
    }

    /// What was learned, for who compiles the text again: the links that are there, and all names.
    pub(super) fn into_known(self) -> (Vec<Link>, BTreeSet<String>) {
        let names = self.all().map(|link| link.name.clone()).collect();
        let mut links = self.present;
        links.sort();
        (links, names)
    }
}

/// What the kernel does with a hook into a link that is not there.
///
/// Quirk `hooks-want-links` (Linux 6.1): `nft add chain netdev t c '{ type filter hook ingress device x
/// priority 0; }'` is refused with ENOENT as long as there is no link `x`. Linux 6.18 takes it, and hooks
/// in when the link comes. Which place of a text was meant, the refusal does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hooks {
    /// It refuses it.
    WantLinks,
    /// It hooks in when the link comes.
    Wait,
}

impl Hooks {
    /// Loaded where there is no such link.
    pub(super) const PROBE: &'static str =
        "table netdev p { chain c { type filter hook ingress device hst-none priority 0; }; }";

    pub(super) fn told(loaded: &Result<(), CompileError>) -> Self {
        match loaded {
            Err(refused) if refused.is_absence() => Hooks::WantLinks,
            _ => Hooks::Wait,
        }
    }
}
