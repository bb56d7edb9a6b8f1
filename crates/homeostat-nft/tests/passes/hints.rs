//! Who touches our tables is heard of; our own commits and strangers are not.

use std::time::Duration;

use homeostat_engine::{Focus, Hint, Reader as _, Records, Source as _, View};

use crate::world::{World, by_hand};

const TEXT: &str = "table ip a { chain x { accept; }; }\ntable ip b { }";

#[tokio::test]
async fn a_commit_of_somebody_else_names_the_tables_that_it_touched() {
    let mut world = World::new();
    let wish = world.wish(TEXT);
    let mut reader = world.source.reader().unwrap();
    let (focus, records) = (Focus::All, Records::new());
    let view = View { focus: &focus, wish: &wish, records: &records };
    reader.observe(&view, &mut |_| {}).await.unwrap();
    // Our own commit comes first, and a stranger's: neither is told.
    assert!(world.pass_async(&wish).await);
    by_hand("table ip stranger { chain x { accept; }; }");
    by_hand("flush chain ip a x");
    let hint = tokio::time::timeout(Duration::from_secs(10), reader.hint()).await.unwrap().unwrap();
    assert_eq!(hint, Hint::Keys(vec!["table ip a".parse().unwrap()]));
    by_hand("flush ruleset");
    let hint = tokio::time::timeout(Duration::from_secs(10), reader.hint()).await.unwrap().unwrap();
    let both = ["table ip a", "table ip b"].map(|key| key.parse().unwrap());
    assert_eq!(hint, Hint::Keys(both.to_vec()));
}
