//! How fast records become durable.

use std::fs::OpenOptions;
use std::io::Write as _;

use anyhow::Result;
use homeostat_engine::{Edit, Ledger as _, LedgerKey, Pages as _, SqliteLedger};

use crate::{Contestant, Group, Run, Unit};

/// Records of 200 bytes, each durable before the next; and in groups, as a pass writes them.
pub const GROUP: Group = Group {
    name: "ledger: durable records",
    unit: Unit::PerSecond,
    contestants: &[
        Contestant::new("append and fdatasync", append, &[]),
        Contestant::new("homeostat, one a commit", |run| commits(run, 1), &[]),
        Contestant::new("homeostat, 16 a commit", |run| commits(run, 16), &[]),
        Contestant::new("homeostat, 1000 a commit", |run| commits(run, 1000), &[]),
        Contestant::new("homeostat, read back", read, &[]),
    ],
};

fn record(number: usize) -> Edit {
    Edit::Put { key: format!("sysctl net.test.{number}"), record: "x".repeat(200) }
}

fn place() -> LedgerKey {
    LedgerKey {
        owner: "default".into(),
        source: "knobs".into(),
        scope: "host".into(),
        identity: "boot 1, netns 1".into(),
    }
}

fn append(run: &mut Run) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("log");
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let count = run.size(500, 50);
    run.time(count, || -> Result<()> {
        for number in 0..count {
            let line = format!("{:?}\n", record(number));
            file.write_all(line.as_bytes())?;
            file.sync_data()?;
        }
        Ok(())
    })
}

fn commits(run: &mut Run, group: usize) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let ledger = SqliteLedger::open(directory.path())?;
    let count = run.size(500, 50).max(group);
    let edits: Vec<Edit> = (0..count).map(record).collect();
    run.time(count, || edits.chunks(group).try_for_each(|edits| ledger.write(&place(), edits)))?;
    Ok(())
}

fn read(run: &mut Run) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let ledger = SqliteLedger::open(directory.path())?;
    let count = run.size(10_000, 1000);
    let edits: Vec<Edit> = (0..count).map(record).collect();
    ledger.write(&place(), &edits)?;
    let page = run.time(count, || ledger.page(&place()))?;
    anyhow::ensure!(page.records.len() == count, "lost records");
    Ok(())
}
