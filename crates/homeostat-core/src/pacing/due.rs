//! Keys in the order in which they become due.

use std::collections::BTreeMap;

use super::time::Time;

/// A key's place in the order; the number keeps keys that are due together in order of arrival.
pub(super) type Ticket = (Time, u64);

/// Says which key is due next. A key that is no longer listed costs nothing: no stale entries.
#[derive(Clone, Debug)]
pub(super) struct Due<K> {
    order: BTreeMap<Ticket, K>,
    arrivals: u64,
}

impl<K> Due<K> {
    pub(super) fn new() -> Self {
        Self { order: BTreeMap::new(), arrivals: 0 }
    }

    /// Lists a key; the ticket takes it off again.
    pub(super) fn list(&mut self, key: K, time: Time) -> Ticket {
        self.arrivals += 1;
        let ticket = (time, self.arrivals);
        self.order.insert(ticket, key);
        ticket
    }

    pub(super) fn unlist(&mut self, ticket: Option<Ticket>) {
        ticket.map(|ticket| self.order.remove(&ticket));
    }

    /// Takes off the key that is due first, if any is due by then.
    pub(super) fn take(&mut self, by: Time) -> Option<K> {
        let first = self.order.first_entry()?;
        (first.key().0 <= by).then(|| first.remove())
    }

    /// When the first key is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.order.first_key_value().map(|((time, _), _)| *time)
    }
}
