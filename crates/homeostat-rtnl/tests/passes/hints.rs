//! What the kernel announces, as hints.

use std::time::Duration;

use homeostat_engine::{Hint, Observer};
use homeostat_rtnl::{Key, Rtnl};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, block_on, cable, ip, wish};

/// The next hint; long patience, since it costs nothing when the hint comes.
async fn next(observer: &mut Observer<Rtnl>) -> Hint<Key> {
    let hint = tokio::time::timeout(Duration::from_secs(20), observer.hint()).await;
    hint.expect("no hint came").unwrap()
}

/// The next hint that names keys: links may still be coming up.
async fn next_keys(observer: &mut Observer<Rtnl>) -> Vec<Key> {
    loop {
        if let Hint::Keys(keys) = next(observer).await {
            return keys;
        }
    }
}

#[test]
fn a_lost_route_of_ours_is_named_and_foreign_churn_is_not() {
    let namespace = cable();
    let wish = wish(&[
        ("address 10.0.0.1/24 dev va", ""),
        ("route 10.5.0.0/16", "via 10.0.0.2"),
        ("route 10.6.0.0/16", "via 10.0.0.2"),
    ]);
    Bench::new().converge(&wish);
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        ip(&namespace, "route add 10.9.0.0/16 via 10.0.0.2");
        ip(&namespace, "route del 10.9.0.0/16 via 10.0.0.2");
        ip(&namespace, "route del 10.5.0.0/16");
        let named = |key: &str| vec![key.parse::<Key>().unwrap()];
        assert_eq!(next_keys(&mut observer).await, named("route 10.5.0.0/16"));
        ip(&namespace, "route replace 10.6.0.0/16 via 10.0.0.3 proto bird");
        assert_eq!(next_keys(&mut observer).await, named("route 10.6.0.0/16"), "a theft");
    });
}

#[test]
fn a_link_or_an_address_that_changed_asks_for_a_look_at_everything() {
    // The loopback link changes only when it is told to.
    let namespace = Namespace::enter().unwrap();
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        for args in ["link set lo mtu 60000", "address add 10.0.0.1/24 dev lo"] {
            ip(&namespace, args);
            assert_eq!(next(&mut observer).await, Hint::Lost, "{args}");
        }
    });
}
