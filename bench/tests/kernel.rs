//! Runs the groups about the kernel with small inputs. Each contestant checks its result, so that it is compared only
//! if it has done the work. Needs root.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

use homeostat_bench::contest::run_group;
use homeostat_bench::groups;
use homeostat_bench::run::Scale;

/// Runs the groups whose names begin so; `count` of them.
#[track_caller]
fn check(name: &str, count: usize) {
    let groups = groups::all().into_iter().filter(|group| group.name.starts_with(name));
    let groups: Vec<_> = groups.collect();
    assert_eq!(groups.len(), count, "{name}");
    for group in groups {
        let results = run_group(&group, 2, Scale::Quick).unwrap();
        let absent = results.absent;
        // Only programs that are not installed may be absent.
        assert!(absent.iter().all(|one| one.why.contains("apt-get")), "{absent:?}");
        assert_eq!(results.rows.len() + absent.len(), group.contestants.len());
    }
}

#[test]
fn a_pass_in_memory_converges_and_heals() {
    check("pass: ", 3);
}

#[test]
fn a_cold_apply_ends_with_all_routes() {
    check("rtnl: cold apply", 3);
}

#[test]
fn what_the_floor_adds_is_what_homeostat_declares() {
    check("rtnl: converged pass over", 1);
}

#[test]
fn what_the_floor_removes_is_gone() {
    check("rtnl: removal", 6);
}

#[test]
fn many_objects_of_each_kind_are_made() {
    check("rtnl: apply of", 4);
}

#[test]
fn others_go_on_during_a_long_write() {
    check("long write: ", 2);
}

#[test]
fn reports_are_written_down() {
    check("report: ", 3);
}

#[test]
fn foreign_changes_cause_no_hints() {
    check("rtnl: work a second", 1);
    check("rtnl: converged pass beside", 1);
}

#[test]
fn large_documents_are_read_in_every_format() {
    check("document: ", 2);
}

#[test]
fn many_namespaces_converge_and_one_is_healed() {
    check("namespaces: ", 3);
}

#[test]
fn deleted_routes_are_restored() {
    // Of routes, and of rules.
    check("heal: one deleted r", 2);
    check("heal: one deleted address", 1);
    check("heal: one deleted neighbour", 1);
    check("heal: one deleted nexthop", 1);
    check("heal: one changed link", 1);
    check("heal: one deleted link", 1);
    check("heal: 10k routes", 1);
    check("heal: 300k of 1M", 1);
}

#[test]
fn a_trial_replaces_all_routes_and_is_rolled_back() {
    check("trial: ", 1);
}

#[test]
fn an_idle_daemon_is_watched_and_weighed() {
    check("heal: an idle", 2);
    check("heal: work", 1);
    check("heal: memory", 1);
}

#[test]
fn a_cold_load_ends_with_the_whole_ruleset() {
    check("nft: cold", 2);
}

#[test]
fn what_is_loaded_is_as_declared() {
    check("nft: converged", 2);
}

#[test]
fn a_missing_rule_or_element_is_put_back() {
    check("nft: one of", 3);
}

#[test]
fn the_loop_heals_a_ruleset() {
    check("nft: heal", 1);
    check("nft: memory", 1);
}
