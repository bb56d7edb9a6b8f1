//! Checks of a trial: before it, during it and after its rollback; and a document that could not be applied completely.

use std::process::Stdio;

use crate::holder::Site;
use crate::keeping::until;
use crate::undone::begin;
use crate::world::{Ran, World};

impl Site {
    /// Runs an apply with a check, which may have spaces in it.
    fn apply_with(&self, args: &str, check: &str) -> Ran {
        let mut command = self.world.homeostat(&format!("apply --yes new.toml {args}"));
        command.args(["--check", check]);
        self.world.finish(command)
    }
}

#[test]
fn a_check_that_fails_already_keeps_a_trial_from_beginning() {
    let (site, before) = Site::applied();
    let refused =
        site.apply_with("--confirm-within 1m", "cmd:/bin/ls /nonexistent").exits(1).stderr;
    assert!(refused.contains("cmd:/bin/ls /nonexistent fails: exit status: 2"), "{refused}");
    assert!(refused.contains("before anything was changed"), "{refused}");
    site.world.is_again(&before);
    assert_eq!(site.world.rolled_back().len(), 0);
}

#[test]
fn good_checks_confirm_a_trial() {
    let (site, _) = Site::applied();
    let ran =
        site.apply_with("--confirm-within 1m --confirm-by checks", "ping:203.0.113.5").exits(0);
    let end = "Confirmed by its checks (ping:203.0.113.5): it is document 2 of the history.";
    assert_eq!(ran.last_line(), end, "{ran:?}");
    assert!(
        ran.stderr.contains("unless its checks are good three times in a row"),
        "{}",
        ran.stderr
    );
    site.world.run("verify new.toml").exits(0);
    let listed = site.world.run("history").exits(0).stdout;
    assert!(listed.contains("confirmed by its checks (ping:203.0.113.5)"), "{listed}");
}

/// A table and a link that only wait for the confirm are as they shall be, for the checks and for whoever waits.
#[test]
fn what_waits_only_for_the_confirm_keeps_no_check_from_confirming() {
    let (site, _) = Site::applied();
    let world = &site.world;
    let without = "routes = []\nrules = []\n[sysctl]\n\
        [links.lan0]\nup = true\naddresses = [\"192.0.2.1/24\"]\n[nftables]\nruleset = \"\"\n";
    world.write("new.toml", without);
    let ran = site.apply_with("--confirm-within 1m --confirm-by checks", "cmd:/bin/true").exits(0);
    assert!(ran.last_line().starts_with("Confirmed by its checks (cmd:/bin/true)"), "{ran:?}");
    until("the end of the holder", || !site.has_processes());
    world.run("verify new.toml").exits(0);
    assert!(!world.nft("list tables").contains("kept"));
    let links = world.ip("link show");
    assert!(!links.contains("br0:") && !links.contains("hs-"), "{links}");
    // With a daemon, the same is settled while the trial is open.
    let _daemon = world.keep(&format!("{without}[links.br0]\nkind = \"bridge\"\nup = true\n"));
    world.converges();
    world.confirms(3);
    let mut client = begin(world, without, "");
    world.run("status --wait --timeout 30s").exits(0);
    assert!(world.ip("link show").contains("hs-"), "the bridge waits for the confirm");
    world.run("rollback").exits(0);
    client.wait().unwrap();
}

/// The trial takes the address away that is checked, and the rollback brings it back.
#[test]
fn a_check_that_fails_in_the_trial_rolls_it_back_and_is_good_again() {
    let (site, before) = Site::applied();
    let ran = site.apply_with("--confirm-within 7s --confirm-by checks", "ping:192.0.2.1").exits(1);
    assert!(
        ran.stdout.contains("Rolled back to the confirmed document 1: ping:192.0.2.1 fails:"),
        "{ran:?}"
    );
    assert_eq!(ran.last_line(), "After the rollback, ping:192.0.2.1 is good.");
    site.world.is_again(&before);
    let ended = &site.world.rolled_back()[0];
    assert_eq!(ended["checks"][0]["check"], "ping:192.0.2.1");
    assert!(ended["checks"][0]["error"].is_null());
}

