//! Watches for namespaces that get a name, or lose it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use homeostat_netns::{Error, Name, Netns};
use tokio::time::{Instant, sleep_until};

use crate::watch::Watch;

/// How long names must have been left alone before they are looked at.
const QUIET: Duration = Duration::from_millis(20);

/// The first pause before another look at a file that is no namespace, and the longest.
const PAUSES: (Duration, Duration) = (QUIET, Duration::from_secs(10));

/// Names of namespaces that matter to the daemon, and what has become of them.
///
/// Quirk `mounts-are-not-told` (Linux 6.18): `ip netns add` makes a file and mounts the namespace on it some time
/// later. There is an event for the file, and none for the mount: `inotifywait -m /run/netns` prints nothing for
/// `unshare --net=/run/netns/NAME true` where the file was there before. So a name that is only a file is looked at
/// again, with growing pauses.
pub(super) struct NamespaceWatch {
    watch: Watch,
    names: BTreeSet<String>,
    /// Names that are only files so far.
    unfinished: BTreeSet<Name>,
    pause: Duration,
    due: Instant,
}

impl NamespaceWatch {
    /// Listens from here on.
    pub(super) fn open() -> Result<Self> {
        let (watch, names) = (Watch::namespaces()?, BTreeSet::new());
        let (pause, due) = (PAUSES.0, Instant::now());
        Ok(NamespaceWatch { watch, names, unfinished: BTreeSet::new(), pause, due })
    }

    /// From here on these names matter, and no others. What became of them since the last
    /// [`changed`](Self::changed) ended is still reported. A new one that was `absent` when the document was
    /// bound may have come to its namespace meanwhile, for which there is no event: it is looked at once more.
    pub(super) fn watch_names(&mut self, names: BTreeSet<String>, absent: &BTreeSet<String>) {
        if self.names == names {
            return;
        }
        self.watch.watch_names(names.iter().map(String::as_str));
        let more = names.difference(&self.names).filter(|name| absent.contains(*name));
        let more = more.filter_map(|name| Name::new(name).ok()).filter(exists);
        let mut unfinished = std::mem::take(&mut self.unfinished);
        unfinished.retain(|name| names.contains(name.as_str()));
        unfinished.extend(more);
        self.await_mounts(unfinished);
        self.names = names;
    }

    /// Waits until names have come or gone, or a namespace has come to its name. Nothing is lost if it is dropped
    /// while it waits.
    pub(super) async fn changed(&mut self) {
        loop {
            let mounted = async {
                if self.unfinished.is_empty() {
                    return std::future::pending().await;
                }
                sleep_until(self.due).await;
            };
            tokio::select! {
                () = self.watch.changed(QUIET) => break,
                () = mounted => {}
            }
            if !self.unfinished.iter().all(is_unfinished) {
                break;
            }
            self.pause = (self.pause * 2).min(PAUSES.1);
            self.due = Instant::now() + self.pause;
        }
        // Before the caller looks: what comes in between is looked at twice, and never not at all. What is no name
        // can be no namespace.
        let names = self.names.iter().filter_map(|name| Name::new(name).ok());
        let unfinished = names.filter(is_unfinished).collect();
        self.await_mounts(unfinished);
    }

    fn await_mounts(&mut self, names: BTreeSet<Name>) {
        (self.unfinished, self.pause) = (names, PAUSES.0);
        self.due = Instant::now() + self.pause;
    }
}

fn exists(name: &Name) -> bool {
    !matches!(Netns::named(name), Err(Error::NoSuchName { .. }))
}

fn is_unfinished(name: &Name) -> bool {
    matches!(Netns::named(name), Err(Error::NotNetns { .. }))
}
