//! Whole passes over a million routes in memory: observe, diff, plan, apply, verify, record.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use anyhow::{Result, bail, ensure};
use homeostat_engine::{
    Alone, Book, Config, Explain as _, Focus, LedgerKey, MemoryLedger, Observer, Order, Ownership,
    Report, Source as _, Summary, pass,
};

use super::routes::{DesiredState, Key, Routes, Table};
use crate::{Budget, Contestant, Group, Run, Unit};

/// From nothing to everything. The floor writes and reads the same table without an engine.
pub const COLD: Group = Group {
    name: "pass: 1M cold",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("write and read back", floor, &[]),
        Contestant::new("homeostat", cold, &[Budget::AtMost(0.3)]),
    ],
};

/// Everything is as declared.
pub const CONVERGED: Group = Group {
    name: "pass: 1M converged",
    unit: Unit::Seconds,
    contestants: &[Contestant::new(
        "homeostat",
        converged,
        &[Budget::AtMost(0.05), Budget::BytesEach(1.0)],
    )],
};

/// One route was deleted by another process.
pub const HEAL: Group = Group {
    name: "pass: heal one, 1000 times",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("of 100", |run| heal(run, 100), &[]),
        Contestant::new("of 1M", |run| heal(run, 1_000_000), &[Budget::Within(1.5, "of 100")]),
    ],
};

struct Fixture {
    source: Routes,
    desired: Arc<DesiredState>,
    observer: Observer<Routes>,
    writer: Table,
    book: Book<Routes>,
}

impl Fixture {
    fn new(size: usize) -> Result<Self> {
        let source = Routes(Table::new(size));
        let [owner, name, scope, identity] = ["default", "routes", "host", ""].map(str::to_owned);
        let place = LedgerKey { owner, source: name, scope, identity };
        Ok(Fixture {
            desired: Arc::new(DesiredState::new(size)),
            observer: Observer::open(&source, "host")?,
            writer: source.writer(&Alone::i_am_the_only_writer())?,
            book: Book::open(Arc::new(MemoryLedger::default()), place)?,
            source,
        })
    }

    fn pass(&mut self, focus: Focus<Key>) -> Result<Report<Routes>> {
        let order = Order {
            source: &self.source,
            desired: Arc::clone(&self.desired),
            ownership: &Ownership::Marked,
            focus,
            config: &Config::default(),
        };
        let pass = pass(&order, &mut self.observer, &self.writer, &mut self.book);
        Ok(at_once(pass)??)
    }
}

/// Polls once: nothing here waits.
fn at_once<T>(future: impl Future<Output = T>) -> Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => bail!("the pass waits for something"),
    }
}

fn floor(run: &mut Run) -> Result<()> {
    let size = run.size(1_000_000, 10_000);
    let table = Table::new(size);
    let kept = run.time(size, || {
        let mut routes = table.routes();
        routes.iter_mut().for_each(|route| *route = Some(1));
        routes.iter().flatten().count()
    });
    ensure!(kept == size, "kept {kept} routes");
    Ok(())
}

fn cold(run: &mut Run) -> Result<()> {
    let size = run.size(1_000_000, 10_000);
    let mut fixture = Fixture::new(size)?;
    let report = run.time_and_weigh(size, || fixture.pass(Focus::All))?;
    ensure!(report.is_converged(), "not converged");
    ensure!(report.summary() == Summary { create: size, ..Summary::default() }, "other changes");
    Ok(())
}

fn converged(run: &mut Run) -> Result<()> {
    let size = run.size(1_000_000, 10_000);
    let mut fixture = Fixture::new(size)?;
    fixture.pass(Focus::All)?;
    let report = run.time_and_weigh(size, || fixture.pass(Focus::All))?;
    ensure!(report.is_converged() && report.summary().total() == 0, "wrote something");
    Ok(())
}

fn heal(run: &mut Run, size: usize) -> Result<()> {
    const HEALS: u32 = 1000;
    let size = run.size(size, size.min(10_000));
    let mut fixture = Fixture::new(size)?;
    fixture.pass(Focus::All)?;
    let stride = u32::try_from(size)? / 100;
    let healed = run.time(HEALS as usize, || -> Result<u32> {
        let mut healed = 0;
        for nth in 0..HEALS {
            let key = Key(nth % 100 * stride);
            if let Some(route) = fixture.source.0.routes().get_mut(key.0 as usize) {
                *route = None;
            }
            let report = fixture.pass(Focus::Keys([key].into()))?;
            healed += u32::from(report.is_converged() && report.summary().create == 1);
        }
        Ok(healed)
    })?;
    ensure!(healed == HEALS, "healed {healed} of {HEALS}");
    Ok(())
}
