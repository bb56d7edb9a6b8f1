//! An opened source: its reader, its writer and its page of the ledger.

use std::sync::Arc;

use homeostat_core::{Focus, Report, ScopeLock, Source};

use crate::bound::Bound;
use crate::error::Error;
use crate::ledger::Ledger;
use crate::ledger_page::LedgerPage;
use crate::observer::Observer;
use crate::pass;

/// Whether a session subscribes to the target's hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hints {
    /// The subscription is open before the first look.
    #[default]
    Subscribe,
    /// No subscription: for a run that ends once it is converged.
    Ignore,
}

/// Reader, writer and page of the ledger of one source in one scope. The loop keeps one open as long as
/// nothing breaks; a caller that wants passes without the loop opens one and calls [`Session::pass`].
pub struct Session<S: Source> {
    pub(crate) observer: Observer<S>,
    pub(crate) writer: Arc<S::Writer>,
    pub(crate) ledger_page: LedgerPage<S>,
}

impl<S: Source> Session<S> {
    /// Opens the source, by proof that no other process writes in its scope. A ledger that
    /// [is offloaded](Ledger::is_offloaded) is not read on this thread.
    pub async fn open(
        bound: &Bound<S>,
        lock: &ScopeLock,
        ledger: Arc<dyn Ledger>,
        hints: Hints,
    ) -> Result<Self, Error> {
        let ledger_page = LedgerPage::load(ledger, bound.ledger_key.clone()).await?;
        Self::with_page(bound, lock, hints, ledger_page)
    }

    pub(crate) fn with_page(
        bound: &Bound<S>,
        lock: &ScopeLock,
        hints: Hints,
        ledger_page: LedgerPage<S>,
    ) -> Result<Self, Error> {
        let Bound { source, ledger_key, .. } = bound;
        let observer = match hints {
            Hints::Subscribe => Observer::open(source, &ledger_key.scope)?,
            Hints::Ignore => Observer::without_hints(source, &ledger_key.scope)?,
        };
        let writer = source.writer(lock).map_err(|failure| Error::Writer {
            name: S::NAME,
            scope: ledger_key.scope.clone(),
            failure,
        })?;
        Ok(Session { observer, writer: Arc::new(writer), ledger_page })
    }

    /// One full pass.
    pub async fn pass(&mut self, bound: &Bound<S>) -> Result<Report<S>, Error> {
        let input = bound.pass_input(Arc::clone(&bound.desired), &bound.config, Focus::All);
        pass::pass(&input, &mut self.observer, &self.writer, &mut self.ledger_page).await
    }
}
