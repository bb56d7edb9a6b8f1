//! One table that follows what is told of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_netlink::uapi::{
    NFT_SET_ANONYMOUS, NFTA_CHAIN_NAME, NFTA_RULE_CHAIN, NFTA_RULE_HANDLE, NFTA_RULE_POSITION,
    NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_NAME, NLM_F_APPEND,
};
use homeostat_netlink::{Attrs, Malformed, Message};

use super::places::{End, Places};
use crate::dump::{self, Head, parts};
use crate::elements::Edits;
use crate::message::{
    CHAIN, ELEMENTS, NO_CHAIN, NO_ELEMENTS, NO_OBJECT, NO_RULE, NO_SET, OBJECT, RULE, SET, TABLE,
};
use crate::model::{Handle, Table};
use crate::tlv::{be64, text};

/// A table, and the commit that changes it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) head: Head,
    pub(super) table: Arc<Table>,
    under_way: UnderWay,
}

/// What is told of a commit before its end.
#[derive(Debug, Default)]
struct UnderWay {
    /// How many messages were about this table.
    count: usize,
    /// Sets and chains without names, which the rule comes after.
    nameless: parts::Loose,
    elements: BTreeMap<String, Edits>,
    rules: Places,
}

/// Beyond this, another look costs less.
const MOST: usize = 1000;

/// Only another look can tell what is meant.
#[derive(Debug)]
pub(super) struct Unclear;

impl From<Malformed> for Unclear {
    fn from(_: Malformed) -> Self {
        Unclear
    }
}

type Heard = Result<(), Unclear>;

impl Held {
    pub(super) fn new(head: Head, table: Arc<Table>) -> Self {
        Held { head, table, under_way: UnderWay::default() }
    }

    /// Takes one message about the table.
    pub(super) fn hear(&mut self, message: &Message<'_>, attrs: &Attrs<'_>) -> Heard {
        self.under_way.count += 1;
        if self.under_way.count > MOST {
            return Err(Unclear);
        }
        match message.kind {
            TABLE => self.changed(attrs),
            CHAIN => self.chain(attrs),
            NO_CHAIN => self.no_chain(attrs),
            RULE => self.rule(message.flags, attrs),
            NO_RULE => self.no_rule(message.flags & NLM_F_APPEND != 0, attrs),
            SET => self.set(attrs),
            NO_SET => {
                let name = text(attrs, NFTA_SET_NAME)?;
                self.under_way.elements.remove(name);
                self.table().sets.remove(name);
                Ok(())
            }
            ELEMENTS | NO_ELEMENTS => self.elements(message.kind == ELEMENTS, attrs),
            OBJECT => {
                let (id, object) = parts::object(attrs)?;
                self.table().objects.insert(id, object);
                Ok(())
            }
            NO_OBJECT => {
                let (id, _) = parts::object(attrs)?;
                self.table().objects.remove(&id);
                Ok(())
            }
            // Devices come and go in flowtables.
            _ => Err(Unclear),
        }
    }

    /// Ends a commit.
    pub(super) fn settle(&mut self) -> Heard {
        if self.under_way.count == 0 {
            return Ok(());
        }
        let UnderWay { elements, .. } = std::mem::take(&mut self.under_way);
        let table = Arc::make_mut(&mut self.table);
        for (name, edits) in elements {
            let set = table.sets.get_mut(&name).ok_or(Unclear)?;
            let layout = set.layout();
            let was_known = set.elements.edit(&edits, layout)?;
            // What packets or time put there, they have put there unheard.
            if !was_known && !set.is_moving() {
                return Err(Unclear);
            }
            set.note_references();
        }
        Ok(())
    }

    fn table(&mut self) -> &mut Table {
        Arc::make_mut(&mut self.table)
    }

    fn changed(&mut self, attrs: &Attrs<'_>) -> Heard {
        let head = dump::head(self.head.key.family, attrs)?;
        if head.handle != self.head.handle || head.words != self.head.words {
            return Err(Unclear);
        }
        self.table().flags = head.flags;
        self.head = head;
        Ok(())
    }

