//! What a node accepts: the signed original, and nothing else.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use homeostat_fleet::judge::{Judgement, NAMESPACE, Node, Refusal, Verdict, Warning, judge};
use homeostat_fleet::merkle::{Class, Leaf, Tree};
use homeostat_fleet::records::{Accepted, Record, SignedStatement, Statement, Take, Want, Wave};
use homeostat_fleet::{AllowedSigners, Digest, Error, Name, Time};
use proptest::prelude::*;

use crate::signing::{PLAIN, Signer, TOKEN};

mod signing;

const NODES: usize = 11;
const INDEX: usize = 4;
const NOON: &str = "2026-11-16T12:00:00Z";
const EVENING: &str = "2026-11-16T20:00:00Z";

/// A fleet of eleven nodes, two of whose operators have signed generation 42. Node 4 judges.
#[derive(Clone)]
struct World {
    fleet: Name,
    name: Name,
    signers: AllowedSigners,
    needed: usize,
    accepted: Option<Accepted>,
    now: Option<Time>,
    leaves: Vec<Leaf>,
    signed: SignedStatement,
    want: Want,
}

impl World {
    fn new() -> Self {
        let keys = [Signer::new(1, PLAIN), Signer::new(2, TOKEN)];
        let [ann, bob] = keys.map(|key| key.public());
        let allowed = format!("ann valid-before=\"20270101Z\" {ann}\nbob {bob}\n");
        let digest = |what: &str, number: usize| Digest::of(format!("{what} {number}").as_bytes());
        let leaf = |number: usize| Leaf {
            node: format!("n{number}").parse().unwrap(),
            document: digest("new", number),
            fallback: digest("old", number),
            class: Class::Compensable,
        };
        let leaves: Vec<Leaf> = (0..NODES).map(leaf).collect();
        let tree = Tree::new(leaves.iter().map(Leaf::hash));
        let want = Want {
            rollout: "2026-11-16.1".parse().unwrap(),
            generation: 42,
            take: Take::Document,
            document: leaves[INDEX].document,
            fallback: leaves[INDEX].fallback,
            class: Class::Compensable,
            index: INDEX as u64,
            proof: tree.proof(INDEX).unwrap(),
            at: NOON.parse().unwrap(),
        };
        let statement = Statement {
            fleet: "edge".parse().unwrap(),
            id: want.rollout.clone(),
            generation: 42,
            not_after: "2026-11-16T18:00:00Z".parse().unwrap(),
            root: tree.root(),
            nodes: NODES as u64,
            waves: vec![Wave::Nodes(1), Wave::Percent(100)],
            max_in_flight: 5,
            max_failed: 0,
            settle: "10s".parse().unwrap(),
            confirm_within: "60s".parse().unwrap(),
            soak: "5m".parse().unwrap(),
            accept: Vec::new(),
            plan: false,
        };
        let world = World {
            fleet: statement.fleet.clone(),
            name: "n4".parse().unwrap(),
            signers: AllowedSigners::parse(&allowed).unwrap(),
            needed: 2,
            accepted: Some(accepted(41, Take::Document, "older")),
            now: Some(NOON.parse().unwrap()),
            leaves,
            signed: SignedStatement { statement: String::new(), signatures: Vec::new() },
            want,
        };
        world.with_statement(&statement)
    }

    /// The same with another statement, signed by both operators.
    fn with_statement(mut self, statement: &Statement) -> Self {
        let text = String::from_utf8(statement.write()).unwrap();
        let keys = [Signer::new(1, PLAIN), Signer::new(2, TOKEN)];
        let signatures = keys.map(|key| key.sign(text.as_bytes(), NAMESPACE)).to_vec();
        self.signed = SignedStatement { statement: text, signatures };
        self
    }

    fn statement(&self) -> Statement {
        Statement::parse(&self.signed.statement).unwrap()
    }

    fn judge(&self) -> Judgement {
        let node = Node {
            fleet: &self.fleet,
            name: &self.name,
            signers: &self.signers,
            needed: self.needed,
            accepted: self.accepted.as_ref(),
            now: self.now,
        };
        judge(&node, &self.signed, &self.want)
    }

