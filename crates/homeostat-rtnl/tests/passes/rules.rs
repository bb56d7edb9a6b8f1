//! Rules: every attribute, changes without a gap, and foreign rules beside ours.

use homeostat_engine::{Explain as _, MassDelete};
use homeostat_rtnl::Key;

use crate::bench::{Bench, Declared, cable, desired, explained, ip, listed};

const RULE: Declared<'_> = ("rule priority 1000 from 10.0.0.0/8", "table 100");

fn rules(namespace: &homeostat_testkit::namespace::Namespace) -> Vec<serde_json::Value> {
    [listed(namespace, "-4 -d rule show"), listed(namespace, "-6 -d rule show")].concat()
}

/// The rules of ours.
fn ours(namespace: &homeostat_testkit::namespace::Namespace) -> Vec<serde_json::Value> {
    let is_ours = |rule: &serde_json::Value| rule["protocol"] == "76";
    rules(namespace).into_iter().filter(is_ours).collect()
}

fn assert_rule(rule: Declared<'_>, shown: &[(&str, &str)]) {
    let namespace = cable();
    let before = rules(&namespace);
    let mut bench = Bench::new();
    assert_eq!(bench.converge(&desired(&[rule])), [format!("+ {}", rule.0)]);
    let seen = ours(&namespace);
    assert_eq!(seen.len(), 1);
    for (field, value) in shown {
        let seen = seen[0].get(field).map(ToString::to_string);
        assert_eq!(seen, Some((*value).to_owned()), "{field} of {rule:?}");
    }
    assert_eq!(bench.converge(&desired(&[])), [format!("- {}", rule.0)]);
    assert_eq!(rules(&namespace), before);
}

#[test]
fn every_attribute_reads_back_as_it_was_written() {
    assert_rule(RULE, &[("src", "\"10.0.0.0\""), ("srclen", "8"), ("table", "\"100\"")]);
    assert_rule(("rule priority 7 to fd00::/8", "table 1000"), &[("dst", "\"fd00::\"")]);
    assert_rule(("rule priority 7 iif va", "table main"), &[("iif", "\"va\"")]);
    let absent = [("oif", "\"nope\""), ("oif_detached", "null")];
    assert_rule(("rule inet6 priority 7 oif nope", "table main"), &absent);
    let mark = [("fwmark", "\"0x1\""), ("fwmask", "\"0xff\"")];
    assert_rule(("rule priority 7 fwmark 0x1/0xff", "table 7"), &mark);
    assert_rule(("rule priority 7 fwmark 0x5", "table 7"), &[("fwmark", "\"0x5\"")]);
    assert_rule(("rule priority 7 fwmark 0x0/0xff", "table 7"), &[]);
    assert_rule(("rule priority 7 fwmark 0x0", "table 7"), &[]);
    let ports =
        [("ipproto", "\"tcp\""), ("sport", "5"), ("dport_start", "80"), ("dport_end", "90")];
    assert_rule(("rule priority 7 ipproto tcp sport 5 dport 80-90", "table 7"), &ports);
    assert_rule(("rule priority 7 ipproto icmp", "table 7"), &[("ipproto", "\"icmp\"")]);
    assert_rule(("rule priority 7 tos 16", "table 7"), &[("tos", "\"0x10\"")]);
    assert_rule(("rule inet6 priority 7 tos 16", "table 7"), &[("tos", "\"0x10\"")]);
    let not = [("not", "null"), ("fwmark", "\"0xca6c\"")];
    assert_rule(("rule not priority 7 fwmark 0xca6c", "table 7"), &not);
    assert_rule(("rule inet6 not priority 7 fwmark 0xca6c", "table 7"), &not);
    let users = [("uid_start", "1000"), ("uid_end", "1999")];
    assert_rule(("rule priority 7 uidrange 1000-1999", "table 7"), &users);
    assert_rule(("rule priority 7 tun-id 42", "table 7"), &[("tun_id", "42")]);
    assert_rule(("rule priority 7", "goto 200"), &[("goto", "200")]);
    assert_rule(("rule priority 7", "action nop"), &[("nop", "null")]);
    let suppress = [("suppress_prefixlen", "0"), ("table", "\"main\"")];
    assert_rule(("rule priority 7", "table main suppress 0"), &suppress);
    assert_rule(
        ("rule inet6 priority 7", "table main suppress 64"),
        &[("suppress_prefixlen", "64")],
    );
    assert_rule(("rule priority 7", "action l3mdev"), &[("l3mdev", "null")]);
    assert_rule(("rule priority 0 from 10.0.0.0/8", "table 7"), &[("priority", "0")]);
    for action in ["blackhole", "unreachable", "prohibit"] {
        let (attrs, shown) = (format!("action {action}"), format!("\"{action}\""));
        assert_rule(("rule priority 7", &attrs), &[("action", &shown)]);
        assert_rule(("rule inet6 priority 7", &attrs), &[("action", &shown)]);
    }
}

