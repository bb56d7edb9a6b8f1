//! Homeostat over a namespace: the source, a wish, and everything that a pass needs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use homeostat_engine::{
    Alone, Book, Config, Explain as _, Focus, Guards, Hint, MassDelete, MemoryLedger, Observer,
    Order, Ownership, Place, Report, Source as _, Summary, pass,
};
use homeostat_rtnl::{Key, Net, Route, RouteKey, Rtnl, Wish, Writer};
use tokio::runtime::Runtime;

use super::super::wire::Ip;

const PATIENCE: Duration = Duration::from_secs(20);

/// A wish for these routes.
pub(super) fn wish(ip: Ip, numbers: std::ops::Range<usize>) -> Result<Wish> {
    let mut builder = Wish::builder();
    for number in numbers {
        builder.route(route_key(ip, number)?, Route::via(ip.gateway()))?;
    }
    Ok(builder.build()?)
}

/// The key of a route by its number.
pub(super) fn key(ip: Ip, number: usize) -> Result<Key> {
    Ok(route_key(ip, number)?.into())
}

fn route_key(ip: Ip, number: usize) -> Result<RouteKey> {
    let (dst, len) = ip.destination(number);
    Ok(RouteKey::new(Net::new(dst, len)?))
}

/// A bound source with all that a pass needs.
pub(super) struct Scene {
    source: Rtnl,
    wish: Arc<Wish>,
    observer: Observer<Rtnl>,
    writer: Writer,
    book: Book<Rtnl>,
    config: Config<Key>,
    runtime: Runtime,
}

impl Scene {
    /// Opens the source in the calling thread's namespace, as a loop does.
    pub(super) fn open(wish: impl Into<Arc<Wish>>) -> Result<Self> {
        let source = Rtnl::here();
        let observer = Observer::open(&source, "bench")?;
        Self::with(wish, source, observer)
    }

    /// Opens it for one pass, as `apply` does: nobody will ask for hints.
    pub(super) fn once(wish: impl Into<Arc<Wish>>) -> Result<Self> {
        let source = Rtnl::here();
        let observer = Observer::without_hints(&source, "bench")?;
        Self::with(wish, source, observer)
    }

    fn with(wish: impl Into<Arc<Wish>>, source: Rtnl, observer: Observer<Rtnl>) -> Result<Self> {
        let [owner, name, scope, identity] = ["default", "rtnl", "bench", ""].map(str::to_owned);
        let place = Place { owner, source: name, scope, identity };
        let guards = Guards { mass_delete: MassDelete::Allow, ..Guards::default() };
        Ok(Scene {
            wish: wish.into(),
            observer,
            writer: source.writer(&Alone::i_am_the_only_writer())?,
            book: Book::open(Arc::new(MemoryLedger::default()), place)?,
            config: Config { guards, ..Config::default() },
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            source,
        })
    }

    /// Closes the source.
    pub(super) fn into_wish(self) -> Arc<Wish> {
        self.wish
    }

    /// One pass.
    pub(super) fn pass(&mut self, focus: Focus<Key>) -> Result<Report<Rtnl>> {
        let Scene { source, wish, observer, writer, book, config, runtime } = self;
        let (wish, ownership) = (Arc::clone(wish), &Ownership::Marked);
        let order = Order { source, wish, ownership, focus, config };
        Ok(runtime.block_on(pass(&order, observer, writer, book))?)
    }

    /// A full pass that must find everything as wished.
    pub(super) fn synced(mut self) -> Result<Self> {
        expect(&self.pass(Focus::All)?, Summary::default())?;
        Ok(self)
    }

    /// Waits until a hint names a key.
    pub(super) fn await_hint(&mut self, key: &Key) -> Result<()> {
        loop {
            match self.hint(PATIENCE)?.with_context(|| format!("no hint for {key}"))? {
                Hint::Keys(keys) | Hint::By { keys, .. } if keys.contains(key) => return Ok(()),
                Hint::Lost => bail!("hints were lost, that for {key} among them"),
                // The echo of an earlier write of ours.
                Hint::Keys(_) | Hint::By { .. } => {}
            }
        }
    }

    /// Takes note of all that was heard so far.
    pub(super) fn drain(&mut self) -> Result<()> {
        while self.hint(Duration::from_millis(20))?.is_some() {}
        Ok(())
    }

    /// The next hint, if one comes in time.
    pub(super) fn hint(&mut self, patience: Duration) -> Result<Option<Hint<Key>>> {
        let Scene { observer, runtime, .. } = self;
        let heard =
            runtime.block_on(async { tokio::time::timeout(patience, observer.hint()).await });
        Ok(heard.ok().transpose()?)
    }
}

/// Fails unless a pass converged by just these changes.
pub(super) fn expect(report: &Report<Rtnl>, summary: Summary) -> Result<()> {
    ensure!(report.is_converged(), "not converged");
    let changes = report.summary();
    ensure!(changes == summary, "{changes:?} instead of {summary:?}");
    Ok(())
}