#[test]
fn a_document_that_cannot_be_applied_completely_goes_back() {
    let (site, before) = Site::applied();
    let text = std::fs::read_to_string(site.world.path().join("new.toml")).unwrap();
    let impossible = "routes = [{ to = \"10.1.0.0/16\", dev = \"absent0\" }, ";
    let text = text
        .replace("routes = [", impossible)
        .replace("{ to = \"10.1.0.0/16\", via", "{ to = \"10.4.0.0/16\", via");
    site.world.write("new.toml", &text);
    let ran = site.world.run("apply --yes --on-failure rollback new.toml").exits(1);
    assert!(ran.last_line().starts_with("Rolled back to the confirmed document 1: not everything could be applied: route 10.1.0.0/16"), "{ran:?}");
    site.world.is_again(&before);
    site.world.run("apply --yes --on-failure rollback host.toml").exits(0);
    assert!(site.world.rolled_back().len() == 1 && site.world.history().len() == 2);
}

/// The address of the former document waits for a link that was unplugged during the trial.
#[test]
fn what_a_rollback_cannot_bring_back_is_named() {
    let (site, _) = Site::applied();
    let client = site.try_for("1h");
    site.world.ip("link delete lan0");
    let mut rollback = site.world.homeostat("rollback");
    let rolled = rollback.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(rolled.code(), Some(1), "not everything is as declared");
    let said = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("\nRolled back, but not:\n"), "{said}");
    assert!(
        said.contains("  address 192.0.2.1/24 dev lan0 (rtnl in host): waits on link lan0"),
        "{said}"
    );
    until("the end of the holder", || site.holder().is_none());
    let ended = &site.world.rolled_back()[0];
    let keys: Vec<_> =
        ended["not"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"address 192.0.2.1/24 dev lan0"), "{keys:?}");
    assert_eq!(ended["not"][0]["kind"], "pending");
}

/// A daemon goes on with it: the address is there as soon as its link is.
#[test]
fn what_a_rollback_could_not_bring_back_is_made_when_it_can_be() {
    let world = World::new();
    world.add_pair("lan0", "peer0");
    let _daemon = world.keep("[links.lan0]\nup = true\naddresses = [\"192.0.2.1/24\"]\n");
    world.converges();
    world.confirms(1);
    let tried = "[links.lan0]\nup = true\naddresses = [\"192.0.2.2/24\"]\n";
    let mut client = begin(&world, tried, "");
    world.converges();
    world.ip("link delete lan0");
    let ran = world.run("rollback").exits(1);
    assert!(ran.stdout.contains("waits on link lan0"), "{ran:?}");
    client.wait().unwrap();
    assert_eq!(world.rolled_back()[0]["not"][0]["kind"], "pending");
    world.add_pair("lan0", "peer0");
    world.converges();
    assert!(world.ip("address show dev lan0").contains("192.0.2.1/24"));
}

#[test]
fn what_is_no_check_is_refused_and_nothing_is_written() {
    let (site, before) = Site::applied();
    for check in ["smtp:192.0.2.1", "ping:", "tcp:192.0.2.1:0", "tcp:192.0.2.1", "cmd:"] {
        let ran = site.apply_with("--confirm-within 1m", check).exits(1);
        assert!(ran.stderr.contains("is no check"), "{check}: {}", ran.stderr);
    }
    let short =
        site.apply_with("--confirm-within 2s --confirm-by checks", "cmd:/bin/true").exits(1);
    assert!(short.stderr.contains("checks cannot confirm a trial within 2s"), "{}", short.stderr);
    site.apply_with("", "cmd:/bin/true").exits(1);
    site.world.run("apply --yes --confirm-within 1m --confirm-by checks new.toml").exits(1);
    site.world.is_again(&before);
}
