//! Hears of namespaces that get a name, or lose it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use homeostat_netns::{Error, Name, Netns, names};
use tokio::time::{Instant, sleep_until};

use super::watch::Watch;

/// How long names must have been left alone before somebody looks.
const QUIET: Duration = Duration::from_millis(20);

/// The first pause before another look at a file that is no namespace, and the longest.
const PAUSES: (Duration, Duration) = (QUIET, Duration::from_secs(10));

/// The names of namespaces, and what has become of them.
pub(super) struct Spaces {
    watch: Watch,
    unfinished: Unfinished,
}

/// Names that are only files so far.
///
/// Quirk `mounts-are-not-told` (Linux 6.18): `ip netns add` makes a file and mounts the namespace on it some time
/// later. The file is told of, the mount is not: `inotifywait -m /run/netns` says nothing of
/// `unshare --net=/run/netns/NAME true` where the file was there before.
struct Unfinished {
    names: BTreeSet<Name>,
    pause: Duration,
    due: Instant,
}

impl Spaces {
    /// Listens from here on.
    pub(super) fn open() -> Result<Self> {
        Ok(Spaces { watch: Watch::namespaces()?, unfinished: Unfinished::now() })
    }

    /// Waits until names have come or gone, or a namespace has come to its name. Nothing is lost if it is dropped
    /// while it waits.
    pub(super) async fn changed(&mut self) {
        let Spaces { watch, unfinished } = self;
        tokio::select! {
            () = watch.changed(QUIET) => {}
            () = unfinished.finished() => {}
        }
        // Before anybody else looks: what comes in between is looked at twice, and never not at all.
        self.unfinished = Unfinished::now();
    }
}

impl Unfinished {
    fn now() -> Self {
        // Without a list there is nothing to wait for.
        let names = names().unwrap_or_default().into_iter().filter(is_unfinished).collect();
        Unfinished { names, pause: PAUSES.0, due: Instant::now() + PAUSES.0 }
    }

    /// Waits until one of the names is not only a file any more.
    async fn finished(&mut self) {
        if self.names.is_empty() {
            return std::future::pending().await;
        }
        loop {
            sleep_until(self.due).await;
            if !self.names.iter().all(is_unfinished) {
                return;
            }
            self.pause = (self.pause * 2).min(PAUSES.1);
            self.due = Instant::now() + self.pause;
        }
    }
}

fn is_unfinished(name: &Name) -> bool {
    matches!(Netns::named(name), Err(Error::NotNetns { .. }))
}
