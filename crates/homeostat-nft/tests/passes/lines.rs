//! Rules in plans: as their author wrote them, beside how `nft` lists them.

use homeostat_engine::{Entry, Explain as _, Kind};
use homeostat_nft::{Compiler, Ruleset, Wording};
use serde_json::Value;

use crate::corpus;
use crate::world::{World, by_hand, explained, nft};

/// What a plan says of rules that are to come.
fn rules(world: &mut World, text: &str) -> Vec<Value> {
    let desired = world.desired(text);
    let (plan, mut rules) = (world.plan(&desired), Vec::new());
    plan.explain(Kind::Change, &mut |entry| {
        if let Entry::Change(line, _) = entry {
            rules.extend(line.after.filter(|after| after.get("normalized").is_some()));
        }
    });
    rules
}

fn words<'a>(rules: &'a [Value], what: &str) -> Vec<&'a str> {
    rules.iter().map(|rule| rule[what].as_str().unwrap_or("-")).collect()
}

#[test]
fn a_rule_is_shown_as_its_author_wrote_it_and_as_nft_lists_it_with_its_place() {
    let mut world = World::worded(Wording::Listed);
    let text = "define web = { 0x50, 443 }\ntable inet a {\n  chain i {\n    type filter hook input priority 0\n    \
        tcp dport  $web counter accept # the web\n    iif lo accept; ip protocol icmp drop\n  }\n}\n";
    let rules = rules(&mut world, text);
    let own = ["tcp dport $web counter accept", "iif lo accept", "ip protocol icmp drop"];
    assert_eq!(words(&rules, "rule"), own);
    let listed = [
        "tcp dport { 80, 443 } counter packets 0 bytes 0 accept",
        "iif \"lo\" accept",
        "ip protocol icmp drop",
    ];
    assert_eq!(words(&rules, "normalized"), listed);
    assert_eq!(words(&rules, "place"), ["fw.nft:5", "fw.nft:6", "fw.nft:6"]);
}

#[test]
fn only_rules_without_a_line_are_listed_where_no_report_is_wanted() {
    let with_lines = "table ip a { chain x { tcp dport 0x16 accept; }; }\n";
    let rules_of = |text: &str| rules(&mut World::new(), text);
    let known = rules_of(with_lines);
    assert_eq!(words(&known, "rule"), ["tcp dport 0x16 accept"]);
    assert!(words(&known, "normalized")[0].starts_with("handle "), "{known:?}");
    let unknown = rules_of(&format!("{with_lines}insert rule ip a x drop\n"));
    assert_eq!(words(&unknown, "normalized"), ["drop", "tcp dport 22 accept"]);
}

#[test]
fn a_change_names_the_line_that_it_comes_from() {
    let mut world = World::new();
    let text = |port: &str| {
        format!(
            "table ip a {{\n chain x {{\n  tcp dport 0x16 accept\n  tcp dport {port} accept\n }}\n}}\n"
        )
    };
    world.converge(&text("0x50"));
    let planned = world.planned(&text("0x1bb"));
    assert!(planned.ends_with("tcp dport 0x1bb accept (fw.nft:4)"), "{planned}");
    by_hand("flush chain ip a x");
    let desired = world.desired(&text("0x50"));
    let planned = explained(&world.plan(&desired));
    assert!(planned.contains("| tcp dport 0x16 accept (at place 1; fw.nft:3)"), "{planned}");
}

#[test]
fn rules_of_one_chain_may_come_from_several_files() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("part.nft"), "table ip a { chain x { drop; }; }\n")
        .unwrap();
    let text = "include \"part.nft\"\ntable ip a {\n chain x { tcp dport 0x16 accept; }\n chain y { tcp dport 0x16 drop; }\n}\n";
    let mut world = World::new();
    let (name, directory) = ("fw.nft".to_owned(), directory.path().to_owned());
    let ruleset = Ruleset { text: text.into(), name, directory, root: "/".into() };
    let desired = Compiler::default().compile(&ruleset, &world.source).unwrap();
    let plan = explained(&world.plan(&std::sync::Arc::new(desired)));
    for line in
        ["chain x | drop", "chain x | tcp dport 0x16 accept", "chain y | tcp dport 0x16 drop"]
    {
        assert!(plan.contains(line), "{line}: {plan}");
    }
}

#[test]
fn where_others_have_a_part_in_a_chain_rules_are_shown_as_nft_lists_them() {
    let mut world = World::new();
    let text = "table ip a { chain x { tcp dport 0x16 accept; }; }\ninsert rule ip a x drop\n";
    assert_eq!(words(&rules(&mut world, text), "rule"), ["drop", "tcp dport 22 accept"]);
}

/// A listing is a text of its own: what it says of a rule is what is listed of the rule, or the rule was
/// taken for another.
#[test]
fn no_rule_is_taken_for_another() {
    let mut known = 0;
    for (name, text) in corpus::taken() {
        let mut world = World::worded(Wording::Listed);
        by_hand(text);
        let listing = nft(&["-s", "list", "ruleset"], "").unwrap();
        by_hand("flush ruleset");
        for rule in rules(&mut world, &listing).iter().filter(|rule| !rule["place"].is_null()) {
            let plain = |what: &str| {
                let words = rule[what].as_str().unwrap().replace(" packets 0 bytes 0", "");
                words.replace(" used 0 bytes", "")
            };
            assert_eq!(plain("rule"), plain("normalized"), "{name}");
            known += 1;
        }
    }
    assert!(known > 200, "{known}");
}
