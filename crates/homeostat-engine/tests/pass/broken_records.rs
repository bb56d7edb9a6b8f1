//! Records that cannot be read: they hold back their own keys, and stay.

use homeostat_engine::{Edit, Ledger as _, Pages as _};

use crate::Toys;
use crate::common::rig::place;

fn breaks(rig: &Toys, key: &str) {
    let edit = Edit::Put { key: key.to_owned(), record: "{}".to_owned() };
    rig.ledger.write(&place(), &[edit]).unwrap();
}

fn stored(rig: &Toys, key: &str) -> Option<String> {
    let records = rig.ledger.page(&place()).unwrap().records;
    records.into_iter().find(|(stored, _)| stored == key).map(|(_, record)| record)
}

#[test]
fn a_record_that_cannot_be_read_holds_back_its_key_alone() {
    // Drifted, gone, not declared any more, and as declared.
    for (rows, desired) in [
        ("a=7@unmarked k=5@nobody", "a=1 b=2 k=1"),
        ("a=7@unmarked", "a=1 b=2 k=1"),
        ("a=7@unmarked k=5@nobody", "a=1 b=2"),
        ("a=7@unmarked k=1@nobody", "a=1 b=2 k=1"),
    ] {
        let mut rig = Toys::checkpoint("k=0@nobody");
        assert_eq!(rig.pass("a=1 k=1"), ["create a", "update k", "converged"]);
        breaks(&rig, "k");
        rig.restart();
        rig.world.loses("k");
        rig.world.holds(rows);
        let lines = rig.pass(desired);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!(lines[..2], ["update a", "create b"], "{rows}");
        assert!(lines[2].starts_with("unknown k: its record in the ledger cannot be read"));
        assert!(lines[2].contains("or forget the key"), "{lines:?}");
        assert_eq!(lines[3], "not converged");
        let left = rows.replace("a=7", "a=1").replace("@unmarked", "@unmarked b=2@unmarked");
        assert_eq!(rig.world.text(), left, "the key is left as it is");
        assert_eq!(stored(&rig, "k").as_deref(), Some("{}"), "the record stays");
        rig.assert_quiet(desired);
    }
}

#[test]
fn a_focused_pass_leaves_a_key_alone_whose_record_cannot_be_read() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.pass("a=1 k=1");
    breaks(&rig, "k");
    rig.restart();
    rig.pass("a=1 k=1");
    rig.world.holds("a=7@unmarked k=5@nobody");
    assert_eq!(rig.focused_pass("a=1 k=1", "a"), ["update a", "converged"]);
    assert!(rig.focused_pass("a=1 k=1", "k")[0].starts_with("unknown k: its record"));
    assert_eq!(rig.world.text(), "a=1@unmarked k=5@nobody");
}

#[test]
fn a_marked_object_whose_record_cannot_be_read_is_not_deleted() {
    let mut rig = Toys::marked("");
    rig.pass("a=1 b=1");
    breaks(&rig, "a");
    rig.restart();
    let lines = rig.pass("");
    assert_eq!((&*lines[0], lines[1].starts_with("unknown a: ")), ("delete b", true), "{lines:?}");
    assert_eq!(rig.world.text(), "a=1@ours");
}