    #[track_caller]
    fn accepts(&self, expected: Accepted) {
        match self.judge().verdict {
            Verdict::Accept { accepted, class, statement } => {
                assert_eq!((accepted, class), (expected, Class::Compensable));
                assert_eq!(*statement, self.statement());
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refuses(&self, expected: &str) {
        match self.judge().verdict {
            Verdict::Refused(refusal) => {
                assert!(refusal.to_string().contains(expected), "{refusal}");
            }
            other => panic!("{other:?}, expected: {expected}"),
        }
    }
}

fn accepted(generation: u64, take: Take, document: &str) -> Accepted {
    Accepted { generation, take, document: Digest::of(document.as_bytes()) }
}

#[test]
fn what_was_signed_is_accepted_with_its_class() {
    let world = World::new();
    world.accepts(accepted(42, Take::Document, "new 4"));
    assert_eq!(world.judge().warnings, []);
    // A node that has never accepted anything.
    World { accepted: None, ..world }.accepts(accepted(42, Take::Document, "new 4"));
}

#[test]
fn the_signed_fallback_needs_no_new_signature() {
    let mut world = World::new();
    world.want.take = Take::Fallback;
    world.accepts(accepted(42, Take::Fallback, "old 4"));
    world.accepted = Some(accepted(42, Take::Document, "new 4"));
    world.accepts(accepted(42, Take::Fallback, "old 4"));
    // Also at night, when the statement has expired.
    world.now = Some(EVENING.parse().unwrap());
    world.accepts(accepted(42, Take::Fallback, "old 4"));
    // But a node that never took the document takes nothing of an expired statement.
    world.accepted = Some(accepted(41, Take::Document, "older"));
    world.refuses("the statement was valid until 2026-11-16T18:00:00Z");
}

#[test]
fn what_was_accepted_before_is_not_tried_again() {
    let mut world = World::new();
    world.accepted = Some(accepted(42, Take::Document, "new 4"));
    assert_eq!(world.judge().verdict, Verdict::Current);
    // Expiry speaks of beginning only.
    world.now = Some(EVENING.parse().unwrap());
    assert_eq!(world.judge().verdict, Verdict::Current);
}

#[test]
fn forged_statements_are_refused() {
    let world = World::new();
    let mut changed = world.clone();
    changed.signed.statement = changed.signed.statement.replace("\"edge\"", "\"else\"");
    changed.refuses("not signed as it must be: 0 valid signature(s)");
    let mut alone = world.clone();
    alone.signed.signatures.pop();
    alone.refuses("1 valid signature(s) by distinct allowed keys, 2 needed");
    let mut twice = world.clone();
    twice.signed.signatures[1] = twice.signed.signatures[0].clone();
    twice.refuses("1 valid signature(s) by distinct allowed keys, 2 needed");
    let mut eve = world.clone();
    let text = eve.signed.statement.clone();
    eve.signed.signatures[0] = Signer::new(3, PLAIN).sign(text.as_bytes(), NAMESPACE);
    eve.refuses("this key is not in the list of allowed signers");
    let mut command = world.clone();
    command.signed.signatures[0] = Signer::new(1, PLAIN).sign(text.as_bytes(), "homeostat-command");
    command.refuses("it is for another namespace");
    let mut none = world.clone();
    none.signed.signatures.clear();
    none.refuses("0 valid signature(s)");
    let mut huge = world.clone();
    huge.signed.statement = " ".repeat(70_000);
    huge.refuses("it has more than 65536 bytes");
    let old_key = World { now: Some("2027-06-01T00:00:00Z".parse().unwrap()), ..world };
    old_key.refuses("this key is no longer valid");
}

#[test]
fn signed_text_that_cannot_be_followed_is_refused() {
    let world = World::new();
    let newer = world.signed.statement.replace("\"format\":1", "\"format\":2");
    let keys = [Signer::new(1, PLAIN), Signer::new(2, TOKEN)];
    let signatures = keys.map(|key| key.sign(newer.as_bytes(), NAMESPACE)).to_vec();
    let mut unusable = world.clone();
    unusable.signed = SignedStatement { statement: newer, signatures };
    unusable.refuses("the statement has format 2; this version reads format 1");
    assert!(matches!(
        unusable.judge().verdict,
        Verdict::Refused(Refusal::Unusable(Error::Format { .. }))
    ));
}

#[test]
fn statements_of_other_fleets_and_rollouts_are_refused() {
    let world = World::new();
    World { fleet: "core".parse().unwrap(), ..world.clone() }.refuses("is for the fleet `edge`");
    let mut other = world.clone();
    other.want.rollout = "2026-11-15.1".parse().unwrap();
    other.refuses("the want is for rollout `2026-11-15.1`, the statement says `2026-11-16.1`");
    let mut other = world;
    other.want.generation = 43;
    other.refuses("the want has generation 43, the statement 42");
}

#[test]
fn older_generations_and_twins_are_refused() {
    let world = World::new();
    let check = |generation, take, document: &str, expected: &str| {
        let accepted = Some(accepted(generation, take, document));
        World { accepted, ..world.clone() }.refuses(expected);
    };
    check(43, Take::Document, "x", "generation 42 is older than 43, which was accepted before");
    check(u64::MAX, Take::Document, "x", "generation 42 is older than");
    // Once a node is on its fallback, the same generation does not come back.
    check(42, Take::Fallback, "old 4", "generation 42 is older than 42");
    check(42, Take::Document, "another", "generation 42 was accepted with another document");
}

#[test]
fn an_expired_statement_is_refused_only_by_a_clock_that_can_be_trusted() {
    let world = World { now: Some(EVENING.parse().unwrap()), ..World::new() };
    world.refuses("the statement was valid until 2026-11-16T18:00:00Z");
    let unsynchronized = World { now: None, ..world };
    unsynchronized.accepts(accepted(42, Take::Document, "new 4"));
    let warnings = [Warning::KeyTime, Warning::StatementTime];
    assert_eq!(unsynchronized.judge().warnings, warnings);
}

#[test]
fn documents_of_other_nodes_and_other_places_are_not_in_the_tree() {
    let world = World::new();
    World { name: "n5".parse().unwrap(), ..world.clone() }.refuses("this document for this node");
    let check = |change: fn(&mut World)| {
        let mut world = world.clone();
        change(&mut world);
        assert_eq!(world.judge().verdict, Verdict::Refused(Refusal::NotInTree));
    };
    check(|world| world.want.document = world.leaves[5].document);
    check(|world| world.want.fallback = world.leaves[5].fallback);
    check(|world| world.want.fallback = world.want.document);
    check(|world| world.want.class = Class::Irreversible);
    check(|world| world.want.class = Class::Reversible);
    check(|world| world.want.index = 5);
    check(|world| world.want.index = u64::MAX);
    check(|world| world.want.proof.clear());
    check(|world| world.want.proof.reverse());
    check(|world| world.want.proof.push(Digest::of(b"")));
}

#[test]
fn a_request_for_a_plan_applies_nothing() {
    let world = World::new();
    let statement = Statement { plan: true, ..world.statement() };
    let world = world.with_statement(&statement);
    let expected = Digest::of(b"new 4");
    assert!(
        matches!(world.judge().verdict, Verdict::Plan { document, .. } if document == expected)
    );
}

fn cases() -> u32 {
    if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 100_000 } else { 1000 }
}

fn flip(bytes: &[u8], at: prop::sample::Index, bit: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = at.index(bytes.len());
    bytes[at] ^= 1_u8 << bit;
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// The stored bytes of statement and want, as an attacker or a broken disk would change them.
    #[test]
    fn a_changed_bit_leads_to_the_original_or_to_a_refusal(
        of_want: bool,
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
        again in any::<Option<(prop::sample::Index, u8)>>(),
    ) {
        let mut world = World::new();
        let original = world.judge().verdict;
        let is_accepted = matches!(original, Verdict::Accept { .. });
        prop_assert!(is_accepted);
        let record = if of_want { world.want.write() } else { world.signed.write() };
        let mut changed = flip(&record, at, bit);
        if let Some((at, bit)) = again {
            changed = flip(&changed, at, u32::from(bit) % 8);
        }
        if changed == record {
            return Ok(());
        }
        let readable = if of_want {
            Want::read(&changed).map(|want| world.want = want).is_ok()
        } else {
            SignedStatement::read(&changed).map(|signed| world.signed = signed).is_ok()
        };
        if !readable {
            return Ok(());
        }
        // The signed fallback is the other thing that operators have signed; `at` is no part of what is signed.
        match world.judge().verdict {
            Verdict::Refused(_) => {}
            verdict => {
                prop_assert!(of_want, "{:?}", world.signed);
                prop_assert_eq!(&verdict, &original);
                let want = Want { at: world.want.at, ..World::new().want };
                prop_assert_eq!(&world.want, &want);
            }
        }
    }
}
