//! Runs the groups about the kernel with small inputs. Each contestant checks its result, so that it is compared only
//! if it has done the work. Needs root.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

use homeostat_bench::contest::{Group, run_group};
use homeostat_bench::groups::{heal, netlink, nft, rtnl};
use homeostat_bench::run::Scale;

#[track_caller]
fn check(group: &Group) {
    let results = run_group(group, 2, Scale::Quick).unwrap();
    // Only programs that are not installed may be absent.
    assert!(results.absent.iter().all(|one| one.why.contains("apt-get")), "{:?}", results.absent);
    assert_eq!(results.rows.len() + results.absent.len(), group.contestants.len());
}

#[test]
fn routes_are_inserted_and_dumped() {
    check(&netlink::INSERT);
    check(&netlink::DUMP);
}

#[test]
fn a_cold_apply_ends_with_all_routes() {
    check(&rtnl::cold::SMALL);
    check(&rtnl::cold::SMALL_V6);
}

#[test]
fn what_the_floor_adds_is_what_homeostat_declares() {
    check(&rtnl::converged::SMALL);
}

#[test]
fn a_missing_route_is_put_back() {
    check(&rtnl::change::FULL);
    check(&rtnl::change::FOCUSED);
}

#[test]
fn what_the_floor_removes_is_gone() {
    check(&rtnl::removal::GROUP);
}

#[test]
fn memory_is_weighed() {
    check(&rtnl::memory::GROUP);
}

#[test]
fn foreign_changes_cause_no_hints() {
    check(&rtnl::foreign::CHURN);
    check(&rtnl::foreign::PASS);
}

#[test]
fn deleted_routes_are_restored() {
    check(&heal::latency::GROUP);
    check(&heal::burst::GROUP);
    check(&heal::burst::FLOOD);
}

#[test]
fn an_idle_daemon_is_watched_and_weighed() {
    check(&heal::idle::COUNTS);
    check(&heal::idle::BYTES);
    check(&heal::idle::WORK);
    check(&heal::memory::GROUP);
}

#[test]
fn a_cold_load_ends_with_the_whole_ruleset() {
    check(&nft::cold::ELEMENTS);
    check(&nft::cold::RULES);
}

#[test]
fn what_is_loaded_is_as_declared() {
    check(&nft::converged::ELEMENTS);
    check(&nft::converged::RULES);
}

#[test]
fn a_missing_rule_or_element_is_put_back() {
    check(&nft::change::RULE);
    check(&nft::change::ELEMENT);
}

#[test]
fn the_loop_heals_a_ruleset() {
    check(&nft::heal::GROUP);
}
