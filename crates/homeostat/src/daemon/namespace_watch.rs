//! Watches for namespaces that get a name, or lose it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use homeostat_netns::{Error, Name, Netns};
use tokio::time::{Instant, sleep_until};

use crate::watch::Watch;

/// How long names must have been left alone before somebody looks.
const QUIET: Duration = Duration::from_millis(20);

/// The first pause before another look at a file that is no namespace, and the longest.
const PAUSES: (Duration, Duration) = (QUIET, Duration::from_secs(10));

/// Names of namespaces that matter to the daemon, and what has become of them.
pub(super) struct NamespaceWatch {
    watch: Watch,
    names: BTreeSet<String>,
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

impl NamespaceWatch {
    /// Listens from here on.
    pub(super) fn open() -> Result<Self> {
        let names = BTreeSet::new();
        let unfinished = Unfinished::among(&names);
        Ok(NamespaceWatch { watch: Watch::namespaces()?, names, unfinished })
    }

    /// From here on these names matter, and no others. What became of them since the last
    /// [`changed`](Self::changed) ended is still told. A new one that was `absent` when the document was
    /// bound may have come to its namespace meanwhile, which nobody tells: it is looked at once more.
    pub(super) fn watch_names(&mut self, names: BTreeSet<String>, absent: &BTreeSet<String>) {
        if self.names == names {
            return;
        }
        self.watch.watch_names(names.iter().map(String::as_str));
        let more = names.difference(&self.names).filter(|name| absent.contains(*name));
        let more = more.filter_map(|name| Name::new(name).ok()).filter(exists);
        let mut unfinished = std::mem::take(&mut self.unfinished.names);
        unfinished.retain(|name| names.contains(name.as_str()));
        unfinished.extend(more);
        self.unfinished = Unfinished::of(unfinished);
        self.names = names;
    }

    /// Waits until names have come or gone, or a namespace has come to its name. Nothing is lost if it is dropped
    /// while it waits.
    pub(super) async fn changed(&mut self) {
        let NamespaceWatch { watch, names, unfinished } = self;
        tokio::select! {
            () = watch.changed(QUIET) => {}
            () = unfinished.finished() => {}
        }
        // Before anybody else looks: what comes in between is looked at twice, and never not at all.
        *unfinished = Unfinished::among(&*names);
    }
}

impl Unfinished {
    fn among<'a>(known: impl IntoIterator<Item = &'a String>) -> Self {
        // What is no name can be no namespace.
        let names = known.into_iter().filter_map(|name| Name::new(name).ok());
        Self::of(names.filter(is_unfinished).collect())
    }

    fn of(names: BTreeSet<Name>) -> Self {
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

fn exists(name: &Name) -> bool {
    !matches!(Netns::named(name), Err(Error::NoSuchName { .. }))
}

fn is_unfinished(name: &Name) -> bool {
    matches!(Netns::named(name), Err(Error::NotNetns { .. }))
}
