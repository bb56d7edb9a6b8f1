//! What a fleet has in its store, as JSON.
//!
//! Each record has a `format`. A record of another format is refused as a whole; fields that are not known are ignored, so
//! a newer version may add hints, but whatever changes the meaning of a record needs a new format. Signed bytes are
//! stored and judged as they are: [`SignedStatement`] has the text, and [`Statement::parse`] is for verified text only.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_document::Period;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::merkle::{Class, Leaf};
use crate::{Digest, Error, Name, Time};

/// The format of all records of this version.
pub const FORMAT: u64 = 1;

/// No statement is larger: nodes read it before they can know who wrote it.
pub const LARGEST_STATEMENT: usize = 64 * 1024;

/// A status, written as JSON, is never larger.
pub const LARGEST_STATUS: usize = 1024;

/// What a record is called in messages.
pub trait Record: Serialize + DeserializeOwned {
    const NAME: &'static str;

    /// Refuses other formats, and what follows the record.
    fn read(bytes: &[u8]) -> Result<Self, Error> {
        let unreadable =
            |error: serde_json::Error| Error::Record { record: Self::NAME, why: error.to_string() };
        let Header { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if format != FORMAT {
            return Err(Error::Format { record: Self::NAME, found: format, known: FORMAT });
        }
        serde_json::from_slice(bytes).map_err(unreadable)
    }

    /// With its format, on one line.
    fn write(&self) -> Vec<u8> {
        // These types have no maps with keys that are no text, and nothing else can fail.
        serde_json::to_vec(&Written { format: FORMAT, record: self }).unwrap_or_default()
    }
}

#[derive(Deserialize)]
struct Header {
    format: u64,
}

#[derive(Serialize)]
struct Written<'a, R> {
    format: u64,
    #[serde(flatten)]
    record: &'a R,
}

/// `rollout/ID/statement`: what operators have signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedStatement {
    /// The signed bytes, as text.
    pub statement: String,
    /// As `ssh-keygen -Y sign` writes them.
    pub signatures: Vec<String>,
}

/// A rollout: who gets documents of which tree, in which waves, and when it stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    pub fleet: Name,
    pub id: Name,
    /// Grows with each statement of a fleet: nodes never go back to an older one.
    pub generation: u64,
    /// No node begins with it later.
    pub not_after: Time,
    /// Of the [tree](crate::merkle) over all nodes.
    pub root: Digest,
    pub nodes: u64,
    /// Each says how many nodes have been reached with it, in the order of the leaves. The last one reaches all.
    pub waves: Vec<Wave>,
    pub max_in_flight: u64,
    /// With more failed nodes than this, the rollout stops and every touched node goes to its fallback.
    pub max_failed: u64,
    /// How long a node is converged without a break before its trial has passed.
    pub settle: Period,
    pub confirm_within: Period,
    /// The pause after each wave.
    pub soak: Period,
    /// What the guards of nodes let through: `mass-delete`, `cascades`. Others mean nothing.
    #[serde(default)]
    pub accept: Vec<String>,
    /// Nodes answer with their plan, and apply nothing.
    #[serde(default)]
    pub plan: bool,
}

/// How far a wave reaches: all nodes up to this one, those of earlier waves included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wave {
    Nodes(u64),
    Percent(u8),
}

/// `leaves/ID/PART`: the leaves of the tree, in order. They are not signed one by one: the root is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaves {
    pub leaves: Vec<Leaf>,
}

/// `rollout/ID/request`: what the operator asks of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub verb: Verb,
    /// Grows with each request, so that a second `run` is noticed.
    pub serial: u64,
    /// Who asked, for people.
    #[serde(default)]
    pub by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    Run,
    Pause,
    Abort,
}