/// Quirk: to the kernel, a rule and the same one inverted are one, and so are two that go to different places.
#[test]
fn rules_are_alike_inverted() {
    let namespace = cable();
    let mut bench = Bench::new();
    let both = [
        ("rule priority 7 fwmark 0x1", "table 7"),
        ("rule not priority 7 fwmark 0x1", "table 7"),
        ("rule priority 8", "goto 200"),
    ];
    let done = bench.converge(&desired(&both));
    assert_eq!(done.len(), 3, "{done:?}");
    assert_eq!(ours(&namespace).len(), 3);
    let moved = [both[0], both[1], ("rule priority 8", "goto 300")];
    assert_eq!(bench.converge(&desired(&moved)), ["~ rule priority 8"]);
    for only in [both[0], both[1]] {
        bench.converge(&desired(&moved));
        bench.converge(&desired(&[only]));
        let left = ours(&namespace);
        let is_inverted = left[0].get("not").is_some();
        assert_eq!((left.len(), is_inverted), (1, only.0.contains("not")), "{only:?}");
    }
    ip(&namespace, "rule add not from all fwmark 0x2 priority 9 table 9 protocol bird");
    bench.converge(&desired(&[both[0]]));
    bench.converge(&desired(&[]));
    assert_eq!(listed(&namespace, "rule show priority 9").len(), 1, "it is not ours");
}

/// `ip` of this system does not show the DSCP of a rule: a route that is looked up with one is the judge.
#[test]
fn a_dscp_decides_where_the_kernel_knows_it_and_is_refused_where_not() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "route add blackhole default table 7");
    let mut bench = Bench::new();
    let rule = desired(&[("rule priority 7 dscp EF", "table 7")]);
    let report = bench.pass(&rule);
    let lines = explained(&report);
    if report.is_converged() {
        bench.assert_quiet(&rule);
        let reaches = |tos| namespace.ip(&["route", "get", "10.0.0.9", "tos", tos]).is_ok();
        assert!(reaches("0") && !reaches("184"), "{lines:?}");
    } else {
        let refused = "failed rule priority 7 dscp EF: this kernel has no rules by DSCP";
        assert!(lines.iter().any(|line| line.starts_with(refused)), "{lines:?}");
        assert_eq!(ours(&namespace).len(), 0, "no rule for all packets");
    }
}

#[test]
fn a_changed_rule_is_one_update_and_the_former_one_is_gone() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[RULE]));
    for attrs in ["table 101", "table 101 suppress 0", "table 101", "action prohibit", "table 100"]
    {
        let other = desired(&[(RULE.0, attrs)]);
        assert_eq!(bench.converge(&other), [format!("~ {}", RULE.0)], "{attrs}");
        assert_eq!(ours(&namespace).len(), 1, "{attrs}");
    }
    assert_eq!(bench.plan(&desired(&[(RULE.0, "table 7")])).summary().update, 1);
    assert_eq!(bench.plan(&desired(&[(RULE.0, "table 7")])).summary().delete, 0);
}

