//! How fast records become durable, and how fast a journal is read after a crash.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use homeostat_engine::journal::{End, Intent, Journal, Millis, Repeat, Subject};
use homeostat_engine::{Edit, Ledger as _, LedgerKey, SqliteLedger};
use serde_json::Value;

use crate::{Budget, Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        // Records of the journal a second; a step is two of them. Each writer waits until its record is durable.
        Group::new("journal: durable lines", Unit::PerSecond)
            .with("one fdatasync a line", one_by_one, &[])
            .with("SQLite, one commit a line", sqlite, &[])
            .with("homeostat, 1 writer", |run| writers(run, 1), &[])
            .with("homeostat, 16 writers", |run| writers(run, 16), &[])
            .with(
                "homeostat, 64 writers",
                |run| writers(run, 64),
                &[Budget::Faster(10.0, "one fdatasync a line")],
            )
            .with("homeostat, 256 writers", |run| writers(run, 256), &[]),
        // A million records, one step each of half a million guests.
        Group::new("journal: recovery of 1M lines", Unit::Seconds)
            .with("read the file", read, &[])
            .with("homeostat", recover, &[]),
    ]
}

fn intent(guest: usize) -> Intent {
    let [source, scope] = ["guests", "pve.example"].map(str::to_owned);
    Intent {
        subject: Subject { source, scope, key: format!("guest {guest}") },
        kind: "start".to_owned(),
        parameters: "9f86d081884c7d65".to_owned(),
        precondition: Some("digest 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12".to_owned()),
        node: "pve1".to_owned(),
        repeat: Repeat::Hurts,
        command: None,
    }
}

fn open(directory: &Path) -> Result<Journal> {
    Ok(Journal::open(directory, Arc::new(|| Millis(1_700_000_000_000)))?)
}

fn one_by_one(run: &mut Run) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut options = OpenOptions::new();
    let mut file = options.create(true).append(true).open(directory.path().join("log"))?;
    let count = run.size(500, 50);
    run.time(count, || -> Result<()> {
        for guest in 0..count {
            file.write_all(format!("{:?}\n", intent(guest)).as_bytes())?;
            file.sync_data()?;
        }
        Ok(())
    })
}

fn sqlite(run: &mut Run) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let ledger = SqliteLedger::open(directory.path())?;
    let place = LedgerKey::new("default", "guests", "pve").with_identity("pve");
    let count = run.size(500, 50);
    run.time(count, || -> Result<()> {
        for guest in 0..count {
            let record = format!("{:?}", intent(guest));
            ledger.write(&place, &[Edit::Put { key: format!("guest {guest}"), record }])?;
        }
        Ok(())
    })
}

fn writers(run: &mut Run, writers: usize) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let journal = open(directory.path())?;
    let each = run.size(100, 10);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let work = async {
        let all = (0..writers).map(|guest| live(&journal, guest, each));
        futures_util::future::try_join_all(all).await
    };
    run.time(writers * each * 2, || runtime.block_on(work))?;
    Ok(())
}

async fn live(journal: &Journal, guest: usize, steps: usize) -> Result<()> {
    for _ in 0..steps {
        let id = journal.begin(intent(guest)).await?;
        journal.end(id, End::Succeeded { answer: Value::Null }).await?;
    }
    Ok(())
}

/// A journal of so many records that are all still needed: one step each of many guests.
fn long_life(lines: usize) -> Result<tempfile::TempDir> {
    const AT_ONCE: usize = 1000;
    let directory = tempfile::tempdir()?;
    let journal = open(directory.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for first in (0..lines / 2).step_by(AT_ONCE) {
        let steps = (first..first + AT_ONCE).map(|guest| live(&journal, guest, 1));
        runtime.block_on(futures_util::future::try_join_all(steps))?;
    }
    Ok(directory)
}

fn read(run: &mut Run) -> Result<()> {
    let directory = long_life(run.size(1_000_000, 10_000))?;
    let bytes = run.time(1, || fs::read(directory.path().join("journal")))?;
    ensure!(!bytes.is_empty(), "nothing was written");
    Ok(())
}

fn recover(run: &mut Run) -> Result<()> {
    let directory = long_life(run.size(1_000_000, 10_000))?;
    let journal = run.time(1, || open(directory.path()))?;
    ensure!(journal.open_steps().is_empty(), "all steps have ended");
    Ok(())
}