/// `rollout/ID/state`: how far the coordinator is. Every act of a rollout writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub rollout: Name,
    pub generation: u64,
    pub phase: Phase,
    /// Counts from 0.
    pub wave: usize,
    /// When all nodes of the wave were done: the soak begins.
    pub complete: Option<Time>,
    /// Why it is paused or has stopped, or what it waits for.
    pub why: Option<Why>,
    /// Nodes that were absent when their wave came. Nothing waits for them; they count if they return and fail.
    pub set_aside: BTreeSet<Name>,
    /// The last request to run that was carried out.
    pub request: u64,
    /// How many acts there have been.
    pub acts: u64,
    pub counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Running,
    /// Nothing is assigned.
    Paused,
    /// Every touched node is sent to its fallback.
    Stopping,
    /// All waves are done.
    Done,
    /// Every touched node has its fallback.
    Stopped,
    /// Some node belongs to a newer rollout.
    Superseded,
}

/// Why a rollout does not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "because")]
pub enum Why {
    /// An operator asked for it.
    Asked,
    /// A node has accepted a newer generation than this one: the store was set back.
    StoreBehind {
        node: Name,
        accepted: u64,
    },
    Expired {
        since: Time,
    },
    /// Most of a wave is absent: this is the store or the network, not the document.
    MostAbsent {
        absent: u64,
        wave: u64,
    },
    /// These nodes failed; at most ten are named.
    Failed {
        count: u64,
        nodes: Vec<Name>,
    },
    Newer {
        node: Name,
        generation: u64,
    },
    /// What the node shall have cannot be understood, so nothing is known of the node; a newer version may have written it.
    Unreadable {
        node: Name,
        why: String,
    },
    /// The statement or its leaves cannot be followed.
    Unusable {
        why: String,
    },
    /// These nodes were good and are not as declared any more; at most ten are named. The next wave waits for them.
    Diverged {
        count: u64,
        nodes: Vec<Name>,
    },
}

/// At the last act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub nodes: u64,
    pub touched: u64,
    pub good: u64,
    pub failed: u64,
    pub in_flight: u64,
}

/// `node/NODE/want`: what a node shall have. It has all of its leaf, so that the node can check the proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    pub rollout: Name,
    pub generation: u64,
    pub take: Take,
    pub document: Digest,
    pub fallback: Digest,
    pub class: Class,
    pub index: u64,
    pub proof: Vec<Digest>,
    /// When it was written, for the coordinator alone.
    pub at: Time,
}

/// Which of the two signed documents a node takes. In one generation the fallback is the later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Take {
    Document,
    Fallback,
}

/// What a node has accepted last: it never goes back behind it. The node keeps it durably before it applies anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Accepted {
    pub generation: u64,
    pub take: Take,
    pub document: Digest,
}

/// `status/NODE`: the level at a node. `generation`, `take` and `document` say what the rest is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub generation: u64,
    pub take: Take,
    pub document: Digest,
    pub phase: NodePhase,
    #[serde(default)]
    pub why: String,
    pub converged: bool,
    pub since: Time,
    pub open: Open,
    /// The newest generation that the node has ever accepted.
    pub accepted: u64,
    /// The version of the program.
    #[serde(default)]
    pub agent: String,
    #[serde(default)]
    pub boot: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodePhase {
    Trial,
    Good,
    /// The trial failed, and the node is back at its last good document. It does not try this one again.
    RolledBack,
    /// The statement, the proof or the document cannot be accepted.
    Refused,
    /// A local hold, a maintenance window, or a step above the signed class.
    Held,
    /// The node cannot see its store, or waits for content.
    Stale,
}

/// Keys that are not as declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    pub failed: u64,
    pub pending: u64,
    pub conflict: u64,
}

/// `alive/NODE`: which machine the node is, under a lease. A second machine of the same name finds it there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// Made of the machine's id, so that it is the same after each boot, and says nothing else.
    pub machine: String,
    pub boot: String,
    /// Of the process: another one on the same machine takes the key over.
    pub process: String,
    /// The version of the program.
    #[serde(default)]
    pub agent: String,
}

