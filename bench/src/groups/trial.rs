//! A trial that replaces a full Internet table by another one, and its rollback.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::document::Document;
use super::network::TestNetwork;
use super::wire::Ip;
use crate::program::Running;
use crate::{Budget, Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        Group::new("trial: 1M routes replaced by 1M others", Unit::Seconds)
            .with("apply", apply, &[])
            .with("rollback", roll_back, &[Budget::Within(1.2, "apply")]),
    ]
}

/// A daemon with routes, whose trial replaces all of them.
struct Kept {
    // Dropped first, so that it ends before the routes are deleted.
    _running: Running,
    /// The client of the open trial.
    client: Option<Running>,
    before: Document,
    tried: Document,
    network: TestNetwork,
    size: usize,
}

thread_local! {
    // The two contestants take turns: what the first one tries, the second one rolls back.
    static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

fn with(run: &mut Run, act: impl FnOnce(&mut Run, &mut Kept) -> Result<()>) -> Result<()> {
    KEPT.with_borrow_mut(|kept| match kept {
        Some(kept) => act(run, kept),
        none => {
            let kept = Kept::start(run)?;
            act(run, none.insert(kept))
        }
    })
}

impl Kept {
    fn start(run: &Run) -> Result<Self> {
        let size = run.size(1_000_000, 10_000);
        let network = TestNetwork::new()?;
        let before = Document::of_routes(0..size, "")?;
        let tried = Document::of_routes(size..2 * size, "")?;
        let running = before.keep()?;
        Ok(Kept { _running: running, client: None, before, tried, network, size })
    }

    fn expect_routes(&self, from: usize) -> Result<()> {
        self.network.expect(Ip::V4, self.size)?;
        for number in [from, from + self.size - 1] {
            let (destination, length) = Ip::V4.destination(number);
            let route = format!("{destination}/{length}");
            let found = self.network.listed(&["route", "show", &route])?;
            ensure!(found.as_array().is_some_and(|list| list.len() == 1), "no route {route}");
        }
        Ok(())
    }
}

/// From the command to the moment when everything is as the tried document declares.
fn apply(run: &mut Run) -> Result<()> {
    with(run, |run, kept| {
        kept.network.enter()?;
        ensure!(kept.client.is_none(), "a trial is open");
        run.time(kept.size, || {
            let options = ["apply", "--yes", "--allow-mass-delete", "--confirm-within", "1h"];
            kept.client = Some(kept.before.begin(&options, &kept.tried)?);
            while !kept.before.is_open_trial()? {
                std::thread::sleep(Duration::from_millis(1));
            }
            kept.before.ask(&["status", "--wait", "--timeout", "5m"])
        })?;
        kept.expect_routes(kept.size)?;
        // What the former document declares needs no record of its own.
        let recorded = kept.before.len_of_undo_list();
        ensure!(recorded < 1 << 16, "the undo list has {recorded} bytes");
        Ok(())
    })
}

fn roll_back(run: &mut Run) -> Result<()> {
    with(run, |run, kept| {
        kept.network.enter()?;
        let client = kept.client.take().context("no trial is open")?;
        run.time(kept.size, || kept.before.ask(&["rollback"]))?;
        drop(client);
        kept.expect_routes(0)
    })
}
