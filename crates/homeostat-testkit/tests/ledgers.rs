//! Ledgers that count, and ledgers that die.
#![expect(clippy::disallowed_methods, reason = "this test starts itself again, to die")]

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};

use homeostat_engine::{Edit, Ledger as _, LedgerKey, MemoryLedger};
use homeostat_testkit::ledger::{Cut, Tapped, aborting};

const CHILD: &str = "HOMEOSTAT_TEST_CUT";
const ABORTED: i32 = 6;

fn place() -> LedgerKey {
    LedgerKey::new("o", "s", "here").with_identity("now")
}

fn edit(key: &str) -> [Edit; 1] {
    [Edit::Put { key: key.to_owned(), record: "{}".to_owned() }]
}

#[test]
fn taps_are_called_around_each_write() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (before, after) = (calls.clone(), calls.clone());
    let ledger = Tapped::new(MemoryLedger::default())
        .before(move |number, _| before.lock().unwrap().push(format!("before {number}")))
        .after(move |number, edits| {
            after.lock().unwrap().push(format!("after {number}: {} edits", edits.len()));
        });
    let count = ledger.count();
    ledger.write(&place(), &edit("a")).unwrap();
    ledger.write(&place(), &edit("b")).unwrap();
    assert_eq!(count.writes(), 2);
    let expected = ["before 1", "after 1: 1 edits", "before 2", "after 2: 1 edits"];
    assert_eq!(*calls.lock().unwrap(), expected);
}

#[test]
fn a_process_dies_at_the_chosen_write_and_at_no_other() {
    if let Ok(cut) = env::var(CHILD) {
        let cut = if cut == "before" { Cut::Before(2) } else { Cut::After(2) };
        let ledger = aborting(MemoryLedger::default(), cut);
        ledger.write(&place(), &edit("a")).unwrap();
        println!("one is written");
        ledger.write(&place(), &edit("b")).unwrap();
        println!("two are written");
        return;
    }
    for cut in ["before", "after"] {
        let name = "a_process_dies_at_the_chosen_write_and_at_no_other";
        let mut child = Command::new(env::current_exe().unwrap());
        let output = child.args([name, "--exact", "--nocapture"]).env(CHILD, cut).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("one is written") && !text.contains("two are written"), "{text}");
        assert_eq!(output.status.signal(), Some(ABORTED), "{cut}: {text}");
    }
}
