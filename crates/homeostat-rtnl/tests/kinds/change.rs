//! What a link of one kind means for another on its name.

use homeostat_rtnl::{Bridge, Link, LinkKind, Macvlan};

use crate::bench::{AGAIN, Bench, NAME, desired, on_low};

#[test]
fn another_kind_is_another_link() {
    let mut bench = Bench::new();
    let bridge = Link::new(LinkKind::Bridge(Bridge::default()));
    if !bench.has("probe link low0 type macvlan") {
        return bench.lacks(&on_low(LinkKind::Macvlan(Macvlan::default())), "macvlan");
    }
    bench.changes((&bridge, &on_low(LinkKind::Macvlan(Macvlan::default()))), AGAIN);
}

#[test]
fn what_stands_on_a_link_that_is_made_again_is_made_again_with_it() {
    let mut bench = Bench::new();
    if !bench.has("probe link low0 type macvlan") {
        return bench.lacks(&on_low(LinkKind::Macvlan(Macvlan::default())), "macvlan");
    }
    let on = |link: &str| Link {
        parent: Some(homeostat_rtnl::LinkRef::here(crate::bench::name(link))),
        ..on_low(LinkKind::Macvlan(Macvlan::default()))
    };
    let bridge = Link::new(LinkKind::Bridge(Bridge::default()));
    let ifb = Link::new(LinkKind::Ifb);
    bench.converge(&desired(&[("above", on(NAME)), (NAME, bridge)]));
    let done = bench.converge(&desired(&[("above", on(NAME)), (NAME, ifb)]));
    assert_eq!(done, [format!("{AGAIN} link {NAME}"), "+ link above".to_owned()]);
}
