//! The law suite over a real ruleset, judged by `nft`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::Ownership;
use homeostat_netlink::uapi::{NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFT_MSG_NEWGEN};
use homeostat_netlink::{Event, Family, Group, Listener, Options};
use homeostat_nft::{Compiler, DesiredState, Key, Mark, Nft, Ruleset};
use homeostat_testkit::laws::{
    self, Ability, DesiredState as Which, Disturbance, Fault, Harness, Meter,
};
use homeostat_testkit::namespace::Namespace;
use homeostat_testkit::unreachable_kernel::UnreachableKernel;

use crate::world::{by_hand, nft};

struct Tables {
    #[expect(dead_code, reason = "the thread is in it as long as it lives")]
    namespace: Namespace,
    commits: Arc<Mutex<Commits>>,
    unreachable: Option<UnreachableKernel>,
    is_crowded: bool,
}

/// Counts commits, by whomever.
struct Commits {
    listener: Listener,
    count: u64,
}

const NEW_GENERATION: u16 = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN;

impl Commits {
    fn count(&mut self) -> u64 {
        let Commits { listener, count } = self;
        let is_end = |event: &Event<'_>| matches!(event, Event::Message(message) if message.kind == NEW_GENERATION);
        while listener.receive(&mut |event| *count += u64::from(is_end(&event))).unwrap() {}
        *count
    }
}

impl Tables {
    fn new() -> Self {
        let namespace = Namespace::enter().unwrap();
        let groups = [Group(NFNLGRP_NFTABLES)];
        let listener = Listener::open(Family::Netfilter, &groups, &Options::for_events()).unwrap();
        let commits = Arc::new(Mutex::new(Commits { listener, count: 0 }));
        Tables { namespace, commits, unreachable: None, is_crowded: false }
    }
}

fn source() -> Nft {
    Nft::here(Mark::new("test"))
}

impl Harness for Tables {
    type Source = Nft;

    fn reset(&mut self) {
        *self = Tables::new();
    }

    fn source(&self) -> Nft {
        source()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Marked
    }

    fn desired(&self, which: Which) -> DesiredState {
        let text = match which {
            Which::First => {
                "table ip a { set s { type ipv4_addr; elements = { 10.0.0.1 }; }; \
                 chain x { type filter hook prerouting priority 0; ip saddr @s accept; }; }\n\
                 table ip b { chain x { type filter hook input priority 0; drop; }; }\n\
                 table ip c { chain x { type filter hook output priority 0; return; }; }"
            }
            Which::Second => {
                "table ip a { chain x { drop; }; }\n\
                 table ip c { chain x { type filter hook output priority 0; return; }; }\n\
                 table ip d { chain y { accept; }; }"
            }
            Which::Nothing => "",
        };
        let (name, directory) = ("laws".to_owned(), std::env::temp_dir());
        let ruleset = Ruleset { text: text.into(), name, directory, root: "/".into() };
        Compiler::default().compile(&ruleset, &source()).unwrap()
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let tables = nft(&["list", "tables"], "").unwrap();
        let listed = tables.lines().map(|key| {
            let words: Vec<&str> = ["list"].into_iter().chain(key.split(' ')).collect();
            (key.to_owned(), nft(&words, "").unwrap())
        });
        listed.collect()
    }

    fn meter(&self) -> Meter {
        let commits = self.commits.clone();
        Arc::new(move || commits.lock().unwrap_or_else(PoisonError::into_inner).count())
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Remove(key) => by_hand(&format!("delete {key}")),
            Disturbance::Alter(key) => by_hand(&format!("{key} {{ chain altered {{ drop; }}; }}")),
            Disturbance::Stranger => by_hand("table ip stranger { chain x { accept; }; }"),
            Disturbance::Occupy(key) => by_hand(&format!("{key} {{ chain theirs {{ }}; }}")),
        }
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, Key>) -> Ability {
        match fault {
            Fault::Blind => self.unreachable = Some(UnreachableKernel::new().unwrap()),
            Fault::Refuse(key) => {
                by_hand(&crowd(&key.to_string()));
                self.is_crowded = true;
            }
            // The kernel announces a table whole or not at all.
            Fault::Unreadable(_) => return Ability::Unable,
        }
        Ability::Done
    }

    fn mend(&mut self) {
        self.unreachable = None;
        if std::mem::take(&mut self.is_crowded) {
            by_hand("delete table ip crowd");
        }
    }
}

/// As many chains of another program as the kernel lets into the hook of a table: it takes no other there.
fn crowd(key: &str) -> String {
    let hook = match key {
        "table ip a" => "prerouting",
        "table ip b" => "input",
        _ => "output",
    };
    let chain = |nth| format!("chain c{nth} {{ type filter hook {hook} priority {nth}; }}\n");
    format!("table ip crowd {{\n{}}}", (0..1024).map(chain).collect::<String>())
}

#[test]
fn the_laws_hold_over_tables() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let verdict = runtime.block_on(async { laws::check(&mut Tables::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    let laws: Vec<_> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, [1], "{:?}", verdict.unchecked);
}
