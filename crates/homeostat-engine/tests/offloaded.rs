//! A ledger that waits for its disk holds up no other task of the thread that a loop shares.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, Control as _, Edit, Error, Hints, Ledger, LedgerKey, Loop, LoopDeps,
    MemoryLedger, OnStop, Ownership, Pace, Page, Pages, Session, Table,
};
use homeostat_testkit::memory::{Independent, Memory, Target};

/// A ledger each of whose calls waits until the other task of the thread has let it go on.
struct Waiting {
    ledger: MemoryLedger,
    calls: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Waiting {
    fn wait(&self) {
        self.calls.send(()).unwrap();
        // Long enough for any machine; on the thread of the runtime the other task would never come to let it go on.
        let waited = self.go_on.lock().unwrap().recv_timeout(Duration::from_mins(1));
        waited.expect("the ledger blocks the thread of the runtime");
    }
}

impl Pages for Waiting {
    fn page(&self, at: &LedgerKey) -> Result<Page, Error> {
        self.wait();
        self.ledger.page(at)
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        self.ledger.places(owner)
    }
}

impl Ledger for Waiting {
    fn write(&self, at: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        self.wait();
        self.ledger.write(at, edits)
    }

    fn check(&self) -> Result<(), Error> {
        self.wait();
        Ok(())
    }

    fn is_offloaded(&self) -> bool {
        true
    }
}

fn bound() -> Bound<Memory<Independent>> {
    let declared = [("door".to_owned(), "green".to_owned())];
    let (source, place) =
        (Memory::unmarked(Target::default()), LedgerKey::new("me", "doors", "here"));
    Bound::new(source, Table::new(declared).unwrap(), Ownership::Checkpoint, place)
}

#[tokio::test(flavor = "current_thread")]
async fn a_session_is_opened_while_other_tasks_of_the_thread_go_on() {
    let (calls, called) = channel();
    let (let_go, go_on) = channel();
    let ledger = Waiting { ledger: MemoryLedger::default(), calls, go_on: Mutex::new(go_on) };
    let (bound, lock) = (bound(), Alone::i_am_the_only_writer());
    let opening = Session::open(&bound, &lock, Arc::new(ledger), Hints::Ignore);
    let other_task = async {
        while called.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        let_go.send(()).unwrap();
    };
    let (session, ()) = tokio::join!(opening, other_task);
    assert!(session.is_ok());
}

#[tokio::test(flavor = "current_thread")]
async fn a_ledger_that_waits_holds_up_no_other_task() {
    let (calls, called) = channel();
    let (let_go, go_on) = channel();
    let ledger = Waiting { ledger: MemoryLedger::default(), calls, go_on: Mutex::new(go_on) };
    let bound = bound();
    let deps = LoopDeps::new(Alone::i_am_the_only_writer(), Arc::new(ledger));
    let (looped, handle) = Loop::new(bound, deps, Pace::of::<Memory<Independent>>(1));
    let working = async {
        let report = handle.pass().await.unwrap().unwrap();
        handle.stop(OnStop::Release).await;
        report
    };
    let mut calls = 0;
    let other_task = async {
        loop {
            tokio::task::yield_now().await;
            if called.try_recv().is_ok() {
                calls += 1;
                let_go.send(()).unwrap();
            }
        }
    };
    let (report, ()) = tokio::select! {
        done = async { tokio::join!(working, looped.run()) } => done,
        () = other_task => unreachable!("it never ends"),
    };
    // The page is read, the intent is written, the file is checked, the outcome is written, and all of it is forgotten.
    assert!(calls >= 5, "{calls}");
    assert!(report.is_converged());
}
