//! Tables that cannot be carried as bytes are loaded whole by `nft`, and kept like all others.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use homeostat_engine::{
    Explain as _, Failure, Focus, Kind, LedgerKey, Reader as _, Records, Snapshot, Source as _,
    Taking, UndoList, View,
};
use homeostat_nft::{Compiler, DesiredState, Ruleset};

use crate::world::{World, by_hand, expected, explained, listed, nft};

const TEXT: &str = "table inet a {\n  comment \"the firewall\"\n  set s { type ipv4_addr; elements = { 10.0.0.1 }; }\n  \
    chain i { type filter hook input priority 0; policy drop; tcp dport { 22, 80 } accept; ip saddr @s jump x; }\n  \
    chain x { counter; }\n}\ntable ip b { }";

fn whole(world: &World, text: &'static str) -> Arc<DesiredState> {
    let (name, directory) = ("fw.nft".to_owned(), std::env::temp_dir());
    let ruleset = Ruleset { text: text.into(), name, directory, root: "/".into() };
    let compiler = Compiler::default().writing_text();
    Arc::new(compiler.compile(&ruleset, &world.source).unwrap())
}

#[test]
fn a_table_is_loaded_whole_and_the_plan_says_so() {
    let mut world = World::new();
    by_hand("table ip theirs { chain x { accept; }; }");
    let desired = whole(&world, TEXT);
    let plan = explained(&world.plan(&desired));
    assert!(plan.contains("loaded whole by `nft -f`"), "{plan}");
    let report = world.pass(&desired);
    assert!(report.is_converged(), "{}", explained(&report));
    assert_eq!(explained(&world.plan(&desired)), "", "a second pass writes nothing");
    let theirs = format!("{TEXT}\ntable ip theirs {{ chain x {{ accept; }}; }}");
    assert_eq!(listed(), expected(&theirs));
    let text = nft(&["list", "ruleset"], "").unwrap();
    assert!(text.contains("comment \"the firewall homeostat:test\""), "{text}");
    assert!(text.contains("comment \"homeostat:test\""), "{text}");
}

#[test]
fn drift_in_such_a_table_is_seen_and_healed_and_it_goes_when_it_is_not_declared() {
    let mut world = World::new();
    let desired = whole(&world, TEXT);
    assert!(world.pass(&desired).is_converged());
    for act in ["flush chain inet a i", "delete element inet a s { 10.0.0.1 }", "flush ruleset"] {
        by_hand(act);
        assert!(!world.plan(&desired).is_converged(), "{act}");
        let report = world.pass(&desired);
        assert!(report.is_converged(), "{act}: {}", explained(&report));
        assert_eq!(listed(), expected(TEXT), "{act}");
    }
    assert!(world.pass(&Arc::new(DesiredState::nothing())).is_converged());
    assert_eq!(listed(), expected(""));
}

#[test]
fn a_table_of_somebody_else_is_not_loaded_over() {
    let mut world = World::new();
    let desired = whole(&world, TEXT);
    let plan = world.plan(&desired);
    by_hand("table ip b { chain theirs { }; }");
    let report = world.apply_plan(&desired, plan);
    assert!(!report.is_converged());
    assert!(explained(&report).contains("table ip b: /dev/stdin:"), "{}", explained(&report));
    assert!(nft(&["list", "table", "ip", "b"], "").unwrap().contains("chain theirs"));
}

#[tokio::test]
async fn what_is_loaded_for_us_does_not_wake_us() {
    let mut world = World::new();
    let desired = whole(&world, TEXT);
    let mut reader = world.source.reader().unwrap();
    let (focus, records) = (Focus::All, Records::new());
    let view = View::new(&focus, &desired, &records);
    reader.observe(&view, &mut |_| {}).await.unwrap();
    assert!(world.pass_async(&desired).await);
    let early = tokio::time::timeout(Duration::from_millis(100), reader.hint()).await;
    assert!(early.is_err(), "{early:?}");
    by_hand("flush chain inet a x");
    tokio::time::timeout(Duration::from_secs(10), reader.hint()).await.unwrap().unwrap();
}

#[derive(Debug, Default)]
struct Recorded(Mutex<Vec<(String, Snapshot)>>);

impl UndoList for Recorded {
    fn record(
        &self,
        _of: &LedgerKey,
        taken: &[(String, Snapshot)],
        taking: Taking,
    ) -> Result<(), Failure> {
        assert!(taken.is_empty() || taking == Taking::Itself);
        self.0.lock().unwrap().extend(taken.iter().cloned());
        Ok(())
    }

    fn strike(&self, _of: &LedgerKey, kept: &[String]) -> Result<(), Failure> {
        panic!("{kept:?} was made again");
    }
}

#[test]
fn a_table_that_a_trial_makes_again_returns_with_what_packets_left() {
    const BEFORE: &str = "table ip f {\n  set s { type ipv4_addr; flags dynamic,timeout; timeout 1h; }\n  \
        counter c { packets 7 bytes 8; }\n  chain i { type filter hook input priority 0; counter; }\n}";
    const TRIED: &str =
        "table ip f {\n  chain i { type filter hook input priority 0; policy drop; }\n}";
    let mut world = World::new();
    world.converge(BEFORE);
    by_hand("add element ip f s { 10.0.0.1 timeout 20m expires 10m }");
    by_hand("replace rule ip f i handle 4 counter packets 3 bytes 9");
    let listed = || nft(&["list", "ruleset"], "").unwrap();
    let then = listed();
    assert!(then.contains("10.0.0.1") && then.contains("packets 3"), "{then}");
    let (before, tried) = (world.desired(BEFORE), whole(&world, TRIED));
    let lost = |world: &mut World| world.plan(&tried).findings_of(Kind::Irreversible).count();
    assert_eq!(lost(&mut world), 1, "outside of a trial it is lost");
    let recorded = Arc::new(Recorded::default());
    world.config.parks = true;
    world.config.undo = Some(recorded.clone());
    assert_eq!(lost(&mut world), 0);
    let report = world.pass(&tried);
    assert!(report.is_converged(), "{}", explained(&report));
    (world.config.parks, world.config.undo) = (false, None);
    assert!(world.pass(&before).is_converged());
    assert!(!listed().contains("10.0.0.1"), "{}", listed());
    for (key, snapshot) in recorded.0.lock().unwrap().iter() {
        world.restore(key, snapshot);
    }
    let without_seconds = |text: &str| {
        let lines = text.lines().map(|line| line.split(" expires ").next().unwrap().to_owned());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(without_seconds(&listed()), without_seconds(&then));
    assert!(world.plan(&before).is_converged(), "{}", explained(&world.plan(&before)));
}
