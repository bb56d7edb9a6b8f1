//! The marks that an owner has given objects of a scope, as the ledger stores them: objects with a former mark of
//! its owner would be left behind without a word.

use std::collections::BTreeSet;

use homeostat_document::{DEFAULT_OWNER, DEFAULT_PROTOCOL};
use homeostat_engine::{Edit, Ledger, LedgerKey};

use crate::binding::{Binding, Mark};
use crate::error::Error;
use crate::scope::Scope;

/// The name in place of that of a source.
const SOURCE: &str = "mark";

/// Not the owner's own name, so that no mark makes a scope one in which something of the owner is left.
fn marks_of(owner: &str) -> String {
    format!("mark of {owner}")
}

fn place(scope: &Scope, owner: &str) -> LedgerKey {
    scope.ledger_key(&marks_of(owner), SOURCE)
}

/// Records that an owner marks objects of a scope so, unless that is known.
pub fn record_mark(
    ledger: &dyn Ledger,
    scope: &Scope,
    owner: &str,
    Mark(mark): Mark,
) -> Result<(), Error> {
    let (place, key) = (place(scope, owner), mark.to_string());
    let is_known = ledger.page(&place)?.records.iter().any(|(known, _)| *known == key);
    if !is_known {
        ledger.write(&place, &[Edit::Put { key, record: "{}".to_owned() }])?;
    }
    Ok(())
}

/// Forgets the marks of a place that is gone.
pub fn forget_marks(ledger: &dyn Ledger, gone: &LedgerKey) -> Result<(), Error> {
    let place = LedgerKey::new(marks_of(&gone.owner), SOURCE, &gone.scope);
    Ok(ledger.clear(&place.with_identity(&gone.identity))?)
}

/// The other marks that the owner gave objects of this scope, and that no other owner has.
pub fn former_marks(binding: &Binding<'_>) -> Result<BTreeSet<Mark>, Error> {
    let place = place(binding.scope, &binding.caller.owner);
    let numbers = |keys: Vec<String>| -> BTreeSet<Mark> {
        keys.iter().filter_map(|key| key.parse().ok().map(Mark)).collect()
    };
    let records = binding.pages.page(&place)?.records;
    let mut former = numbers(records.into_iter().map(|(key, _)| key).collect());
    // Objects that were applied before marks were recorded have the default mark.
    let has_applied = binding.pages.page(&binding.ledger_key())?.desired.is_some();
    if former.is_empty() && has_applied && binding.caller.owner == DEFAULT_OWNER {
        former.insert(Mark(DEFAULT_PROTOCOL));
    }
    let others = binding.pages.others(&place)?.into_iter().map(|(_, key)| key).collect();
    for mark in numbers(others).into_iter().chain([binding.caller.mark]) {
        former.remove(&mark);
    }
    Ok(former)
}
