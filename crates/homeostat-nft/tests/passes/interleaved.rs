//! Others commit, or are refused, between any two calls of a look.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;

use homeostat_engine::Explain as _;
use homeostat_netlink::uapi::*;
use homeostat_netlink::{Batch, Connection, Dumped, Family, Transacted};
use homeostat_netns::Netns;
use serde_json::Value;

use crate::shadow::Subscribed;
use crate::world::{World, by_hand, expected, explained, listed};

/// `NFPROTO_IPV4`.
const IPV4: u8 = 2;

fn lines(count: u32, line: fn(u32) -> String) -> String {
    (0..count).map(line).collect()
}

/// A table of ours whose rules come in several parts.
fn ours() -> String {
    let chains = lines(20, |at| format!("chain c{at} {{ }}\n"));
    let rules = lines(300, |at| format!("tcp dport {at} accept\n"));
    format!(
        "table ip a {{
            set filler {{ type ipv4_addr; }}
            {chains}
            chain x {{ {rules} }}
        }}"
    )
}

/// A foreign one before it, so that the list of chains comes in several parts.
fn foreign() -> String {
    let chains = lines(400, |at| format!("chain of_others_with_a_long_name_{at} {{ }}\n"));
    format!("table ip b {{ {chains} }}")
}

/// A transaction that takes its time, changes a little of everything and is refused for its last message.
static REFUSED: LazyLock<Batch> = LazyLock::new(|| {
    let mut batch = Batch::new();
    for nth in 0..100 {
        chain(&mut batch, "b", &format!("n{nth}"));
    }
    for _ in 0..200 {
        rule(&mut batch, "x");
    }
    let mut message = batch.message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, 0);
    message.fixed(&[IPV4, 0, 0, 0]);
    message.attr_str(NFTA_TABLE_NAME, "a").attr_be32(NFTA_TABLE_FLAGS, NFT_TABLE_F_DORMANT);
    message.finish().unwrap();
    for part in 0..60 {
        elements(&mut batch, "filler", part << 8..(part << 8) + 256);
    }
    rule(&mut batch, "absent");
    batch
});

fn chain(batch: &mut Batch, table: &str, name: &str) {
    let mut message = batch.message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    message.fixed(&[IPV4, 0, 0, 0]);
    message.attr_str(NFTA_TABLE_NAME, table).attr_str(NFTA_CHAIN_NAME, name);
    message.finish().unwrap();
}

fn rule(batch: &mut Batch, chain: &str) {
    let mut message = batch.message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, NLM_F_CREATE);
    message.fixed(&[IPV4, 0, 0, 0]);
    message.attr_str(NFTA_TABLE_NAME, "a").attr_str(NFTA_RULE_CHAIN, chain);
    message.finish().unwrap();
}

fn elements(batch: &mut Batch, set: &str, keys: std::ops::Range<u32>) {
    let mut message = batch.message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWSETELEM, NLM_F_CREATE);
    message.fixed(&[IPV4, 0, 0, 0]);
    message.attr_str(NFTA_TABLE_NAME, "a").attr_str(NFTA_SET_ELEM_LIST_SET, set);
    message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
        for number in keys {
            let octets = number.to_be_bytes();
            list.nest(NFTA_LIST_ELEM, |element| {
                element.nest(NFTA_SET_ELEM_KEY, |key| _ = key.attr(NFTA_DATA_VALUE, &octets));
            });
        }
    });
    message.finish().unwrap();
}

/// Whether the table looks dormant to others.
fn looks_dormant(connection: &mut Connection) -> bool {
    let mut request = Batch::new();
    let mut message = request.message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE, 0);
    message.fixed(&[IPV4, 0, 0, 0]);
    message.finish().unwrap();
    let mut is_dormant = false;
    let dumped = connection.dump(&mut request, &mut |dumped| {
        if let Dumped::Object(message) = dumped {
            let (_, attrs) = message.split::<4>().unwrap();
            let flags = attrs.first(NFTA_TABLE_FLAGS).unwrap().unwrap().be32().unwrap();
            is_dormant |= flags & NFT_TABLE_F_DORMANT != 0;
        }
    });
    dumped.unwrap();
    is_dormant
}