/// `plan/NODE`: the answer to a request for a plan, which is a [`Want`] at `node/NODE/plan` whose statement says `plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanAnswer {
    pub rollout: Name,
    pub generation: u64,
    pub document: Digest,
    pub result: PlanResult,
    pub at: Time,
    #[serde(default)]
    pub agent: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanResult {
    Planned {
        /// Nodes with equal plans have equal digests.
        digest: Digest,
        create: u64,
        update: u64,
        delete: u64,
        /// Keys that would not be as declared afterwards.
        open: u64,
        /// The first lines of the plan, for people.
        #[serde(default)]
        lines: Vec<String>,
    },
    /// The statement, the content or the document cannot be used on this node.
    Refused { why: String },
}

/// `inventory/NODE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub groups: Vec<Name>,
    /// Nodes of a lower ring come earlier in a rollout.
    #[serde(default)]
    pub ring: u32,
}

impl Record for SignedStatement {
    const NAME: &'static str = "signed statement";
}
impl Record for Statement {
    const NAME: &'static str = "statement";
}
impl Record for Leaves {
    const NAME: &'static str = "list of leaves";
}
impl Record for Request {
    const NAME: &'static str = "request";
}
impl Record for State {
    const NAME: &'static str = "state of the rollout";
}
impl Record for Want {
    const NAME: &'static str = "want";
}
impl Record for Status {
    const NAME: &'static str = "status";

    /// Texts are cut, so that it fits.
    fn write(&self) -> Vec<u8> {
        let mut status = self.clone();
        cut(&mut status.agent, 32);
        cut(&mut status.boot, 40);
        let mut room = LARGEST_STATUS;
        loop {
            cut(&mut status.why, room);
            let written = Written { format: FORMAT, record: &status };
            let bytes = serde_json::to_vec(&written).unwrap_or_default();
            if bytes.len() <= LARGEST_STATUS || room == 0 {
                return bytes;
            }
            // A letter can need six in JSON, so this may take a few rounds.
            let over = (bytes.len() - LARGEST_STATUS).div_ceil(6).max(1);
            room = status.why.len().saturating_sub(over);
        }
    }
}
impl Record for Alive {
    const NAME: &'static str = "alive key";
}
impl Record for PlanAnswer {
    const NAME: &'static str = "plan";
}
impl Record for Inventory {
    const NAME: &'static str = "inventory";
}

/// Shortens a text to so many bytes, with a sign that it was shortened.
fn cut(text: &mut String, longest: usize) {
    const SIGN: char = '…';
    if text.len() <= longest {
        return;
    }
    let end = text.floor_char_boundary(longest.saturating_sub(SIGN.len_utf8()));
    text.truncate(end);
    if longest >= SIGN.len_utf8() {
        text.push(SIGN);
    }
}

impl Statement {
    /// Reads verified text, and refuses what no rollout could follow.
    pub fn parse(verified: &str) -> Result<Self, Error> {
        let statement = Self::read(verified.as_bytes())?;
        let invalid = |why: &str| Err(Error::Invalid { record: Self::NAME, why: why.to_owned() });
        if statement.generation == 0 {
            return invalid("generations count from 1");
        }
        if statement.nodes == 0 {
            return invalid("it is for no node");
        }
        if statement.max_in_flight == 0 {
            return invalid("`max_in_flight` is 0, so it could never begin");
        }
        if statement.waves.iter().any(|wave| matches!(wave, Wave::Percent(101..))) {
            return invalid("a wave has more than 100 percent");
        }
        if statement.wave_ends().last() != Some(&statement.nodes) {
            return invalid("the last wave does not reach all nodes: end with {\"percent\":100}");
        }
        Ok(statement)
    }

    /// How many nodes each wave reaches, those of earlier waves included. Waves that add no node are left out.
    #[must_use]
    pub fn wave_ends(&self) -> Vec<u64> {
        let mut ends = Vec::new();
        for wave in &self.waves {
            let end = match wave {
                Wave::Nodes(count) => (*count).min(self.nodes),
                Wave::Percent(share) => {
                    let share = u128::from(*share) * u128::from(self.nodes);
                    u64::try_from(share.div_ceil(100)).unwrap_or(self.nodes).min(self.nodes)
                }
            };
            if end > ends.last().copied().unwrap_or_default() {
                ends.push(end);
            }
        }
        ends
    }
}