#[test]
fn a_hand_deleted_rule_returns_as_exactly_one_create() {
    let namespace = cable();
    let mut bench = Bench::new();
    let desired = desired(&[RULE, ("rule priority 5 iif va", "table 7")]);
    bench.converge(&desired);
    ip(&namespace, "rule del priority 1000");
    assert_eq!(bench.converge(&desired), [format!("+ {}", RULE.0)]);
    ip(&namespace, "rule del priority 1000");
    assert_eq!(explained(&bench.focused(&desired, &[RULE.0])), [format!("+ {}", RULE.0)]);
}

#[test]
fn rules_coexist() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[RULE]));
    ip(&namespace, "rule add priority 1000 from 10.0.0.0/8 table 100 protocol bird");
    ip(&namespace, "rule add priority 1000 from 10.0.0.0/8 table 102");
    // Ours is there, so that it does not matter who else is.
    bench.assert_quiet(&desired(&[RULE]));
    let foreign = |rule: &serde_json::Value| rule["protocol"] != "76";
    let before: Vec<_> = rules(&namespace).into_iter().filter(foreign).collect();
    bench.converge(&desired(&[(RULE.0, "table 102")]));
    bench.converge(&desired(&[]));
    assert_eq!(rules(&namespace), before, "no delete hits a foreign rule");
}

#[test]
fn a_foreign_rule_on_a_wanted_key_is_a_conflict_or_matched() {
    let namespace = cable();
    ip(&namespace, "rule add priority 1000 from 10.0.0.0/8 table 7 protocol bird");
    ip(&namespace, "rule add priority 1001 from 10.0.0.0/8 table 100");
    let before = rules(&namespace);
    let mut bench = Bench::new();
    let report = bench.pass(&desired(&[RULE, ("rule priority 1001 from 10.0.0.0/8", "table 100")]));
    let expected = [
        format!("conflict {}: protocol bird", RULE.0),
        "matched rule priority 1001 from 10.0.0.0/8: no protocol".to_owned(),
    ];
    assert_eq!(explained(&report), expected);
    assert_eq!(rules(&namespace), before);
}

#[test]
fn standing_leave_takes_a_rule_from_anybody() {
    for protocol in ["bird", "unspec"] {
        let namespace = cable();
        let foreign = format!("rule add priority 1000 from 10.0.0.0/8 table 7 protocol {protocol}");
        ip(&namespace, &foreign);
        ip(&namespace, "rule add priority 1001 from 10.0.0.0/8 table 7");
        let mut bench = Bench::new();
        bench.config.adopt.insert(RULE.0.parse::<Key>().unwrap());
        assert!(bench.pass(&desired(&[RULE])).is_converged());
        bench.config.adopt.clear();
        bench.assert_quiet(&desired(&[RULE]));
        let left: Vec<_> = listed(&namespace, "rule show priority 1000");
        assert_eq!((left.len(), &left[0]["table"]), (1, &"100".into()), "from {protocol}");
        bench.converge(&desired(&[]));
        assert_eq!(listed(&namespace, "rule show priority 1001").len(), 1);
    }
}

#[test]
fn a_rule_is_not_taken_over_if_the_kernel_would_take_another_one_for_it() {
    let namespace = cable();
    ip(&namespace, "rule add priority 1000 iif va table 7 protocol bird");
    ip(&namespace, "rule add priority 1000 table 7 protocol bird");
    let mut bench = Bench::new();
    let key = "rule priority 1000";
    bench.config.adopt.insert(key.parse::<Key>().unwrap());
    let lines = explained(&bench.pass(&desired(&[(key, "table 7")])));
    let failed = lines.iter().find(|line| line.starts_with("failed")).unwrap();
    assert!(failed.contains("would take `rule priority 1000 iif va` for it"), "{failed}");
    let foreign = |rule: &&serde_json::Value| rule["protocol"] == "bird";
    assert_eq!(rules(&namespace).iter().filter(foreign).count(), 2);
}

