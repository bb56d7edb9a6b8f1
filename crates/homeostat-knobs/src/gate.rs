//! Delays turning forwarding on until the firewall is loaded.
//!
//! Only turning it on waits. What is on stays on, and turning it off waits for nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{Hint, Original, Records, WaitsOn};
use tokio::sync::watch;

use crate::key::Key;
use crate::model::{DesiredState, Value};

/// What knobs that let packets through wait for.
#[derive(Clone, Debug)]
pub struct Gate {
    pub is_open: watch::Receiver<bool>,
    /// What is waited for, in words.
    pub on: Arc<str>,
}

impl Gate {
    /// What is waited for, while it is closed.
    pub(crate) fn waits_on(&self) -> Option<WaitsOn> {
        (!*self.is_open.borrow()).then(|| WaitsOn::Condition(self.on.to_string()))
    }

    /// Comes back when it is open, with these keys to look at.
    pub(crate) async fn opened(&self, held: &[Key]) -> Hint<Key> {
        // A gate whose other end is gone is never opened.
        if self.is_open.clone().wait_for(|is_open| *is_open).await.is_err() {
            std::future::pending::<()>().await;
        }
        Hint::keys(held.iter().cloned())
    }
}

/// Handles to one gate are equal.
impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        self.is_open.same_channel(&other.is_open)
    }
}

/// Whether this value lets packets through from one link to another, now or on links to come.
pub(crate) fn lets_through(key: &Key, value: &Value) -> bool {
    let Key::Sysctl(path) = key else { return false };
    let is_forwarding = path.as_str() == "net/ipv4/ip_forward"
        || path.as_str().starts_with("net/ipv")
            && ["forwarding", "force_forwarding", "mc_forwarding"].contains(&path.name());
    is_forwarding && value.as_str() != "0"
}

/// Every knob that the gate holds back while it is closed: declared ones, and originals that may come back.
pub(crate) fn held(desired: &DesiredState, records: &Records<Key, Value>) -> Vec<Key> {
    let declared = desired.iter().filter(|(key, wanted)| lets_through(key, &wanted.value));
    let originals = records.iter().filter(|(key, record)| {
        matches!(&record.original, Original::Was(value) if lets_through(key, value))
    });
    let keys = declared.map(|(key, _)| key).chain(originals.map(|(key, _)| key));
    keys.cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_turns_forwarding_on_is_held() {
        let check = |path: &str, value: &str, expected: bool| {
            let key = Key::sysctl(path).unwrap();
            assert_eq!(lets_through(&key, &Value::of(&key, value)), expected, "{path} {value}");
        };
        check("net.ipv4.ip_forward", "1", true);
        check("net.ipv4.ip_forward", "0", false);
        check("net/ipv4/conf/eth0/forwarding", "1", true);
        check("net/ipv4/conf/default/forwarding", "1", true);
        check("net/ipv6/conf/all/forwarding", "2", true);
        check("net/ipv6/conf/eth0/force_forwarding", "1", true);
        check("net/ipv4/conf/eth0/rp_filter", "1", false);
        check("net.ipv4.ip_forward_use_pmtu", "1", false);
    }
}