    fn chain(&mut self, attrs: &Attrs<'_>) -> Heard {
        let mut told = parts::chain(attrs)?;
        if told.is_nameless() {
            self.under_way.nameless.chains.push(told);
            return Ok(());
        }
        // Of devices only those that come are told.
        if told.chain.has_devices() {
            return Err(Unclear);
        }
        let chains = &mut self.table().chains;
        if let Some(former) = chains.get_mut(&told.name) {
            told.chain.rules = std::mem::take(&mut former.rules);
        } else if chains.values().any(|chain| chain.handle == told.chain.handle) {
            // It has another name now, also where rules jump to it.
            return Err(Unclear);
        }
        chains.insert(told.name, told.chain);
        Ok(())
    }

    fn no_chain(&mut self, attrs: &Attrs<'_>) -> Heard {
        // It may be that only devices go.
        if parts::chain(attrs)?.chain.has_devices() {
            return Err(Unclear);
        }
        let name = text(attrs, NFTA_CHAIN_NAME)?;
        self.under_way.rules.forget(name);
        self.table().chains.remove(name);
        Ok(())
    }

    fn rule(&mut self, flags: u16, attrs: &Attrs<'_>) -> Heard {
        let chain = text(attrs, NFTA_RULE_CHAIN)?;
        let Held { table, under_way: UnderWay { nameless, elements, rules: places, .. }, .. } =
            self;
        nameless.rules.take(attrs.clone())?;
        if nameless.chains.iter().any(|bare| bare.name == chain) {
            return Ok(());
        }
        for (name, set) in &mut nameless.sets {
            if let Some(edits) = elements.remove(name) {
                let layout = set.layout();
                set.elements.edit(&edits, layout)?;
                set.note_references();
            }
        }
        let rule = nameless.last_rule()?;
        nameless.rules.drop_last();
        let rules = &mut Arc::make_mut(table).chains.get_mut(chain).ok_or(Unclear)?.rules;
        let end = if flags & NLM_F_APPEND != 0 { End::Last } else { End::First };
        let untold = places.of(chain, (rule.handle, end), rules.len());
        let after = be64(attrs, NFTA_RULE_POSITION)?.map(Handle);
        let place = after.map_or(untold, |after| {
            rules.iter().rposition(|rule| rule.handle == after).map(|at| at + 1)
        });
        rules.insert(place.ok_or(Unclear)?, rule);
        Ok(())
    }

    fn no_rule(&mut self, is_replaced: bool, attrs: &Attrs<'_>) -> Heard {
        let handle = be64(attrs, NFTA_RULE_HANDLE)?.map(Handle);
        // The rules of a chain without a name go with the one that jumps to it.
        let name = text(attrs, NFTA_RULE_CHAIN)?;
        let Some(chain) = self.table().chains.get_mut(name) else { return Ok(()) };
        let at = chain.rules.iter().position(|rule| Some(rule.handle) == handle);
        let (at, handle) = at.zip(handle).ok_or(Unclear)?;
        chain.rules.remove(at);
        let left = chain.rules.len();
        if is_replaced {
            self.under_way.rules.replaced(handle, at);
        } else {
            self.under_way.rules.went(name, at, left);
        }
        Ok(())
    }

    fn set(&mut self, attrs: &Attrs<'_>) -> Heard {
        let (name, mut told) = parts::set(attrs)?;
        if told.flags & NFT_SET_ANONYMOUS != 0 {
            self.under_way.nameless.sets.insert(name, told);
            return Ok(());
        }
        let sets = &mut self.table().sets;
        if let Some(former) = sets.get_mut(&name) {
            told.elements = std::mem::take(&mut former.elements);
            told.note_references();
        }
        sets.insert(name, told);
        Ok(())
    }

    fn elements(&mut self, came: bool, attrs: &Attrs<'_>) -> Heard {
        let name = text(attrs, NFTA_SET_ELEM_LIST_SET)?;
        let UnderWay { nameless, elements, .. } = &mut self.under_way;
        let set = nameless.sets.get(name).or_else(|| self.table.sets.get(name));
        if set.ok_or(Unclear)?.is_data() {
            return Ok(());
        }
        let edits = elements.entry(name.to_owned()).or_default();
        let Some(list) = attrs.clone().first(NFTA_SET_ELEM_LIST_ELEMENTS)? else { return Ok(()) };
        if came {
            edits.came(list.value)?;
        } else {
            edits.went(list.value)?;
        }
        Ok(())
    }
}