#[test]
fn rule_delete_takes_the_first_match() {
    let namespace = cable();
    let mut bench = Bench::new();
    let narrow = ("rule priority 1000 from 10.0.0.0/8", "table 7");
    let narrower = ("rule priority 1000 from 10.0.0.0/8 iif va", "table 7");
    let broad = ("rule priority 1000", "table 7");
    // The narrow ones stand first, so that a request for the broad one fits them too.
    bench.converge(&desired(&[narrow]));
    bench.converge(&desired(&[narrow, narrower]));
    bench.converge(&desired(&[narrow, narrower, broad]));
    assert_eq!(bench.converge(&desired(&[narrow, narrower])), [format!("- {}", broad.0)]);
    assert_eq!(ours(&namespace).len(), 2);
    bench.converge(&desired(&[narrow, narrower, broad]));
    ip(&namespace, "rule del priority 1000 iif va table 7");
    bench.converge(&desired(&[narrow, narrower, broad]));
    let gone = bench.converge(&desired(&[narrower]));
    assert_eq!(gone, [format!("- {}", narrow.0), format!("- {}", broad.0)]);
    // And the kernel itself, by `ip`.
    ip(&namespace, "rule add priority 2000 iif va table 7");
    ip(&namespace, "rule add priority 2000 table 7");
    ip(&namespace, "rule del priority 2000 table 7");
    assert_eq!(listed(&namespace, "rule show priority 2000")[0].get("iif"), None);
}

#[test]
fn a_changed_rule_leaves_its_former_self_although_a_narrower_one_goes_too() {
    let namespace = cable();
    let mut bench = Bench::new();
    let narrow = "rule priority 1000 from 10.0.0.0/8";
    let narrower = ("rule priority 1000 from 10.0.0.0/8 iif va", "table 7");
    // The narrower one stands first, so that a request for the other one fits it too.
    bench.converge(&desired(&[narrower]));
    bench.converge(&desired(&[narrower, (narrow, "table 7")]));
    let done = bench.converge(&desired(&[(narrow, "table 8")]));
    assert_eq!(done, [format!("~ {narrow}"), format!("- {}", narrower.0)]);
    assert_eq!(ours(&namespace).len(), 1);
}

#[test]
fn a_removal_that_is_held_back_is_not_done_by_a_change_of_a_broader_rule() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.config.guards.mass_delete = MassDelete::Hold;
    let broad = "rule priority 1000";
    let narrow: Vec<String> = (0..20).map(|n| format!("{broad} from 10.{n}.0.0/16")).collect();
    let mut entries: Vec<Declared<'_>> =
        narrow.iter().map(|key| (key.as_str(), "table 7")).collect();
    bench.converge(&desired(&entries));
    entries.push((broad, "table 7"));
    bench.converge(&desired(&entries));
    let report = bench.pass(&desired(&[(broad, "table 8")]));
    assert_eq!(
        report.plan().findings_of(homeostat_engine::Kind::Held).count(),
        20,
        "{:#?}",
        explained(&report)
    );
    let tables = ours(&namespace);
    let count = |table: &str| tables.iter().filter(|rule| rule["table"] == table).count();
    assert_eq!((count("7"), count("8")), (20, 1));
    assert!(tables.iter().all(|rule| (rule["table"] == "8") == (rule["src"] == "all")));
}

#[test]
fn rule_excl_takes_a_narrower_one_for_the_same() {
    let namespace = cable();
    ip(&namespace, "rule add priority 2000 from 10.0.0.0/8 table 7");
    let refused = namespace.ip(&["rule", "add", "priority", "2000", "table", "7"]);
    assert!(refused.unwrap_err().to_string().contains("File exists"));
}

#[test]
fn a_delete_honours_the_protocol() {
    let namespace = cable();
    ip(&namespace, "rule add priority 1000 table 7 protocol bird");
    let refused = namespace.ip(&["rule", "del", "priority", "1000", "protocol", "76"]);
    assert!(refused.unwrap_err().to_string().contains("No such file"));
    assert_eq!(listed(&namespace, "rule show priority 1000").len(), 1);
}