impl Leaves {
    /// A part of so many leaves is well below the largest value of a store.
    const PART: usize = 2000;

    /// The records for all leaves of a rollout, in order.
    pub fn parts(leaves: &[Leaf]) -> impl Iterator<Item = Leaves> {
        leaves.chunks(Self::PART).map(|part| Leaves { leaves: part.to_vec() })
    }
}

impl Accepted {
    /// What must grow.
    #[must_use]
    pub const fn rank(&self) -> (u64, Take) {
        (self.generation, self.take)
    }
}

impl Phase {
    /// Whether the coordinator has nothing left to do.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Phase::Done | Phase::Stopped | Phase::Superseded)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Wave::{Nodes, Percent};
    use super::*;

    const STATEMENT: &str = r#"{"format":1,"fleet":"edge","id":"2026-11-16.1","generation":42,
        "not_after":"2026-11-17T00:00:00Z",
        "root":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","nodes":5000,
        "waves":[{"nodes":1},{"percent":1},{"percent":10},{"percent":100}],"max_in_flight":200,"max_failed":0,
        "settle":"10s","confirm_within":"60s","soak":"5m","accept":["irreversible:guest-stop"]}"#;

    fn status() -> Status {
        Status {
            generation: 42,
            take: Take::Document,
            document: Digest::of(b"new"),
            phase: NodePhase::Good,
            why: String::new(),
            converged: true,
            since: Time::of_millis(1_763_287_200_000),
            open: Open::default(),
            accepted: 42,
            agent: "0.2.0".to_owned(),
            boot: "6f0d1c5e-9a6b-4e83-b2f4-a8c90d3e5f61".to_owned(),
        }
    }

    #[test]
    fn a_statement_is_read_as_operators_write_it() {
        let statement = Statement::parse(STATEMENT).unwrap();
        assert_eq!(statement.generation, 42);
        assert_eq!(statement.wave_ends(), [1, 50, 500, 5000]);
        assert_eq!(statement.soak.get().as_secs(), 300);
        assert_eq!(statement.not_after.to_string(), "2026-11-17T00:00:00Z");
        assert_eq!(Statement::read(&statement.write()).unwrap(), statement);
    }

    #[test]
    fn waves_that_add_no_node_are_left_out() {
        let check = |nodes: u64, waves: &[Wave], expected: &[u64]| {
            let statement = Statement::parse(STATEMENT).unwrap();
            let statement = Statement { nodes, waves: waves.to_vec(), ..statement };
            assert_eq!(statement.wave_ends(), expected);
        };
        check(3, &[Nodes(1), Percent(1), Percent(10), Percent(100)], &[1, 3]);
        check(10, &[Percent(0), Nodes(50)], &[10]);
        check(u64::MAX, &[Percent(50), Percent(100)], &[u64::MAX / 2 + 1, u64::MAX]);
        check(10, &[Percent(50), Nodes(2)], &[5]);
    }

    #[test]
    fn other_formats_and_impossible_statements_are_refused_clearly() {
        let check = |from: &str, to: &str, expected: &str| {
            let text = STATEMENT.replace(from, to);
            assert_ne!(text, STATEMENT);
            let error = Statement::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(
            "\"format\":1",
            "\"format\":2",
            "the statement has format 2; this version reads format 1",
        );
        check("\"format\":1,", "", "missing field `format`");
        check("\"format\":1", "\"format\":\"1\"", "invalid type");
        check("\"generation\":42", "\"generation\":0", "generations count from 1");
        check("\"nodes\":5000", "\"nodes\":0", "it is for no node");
        check("\"max_in_flight\":200", "\"max_in_flight\":0", "could never begin");
        check(",{\"percent\":100}", "", "does not reach all nodes");
        check("{\"percent\":100}", "{\"percent\":101}", "more than 100 percent");
        check("{\"nodes\":1}", "{\"racks\":1}", "unknown variant `racks`");
        check("\"10s\"", "\"10\"", "`10` is not a duration");
        check("\"edge\"", "\"ed/ge\"", "`ed/ge` is no name");
        check("\"nodes\":5000", "\"nodes\":5000,\"nodes\":1", "duplicate field `nodes`");
        check("]}", "]} {}", "trailing characters");
        check("sha256:e3", "sha256:E3", "is no SHA-256 digest");
    }

    #[test]
    fn fields_of_later_versions_do_no_harm() {
        let text = STATEMENT.replace("\"nodes\":5000", "\"nodes\":5000,\"later\":{\"a\":[1]}");
        assert_eq!(Statement::parse(&text), Statement::parse(STATEMENT));
        let bytes = String::from_utf8(status().write()).unwrap();
        let more = bytes.replace("{\"format\":1", "{\"format\":1,\"colour\":\"red\"");
        assert_eq!(Status::read(more.as_bytes()).unwrap(), status());
    }

    #[test]
    fn a_status_is_written_as_it_is_documented() {
        let text = String::from_utf8(status().write()).unwrap();
        let expected = format!(
            "{{\"format\":1,\"generation\":42,\"take\":\"document\",\"document\":\"{}\",\"phase\":\"good\",\"why\":\"\",\
             \"converged\":true,\"since\":\"2025-11-16T10:00:00Z\",\"open\":{{\"failed\":0,\"pending\":0,\"conflict\":0}},\
             \"accepted\":42,\"agent\":\"0.2.0\",\"boot\":\"6f0d1c5e-9a6b-4e83-b2f4-a8c90d3e5f61\"}}",
            Digest::of(b"new")
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_part_of_the_leaves_fits_in_a_value_of_the_store() {
        let leaf = |number: usize| Leaf {
            node: format!("{number:0>63}").parse().unwrap(),
            document: Digest::of(b"new"),
            fallback: Digest::of(b"old"),
            class: Class::Irreversible,
        };
        let leaves: Vec<Leaf> = (0..4500).map(leaf).collect();
        let parts: Vec<Vec<u8>> = Leaves::parts(&leaves).map(|part| part.write()).collect();
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.len() < 1024 * 1024));
        let read = parts.iter().flat_map(|part| Leaves::read(part).unwrap().leaves);
        assert!(read.eq(leaves));
    }

    #[test]
    fn the_fallback_of_a_generation_is_later_than_its_document() {
        let rank =
            |generation, take| Accepted { generation, take, document: Digest::of(b"") }.rank();
        let ranks = [
            rank(41, Take::Document),
            rank(41, Take::Fallback),
            rank(42, Take::Document),
            rank(42, Take::Fallback),
        ];
        assert!(ranks.is_sorted());
    }

    proptest! {
        #[test]
        fn a_status_is_never_larger_than_a_kibibyte(
            why in "(\\PC|[\\x00-\\x1f\"\\\\]){0,2000}",
            agent in "\\PC{0,100}",
            boot in "\\PC{0,100}",
            number: u64,
        ) {
            let open = Open { failed: number, pending: number, conflict: number };
            let full = Status {
                generation: number, accepted: number, open, why: why.clone(), agent, boot,
                since: Time::of_millis(253_000_000_000_001), ..status()
            };
            let bytes = full.write();
            prop_assert!(bytes.len() <= LARGEST_STATUS, "{}", bytes.len());
            let read = Status::read(&bytes).unwrap();
            prop_assert_eq!(read.generation, number);
            // What fits is not cut, and what is cut keeps its beginning.
            let kept = read.why.trim_end_matches('…');
            prop_assert!(why.starts_with(kept));
            prop_assert!(read.why == why || kept.len() + 3 >= 50, "{:?}", read.why);
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Want::read(&bytes), State::read(&bytes), SignedStatement::read(&bytes));
            let _ = (Request::read(&bytes), Leaves::read(&bytes), Inventory::read(&bytes));
        }
    }
}
