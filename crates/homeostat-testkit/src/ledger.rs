//! Ledgers that observe writes, or abort the process at one: for tests of durability.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_engine::{Edit, Error, Ledger, LedgerKey, Page, Pages};

/// Called at a write with its number, counted from one, and its edits.
type Tap = Box<dyn Fn(u64, &[Edit]) + Send + Sync>;

/// A ledger that calls functions before and after each write.
pub struct Tapped<L> {
    ledger: L,
    writes: Arc<AtomicU64>,
    before: Tap,
    after: Tap,
    life: Mutex<Life>,
}

/// Whether the process that writes is taken for alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    /// Until it has made so many writes more.
    Until(Cut),
    Dead,
}

impl<L> Tapped<L> {
    pub fn new(ledger: L) -> Self {
        let (before, after): (Tap, Tap) = (Box::new(|_, _| {}), Box::new(|_, _| {}));
        Tapped { ledger, writes: Arc::default(), before, after, life: Mutex::new(Life::Alive) }
    }

    /// Refuses every write from a point on, counted from here, as if the process were dead.
    pub fn die_at(&self, cut: Cut) {
        *self.life() = Life::Until(cut);
    }

    /// Takes writes again. Returns whether the process would have died.
    pub fn revive(&self) -> bool {
        std::mem::replace(&mut *self.life(), Life::Alive) == Life::Dead
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Dies if this is the point; an error once it is dead.
    fn live(&self, point: Cut) -> Result<(), Error> {
        let mut life = self.life();
        *life = match (*life, point) {
            (Life::Until(Cut::Before(1)), Cut::Before(_))
            | (Life::Until(Cut::After(1)), Cut::After(_)) => Life::Dead,
            (Life::Until(Cut::Before(left)), Cut::After(_)) => Life::Until(Cut::Before(left - 1)),
            (Life::Until(Cut::After(left)), Cut::After(_)) => Life::Until(Cut::After(left - 1)),
            (life, _) => life,
        };
        match *life {
            Life::Dead => Err(Error::WriteLedger("the process is dead".into())),
            _ => Ok(()),
        }
    }

    /// Calls `tap` before each write.
    #[must_use]
    pub fn before(mut self, tap: impl Fn(u64, &[Edit]) + Send + Sync + 'static) -> Self {
        self.before = Box::new(tap);
        self
    }

    /// Calls `tap` after each write, when it is durable.
    #[must_use]
    pub fn after(mut self, tap: impl Fn(u64, &[Edit]) + Send + Sync + 'static) -> Self {
        self.after = Box::new(tap);
        self
    }

    /// A handle to the number of writes.
    #[must_use]
    pub fn count(&self) -> Count {
        Count(self.writes.clone())
    }
}

#[derive(Clone, Debug)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<L: Pages> Pages for Tapped<L> {
    fn page(&self, ledger_key: &LedgerKey) -> Result<Page, Error> {
        self.ledger.page(ledger_key)
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        self.ledger.places(owner)
    }
}

impl<L: Ledger> Ledger for Tapped<L> {
    fn write(&self, ledger_key: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        (self.before)(number, edits);
        self.live(Cut::Before(number))?;
        self.ledger.write(ledger_key, edits)?;
        (self.after)(number, edits);
        self.live(Cut::After(number))
    }
}

/// Where a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Before the write with this number, counted from one.
    Before(u64),
    After(u64),
}

/// A ledger that aborts the process at one of its writes, for tests that start themselves again as a child.
pub fn aborting<L: Ledger>(ledger: L, cut: Cut) -> Tapped<L> {
    let at = move |here: Cut| {
        if here == cut {
            std::process::abort();
        }
    };
    Tapped::new(ledger)
        .before(move |number, _| at(Cut::Before(number)))
        .after(move |number, _| at(Cut::After(number)))
}
