//! A source in a namespace with everything that a pass needs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use homeostat_engine::{
    Action, Alone, Config, Explain as _, Focus, Hint, LedgerKey, LedgerPage, MassDelete,
    MemoryLedger, Observer, Ownership, PassInput, Report, Source, Summary, pass,
};
use tokio::runtime::Runtime;

const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Fixture<S: Source> {
    source: S,
    desired: Arc<S::Desired>,
    observer: Observer<S>,
    writer: S::Writer,
    page: LedgerPage<S>,
    config: Config<S::Key>,
    runtime: Runtime,
}

pub(super) fn place(source: &str) -> LedgerKey {
    LedgerKey::new("default", source, "bench")
}

impl<S: Source> Fixture<S> {
    /// Opens a source in its namespace, as a loop does.
    pub(super) fn with_hints(source: S, desired: Arc<S::Desired>) -> Result<Self> {
        let observer = Observer::open(&source, "bench")?;
        Self::with(source, desired, observer)
    }

    /// Opens it for one pass, as `apply` does.
    pub(super) fn without_hints(source: S, desired: Arc<S::Desired>) -> Result<Self> {
        let observer = Observer::without_hints(&source, "bench")?;
        Self::with(source, desired, observer)
    }

    fn with(source: S, desired: Arc<S::Desired>, observer: Observer<S>) -> Result<Self> {
        let mut config = Config::default();
        config.guards.mass_delete = MassDelete::Allow;
        Ok(Fixture {
            desired,
            observer,
            writer: source.writer(&Alone::i_am_the_only_writer())?,
            page: LedgerPage::open(Arc::new(MemoryLedger::default()), place(S::NAME))?,
            config,
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            source,
        })
    }

    pub(super) fn pass(&mut self, focus: Focus<S::Key>) -> Result<Report<S>> {
        let Fixture { source, desired, observer, writer, page, config, runtime } = self;
        let (desired, ownership) = (Arc::clone(desired), &Ownership::Marked);
        let order = PassInput { source, desired, ownership, focus, config };
        Ok(runtime.block_on(pass(&order, observer, writer, page))?)
    }

    /// Makes a full pass, which must change nothing.
    pub(super) fn synced(mut self) -> Result<Self> {
        expect(&self.pass(Focus::All)?, [])?;
        Ok(self)
    }

    /// Waits until a hint names a key.
    pub(super) fn await_hint(&mut self, key: &S::Key) -> Result<()> {
        loop {
            match self.hint(TIMEOUT)?.with_context(|| format!("no hint for {key}"))? {
                Hint::Keys(keys) if keys.contains_key(key) => return Ok(()),
                Hint::Lost => bail!("hints were lost, that for {key} among them"),
                // The echo of an earlier write of ours.
                Hint::Keys(_) => {}
            }
        }
    }

    /// Discards all hints so far.
    pub(super) fn drain(&mut self) -> Result<()> {
        while self.hint(Duration::from_millis(20))?.is_some() {}
        Ok(())
    }

    /// The next hint, if one arrives in time.
    pub(super) fn hint(&mut self, timeout: Duration) -> Result<Option<Hint<S::Key>>> {
        let Fixture { observer, runtime, .. } = self;
        let hint = runtime.block_on(async { tokio::time::timeout(timeout, observer.hint()).await });
        Ok(hint.ok().transpose()?)
    }
}

/// Fails unless the pass has converged with exactly these changes.
/// Expects that a pass made these changes, and is converged.
pub(super) fn expect<S: Source>(
    report: &Report<S>,
    changes: impl IntoIterator<Item = Action>,
) -> Result<()> {
    ensure!(report.is_converged(), "not converged");
    let (made, expected) = (report.summary(), Summary::from_iter(changes));
    ensure!(made == expected, "{made:?} instead of {expected:?}");
    Ok(())
}
