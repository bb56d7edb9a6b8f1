//! A change of our tables gives a hint; our own commits and foreign tables do not.

use std::time::Duration;

use homeostat_engine::{Focus, Hint, Reader as _, Records, Source as _, View};
use homeostat_nft::Key;

use crate::world::{World, by_hand};

const TEXT: &str = "table ip a { chain x { accept; }; }\ntable ip b { }";

#[tokio::test]
async fn a_commit_of_somebody_else_names_the_tables_that_it_touched() {
    let mut world = World::new();
    let desired = world.desired(TEXT);
    let mut reader = world.source.reader().unwrap();
    let (focus, records) = (Focus::All, Records::new());
    let view = View::new(&focus, &desired, &records);
    reader.observe(&view, &mut |_| {}).await.unwrap();
    // Our own commit comes first, and one of a foreign table: neither gives a hint.
    assert!(world.pass_async(&desired).await);
    by_hand("table ip stranger { chain x { accept; }; }");
    by_hand("flush chain ip a x");
    let hint = tokio::time::timeout(Duration::from_secs(10), reader.hint()).await.unwrap().unwrap();
    assert_eq!(by_nft(hint), ["table ip a"]);
    by_hand("flush ruleset");
    let hint = tokio::time::timeout(Duration::from_secs(10), reader.hint()).await.unwrap().unwrap();
    assert_eq!(by_nft(hint), ["table ip a", "table ip b"]);
}

/// The tables of a hint that says who touched them.
fn by_nft(hint: Hint<Key>) -> Vec<String> {
    let Hint::Keys(keys) = hint else { panic!("{hint:?}") };
    for by in keys.values() {
        let pid = by.as_deref().and_then(|by| by.strip_prefix("nft (pid ")?.strip_suffix(')'));
        assert!(pid.is_some_and(|pid| pid.parse::<u32>().is_ok()), "{by:?}");
    }
    keys.keys().map(ToString::to_string).collect()
}