#[test]
fn what_a_crash_left_between_two_halves_of_a_change_is_cleared() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[RULE]));
    ip(&namespace, "rule add priority 1000 from 10.0.0.0/8 table 101 protocol 76");
    assert_eq!(bench.converge(&desired(&[(RULE.0, "table 101")])), [format!("~ {}", RULE.0)]);
    assert_eq!(ours(&namespace).len(), 1);
    ip(&namespace, "rule add priority 1000 from 10.0.0.0/8 table 102 protocol 76");
    assert_eq!(bench.converge(&desired(&[])), [format!("- {}", RULE.0)]);
    assert!(ours(&namespace).is_empty(), "both went");
}

#[test]
fn a_rule_without_a_priority_is_wherever_the_kernel_put_it() {
    let namespace = cable();
    let mut bench = Bench::new();
    let key = "rule fwmark 0x5";
    assert_eq!(bench.converge(&desired(&[(key, "table 7")])), [format!("+ {key}")]);
    assert_eq!(bench.converge(&desired(&[(key, "table 8")])), [format!("~ {key}")]);
    assert_eq!(ours(&namespace).len(), 1);
    // One more of ours at another place is one too many.
    ip(&namespace, "rule add priority 500 fwmark 5 table 8 protocol 76");
    assert_eq!(bench.converge(&desired(&[(key, "table 8")])).len(), 1);
    assert_eq!(ours(&namespace).len(), 1);
    let placed = "rule priority 77 fwmark 0x5";
    let moved = bench.converge(&desired(&[(placed, "table 8")]));
    assert_eq!(moved.len(), 2, "{moved:?}");
    assert_eq!(ours(&namespace)[0]["priority"], 77);
    assert_eq!(bench.converge(&desired(&[(key, "table 8")])), Vec::<String>::new(), "it fits");
    bench.converge(&desired(&[]));
    assert!(ours(&namespace).is_empty());
}

#[test]
fn a_rule_without_a_priority_has_room_beside_foreign_ones_and_matches_its_like() {
    let namespace = cable();
    ip(&namespace, "rule add priority 500 fwmark 5 table 9");
    let mut bench = Bench::new();
    let key = "rule fwmark 0x5";
    assert_eq!(
        bench.converge(&desired(&[(key, "table 9")])),
        [format!("matched {key}: no protocol")]
    );
    assert_eq!(bench.converge(&desired(&[(key, "table 8")])), [format!("+ {key}")]);
    bench.converge(&desired(&[]));
    assert_eq!(listed(&namespace, "rule show priority 500").len(), 1);
}

#[test]
fn the_kernels_own_rules_are_the_kernels() {
    let namespace = cable();
    let before = rules(&namespace);
    let mut bench = Bench::new();
    let report = bench.pass(&desired(&[
        ("rule priority 32766", "table 7"),
        ("rule inet6 priority 32766", "table main"),
        ("rule priority 32767", "table default"),
    ]));
    let expected = [
        "conflict rule priority 32766: kernel",
        "matched rule priority 32767: kernel",
        "matched rule inet6 priority 32766: kernel",
    ];
    assert_eq!(explained(&report), expected);
    assert_eq!(rules(&namespace), before);
}

#[test]
fn rules_that_no_desired_state_can_say_are_on_no_key_and_survive() {
    let namespace = cable();
    for args in [
        "not from 10.0.0.0/8 table 7",
        "uidrange 0-5 table 7",
        "from all goto 32766",
        "from all table 7 suppress_ifgroup 3",
    ] {
        ip(&namespace, &format!("rule add priority 1000 {args}"));
    }
    let before = rules(&namespace);
    let mut bench = Bench::new();
    bench.converge(&desired(&[RULE]));
    bench.converge(&desired(&[]));
    assert_eq!(rules(&namespace), before);
}
