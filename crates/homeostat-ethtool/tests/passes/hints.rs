//! Changes by others are announced, and so are links that are waited for.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{Focus, Hint, Reader as _, Records, Source as _, View};
use homeostat_ethtool::{DesiredState, Ethtool, Key};

use crate::bench::{Bench, block_on, ethtool, key, switches};

/// Looks once, changes something, and waits for the hint.
async fn hint_after(desired: DesiredState, change: impl FnOnce()) -> Hint<Key> {
    let mut reader = Bench::source().reader().unwrap();
    let (focus, desired, records) = (Focus::All, Arc::new(desired), Records::default());
    let view = View::<Ethtool>::new(&focus, &desired, &records);
    reader.observe(&view, &mut |_| {}).await.unwrap();
    change();
    let hint = tokio::time::timeout(Duration::from_secs(5), reader.hint()).await;
    hint.unwrap_or_else(|_| panic!("there was no hint")).unwrap()
}

#[test]
fn a_feature_that_somebody_changes_is_announced() {
    let _bench = Bench::with_pairs(1);
    let desired = switches(&[("ethtool v0 feature gro", false)]);
    let hint = block_on(hint_after(desired, || _ = ethtool("-K v0 gro on")));
    assert_eq!(hint, Hint::keys([key("ethtool v0 feature gro")]));
}

#[test]
fn queues_that_somebody_changes_are_announced() {
    let _bench = Bench::with_pairs(2);
    let desired = crate::bench::numbers(&[("ethtool v1 channels rx", 2)]);
    let hint = block_on(hint_after(desired, || {
        ethtool("-L v0 rx 1");
        ethtool("-L v1 rx 1");
    }));
    assert_eq!(hint, Hint::keys([key("ethtool v1 channels rx")]));
}

#[test]
fn a_link_that_is_waited_for_is_announced_when_it_appears() {
    let bench = Bench::with_pairs(0);
    let desired = switches(&[("ethtool v0 feature gro", true)]);
    let hint = block_on(hint_after(desired, || {
        bench.ip("link add v9 type veth peer name w9");
        bench.ip("link add v0 type veth peer name w0");
    }));
    assert_eq!(hint, Hint::keys([key("ethtool v0 feature gro")]));
}