/// Another program whose transaction is in progress from one call of a look to another.
struct Other {
    netns: Arc<Netns>,
    watch: Connection,
    begin: usize,
    end: usize,
    running: Option<JoinHandle<Transacted>>,
}

impl Other {
    fn before_call(&mut self, call: usize) {
        if call == self.begin {
            let netns = Arc::clone(&self.netns);
            let running = std::thread::spawn(move || {
                let mut connection = Connection::open_in(&netns, Family::Netfilter).unwrap();
                connection.transact(&REFUSED, None).unwrap()
            });
            while !running.is_finished() && !looks_dormant(&mut self.watch) {}
            self.running = Some(running);
        }
        if call == self.end {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some(running) = self.running.take() {
            assert!(matches!(running.join().unwrap(), Transacted::Refused { .. }));
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.finish();
    }
}

/// How many calls a look makes that nobody disturbs.
fn count_calls(subscribed: &mut Subscribed) -> usize {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    subscribed.before_each_call(move || _ = counter.fetch_add(1, Ordering::Relaxed));
    subscribed.seen();
    calls.load(Ordering::Relaxed)
}

/// Transactions that begin before one call of a look and are refused before another one.
#[test]
fn a_refused_transaction_is_never_seen() {
    let world = World::new();
    by_hand(&foreign());
    by_hand(&ours());
    let desired = world.desired(&ours());
    let netns = Arc::new(Netns::current().unwrap());
    let mut subscribed = Subscribed::of(&world, &desired);
    let (expected, count) = (subscribed.seen(), count_calls(&mut subscribed));
    assert!(count > 20, "{count}");
    let mut wrong = Vec::new();
    for begin in 0..count {
        for end in [begin + 1, begin + 2, begin + 3, count] {
            let watch = Connection::open(Family::Netfilter).unwrap();
            let mut other = Other { netns: Arc::clone(&netns), watch, begin, end, running: None };
            let mut call = 0;
            subscribed.before_each_call(move || {
                other.before_call(call);
                call += 1;
            });
            if subscribed.seen() != expected {
                wrong.push((begin, end));
            }
        }
    }
    assert!(wrong.is_empty(), "of {count} calls: {wrong:?}");
}

/// A long set with elements that are not declared. A look may pass over one of them, but those after it do not.
#[test]
fn an_element_that_a_look_passes_over_is_seen_by_the_looks_after_it() {
    let world = World::new();
    let table = |elements: &str| {
        format!(
            "table ip a {{
                set filler {{ type ipv4_addr; elements = {{ {elements} }}; }}
                chain x {{ }}
            }}
            table ip b {{ }}"
        )
    };
    // Other elements than those of the transaction.
    let declared = lines(3000, |at| format!("10.1.{}.{},", at / 250, at % 250));
    let strays = lines(500, |at| format!("10.2.{}.{},", at / 250, at % 250));
    by_hand(&table(&format!("{declared}{strays}")));
    let desired = world.desired(&table(&declared));
    let netns = Arc::new(Netns::current().unwrap());
    let mut subscribed = Subscribed::of(&world, &desired);
    let (expected, count) = (subscribed.seen(), count_calls(&mut subscribed));
    let (mut passed_over, mut wrong) = (0, Vec::new());
    for begin in 0..count {
        for end in [begin + 1, begin + 2, count] {
            let watch = Connection::open(Family::Netfilter).unwrap();
            let mut other = Other { netns: Arc::clone(&netns), watch, begin, end, running: None };
            let mut call = 0;
            subscribed.before_each_call(move || {
                other.before_call(call);
                call += 1;
            });
            passed_over += usize::from(subscribed.seen() != expected);
            subscribed.before_each_call(|| {});
            let later =
                [subscribed.seen_at_rest(), subscribed.seen_at_rest(), subscribed.seen_at_rest()];
            if later.iter().any(|seen| *seen != expected) {
                wrong.push((begin, end));
            }
        }
    }
    println!("{passed_over} looks passed over an element");
    assert!(wrong.is_empty(), "of {count} calls, {passed_over} passed over one: {wrong:?}");
}

