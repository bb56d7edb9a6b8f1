//! What the journal records of a guest.

use homeostat_engine::journal::{End, Fact, Record, follow};

use crate::ground::{Ground, key};

/// The records of one guest: the kind of each step, and what became of it, with the target's words.
pub(crate) fn journal_of(ground: &Ground, vmid: u32) -> Vec<String> {
    let records: Vec<Record> = follow(ground.state.path()).more().unwrap();
    let is_about = |record: &Record| match &record.fact {
        Fact::Intent(intent) => intent.subject.key == key(vmid).to_string(),
        _ => false,
    };
    let ids: Vec<_> = records.iter().filter(|one| is_about(one)).map(|one| one.id).collect();
    let about = records.into_iter().filter(|one| ids.contains(&one.id));
    let words = about.map(|record| match record.fact {
        Fact::Intent(intent) => intent.kind,
        Fact::Dispatched { .. } => "dispatched".to_owned(),
        Fact::Ended(End::Succeeded { .. }) => "succeeded".to_owned(),
        Fact::Ended(End::Failed { why }) => format!("failed: {why}"),
        Fact::Ended(End::Unknown { why }) => format!("unknown: {why}"),
    });
    words.collect()
}
