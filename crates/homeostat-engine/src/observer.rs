//! A reader that knows whether it has seen everything once.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{
    Changes, Diff, Failure, Focus, Hint, Holdings, Phase, Reader, Retry, Rights, Snapshot, Source,
    View,
};

use crate::config::PassInput;
use crate::error::Error;

/// How often a look that the target tore is begun again before it counts as failed.
const LOOKS: usize = 5;

/// An open reader. Focused looks are refused before the first full one (law 5).
pub struct Observer<S: Source> {
    reader: S::Reader,
    scope: String,
    synced: bool,
    /// Whether all hints that had come were read, and nothing was waited for since.
    is_caught_up: bool,
}

impl<S: Source> Observer<S> {
    /// Opens the source's reader; `scope` is for error messages.
    pub fn open(source: &S, scope: &str) -> Result<Self, Error> {
        Self::with(source.reader(), scope)
    }

    /// Opens a reader for looks alone: it is never asked for hints.
    pub fn without_hints(source: &S, scope: &str) -> Result<Self, Error> {
        Self::with(source.reader_without_hints(), scope)
    }

    fn with(reader: Result<S::Reader, Failure>, scope: &str) -> Result<Self, Error> {
        let scope = scope.to_owned();
        match reader {
            Ok(reader) => Ok(Observer { reader, scope, synced: false, is_caught_up: false }),
            Err(failure) => Err(Error::Observe { name: S::NAME, scope, failure }),
        }
    }

    /// The reader itself, for tests that act between its calls.
    pub fn reader(&mut self) -> &mut S::Reader {
        &mut self.reader
    }

    /// Says that the hints that had come were read just now: the next look need not read them again.
    pub(crate) fn has_caught_up(&mut self) {
        self.is_caught_up = true;
    }

    /// The next hint; see [`Reader::hint`].
    pub async fn hint(&mut self) -> Result<Hint<S::Key>, Failure> {
        self.is_caught_up = false;
        self.reader.hint().await
    }

    /// What happened on the way; see [`Reader::phases`].
    pub(crate) fn phases(&mut self) -> Vec<Phase> {
        self.reader.phases()
    }

    /// What other owners have on these keys, in full; see [`Reader::snapshots`].
    pub(crate) async fn snapshots(
        &mut self,
        keys: &BTreeSet<S::Key>,
    ) -> Result<BTreeMap<S::Key, Snapshot>, Failure> {
        if keys.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.reader.snapshots(keys).await
    }

    /// What may go along with these; see [`Reader::snapshots_along`].
    pub(crate) async fn snapshots_along(
        &mut self,
        taken: &BTreeSet<S::Key>,
    ) -> Result<BTreeMap<S::Key, Snapshot>, Failure> {
        if taken.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.reader.snapshots_along(taken).await
    }

    /// The same input with its desired state [as it is at this moment](Reader::resolve).
    pub(crate) async fn resolve<'a>(
        &mut self,
        input: &PassInput<'a, S>,
        holdings: &Holdings<S::Key, S::Object>,
    ) -> Result<PassInput<'a, S>, Error> {
        let view = View::new(&input.focus, &input.desired, &holdings.records);
        match self.reader.resolve(&view).await {
            Ok(None) => Ok(input.about(input.focus.clone())),
            Ok(Some(desired)) => Ok(PassInput { desired, ..input.about(input.focus.clone()) }),
            Err(failure) => {
                let scope = self.scope.clone();
                Err(Error::Observe { name: S::NAME, scope, failure })
            }
        }
    }

    /// Looks at the target, and returns what was learned and how it differs from the desired state.
    pub(crate) async fn diff(
        &mut self,
        input: &PassInput<'_, S>,
        holdings: &Holdings<S::Key, S::Object>,
    ) -> Result<(S::Moment, Changes<S::Key, S::Object>), Error> {
        if !self.synced && input.focus != Focus::All {
            return Err(Error::NotSynced);
        }
        let (focus, records) = (&input.focus, &holdings.records);
        let standings = input.config.conditions.standings();
        // That the socket was just read holds for one look only.
        let is_caught_up = std::mem::take(&mut self.is_caught_up);
        let mut view = View { is_caught_up, ..View::new(focus, &input.desired, records) };
        let mut tries = 1;
        loop {
            let rights = Rights {
                ownership: input.ownership,
                records,
                adopt: &input.config.adopt,
                on_release: input.config.on_release,
            };
            let diff = Diff::new(&*input.desired, focus, rights);
            let mut diff = diff.heeding(&standings).barring(&holdings.broken);
            match self.reader.observe(&view, &mut |seen| diff.see(seen)).await {
                Ok(moment) => {
                    self.synced = true;
                    return Ok((moment, diff.finish()));
                }
                // The target moved under the look: what was reported so far is forgotten with its diff.
                Err(failure) if failure.retry == Retry::Now && tries < LOOKS => {
                    (tries, view.is_caught_up) = (tries + 1, false);
                }
                Err(failure) => {
                    let scope = self.scope.clone();
                    return Err(Error::Observe { name: S::NAME, scope, failure });
                }
            }
        }
    }
}