/// Commits that come before each call of a look, and before each call of the one after it.
#[test]
fn a_commit_between_two_reads_is_followed() {
    let world = World::new();
    let texts = [foreign(), ours(), "table ip c { chain x { accept; }; }".to_owned()];
    let load = || {
        by_hand("flush ruleset");
        by_hand(&texts.join("\n"));
    };
    load();
    let desired = world.desired(&texts[1..].join("\n"));
    let count = count_calls(&mut Subscribed::of(&world, &desired));
    let removed = lines(40, |at| format!("delete chain ip b of_others_with_a_long_name_{at}\n"));
    let commits = [
        removed.as_str(),
        "insert rule ip a x accept",
        "flush chain ip a x",
        "add table ip a { flags dormant; }",
        "delete chain ip a c3; add chain ip a d; add rule ip c x drop",
        "delete table ip a; add table ip a; add chain ip a x; add rule ip a x drop",
        "delete table ip c",
    ];
    // All of them at each call take a minute.
    let each = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { commits.len() } else { 1 };
    for at in 0..count {
        for commit in commits.iter().cycle().skip(at).take(each) {
            load();
            let mut subscribed = Subscribed::of(&world, &desired);
            let (mut call, text) = (0, (*commit).to_owned());
            subscribed.before_each_call(move || {
                if call == at {
                    by_hand(&text);
                }
                call += 1;
            });
            subscribed.look_anyhow(true);
            subscribed.had_to_read();
            assert!(!subscribed.had_to_read(), "before call {at} of {count}: {commit}");
        }
    }
}

/// What `nft` lists of some tables.
fn listed_of(tables: &[&str]) -> Vec<Value> {
    let is_of = |entry: &Value| {
        let mut parts = entry.as_object().into_iter().flat_map(|entry| entry.values());
        parts.any(|part| {
            let name = if part.get("table").is_some() { &part["table"] } else { &part["name"] };
            tables.iter().any(|table| name == table)
        })
    };
    listed().into_iter().filter(is_of).collect()
}

/// A pass during whose look others commit, and one after it, which may rest on what the first one read.
#[test]
fn after_a_commit_between_two_reads_the_next_pass_leaves_what_nft_loads_from_the_text() {
    let mut world = World::new();
    by_hand(&foreign());
    let text = [ours(), "table ip c { chain x { accept; }; }".to_owned()].join("\n");
    world.converge(&text);
    let (desired, loaded) = (world.desired(&text), expected(&text));
    assert_eq!(listed_of(&["a", "c"]), loaded);
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    world.before_each_call(move || _ = counter.fetch_add(1, Ordering::Relaxed));
    world.plan(&desired);
    let count = calls.load(Ordering::Relaxed);
    let commits = [
        "insert rule ip a x accept",
        "flush chain ip a x",
        "add rule ip b of_others_with_a_long_name_7 accept",
        "add table ip a { flags dormant; }",
        "delete chain ip a c3; add chain ip a d; add rule ip c x drop",
        "delete table ip c",
    ];
    let each = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { commits.len() } else { 1 };
    for at in 0..count {
        for commit in commits.iter().cycle().skip(at).take(each) {
            let (mut call, text) = (0, (*commit).to_owned());
            world.before_each_call(move || {
                if call == at {
                    by_hand(&text);
                }
                call += 1;
            });
            world.pass(&desired);
            world.before_each_call(|| {});
            let report = world.pass(&desired);
            assert!(report.is_converged(), "before call {at}: {commit}: {}", explained(&report));
            assert_eq!(listed_of(&["a", "c"]), loaded, "before call {at} of {count}: {commit}");
        }
    }
    let strangers = listed_of(&["b"]);
    let rules = strangers.iter().filter(|entry| entry.get("rule").is_some()).count();
    assert_eq!(strangers.len() - rules, 401, "the foreign table and its chains are there");
}
