//! A shaped link is shaped: judged by what `tc` has counted, not by a clock.

use serde_json::json;

use crate::bench::{Bench, desired, root, tc, tc_json};

#[test]
fn a_token_bucket_holds_back_what_is_beyond_its_rate() {
    let bench = Bench::new();
    // At 8 kbit, the second of these packets would wait for a second.
    let tbf = json!({ "kind": "tbf", "rate": "8kbit", "burst": "2000b", "limit": "3000b" });
    bench.converge(&desired(&[("qdisc va", tbf)]));
    bench.flood();
    let seen = root("va");
    let number = |name: &str| seen[name].as_u64().unwrap();
    assert!(number("overlimits") > 0, "{seen}");
    assert!(number("drops") > 0, "{seen}");
    assert!(number("bytes") > 0, "{seen}");
    assert!(number("backlog") <= 3000, "{seen}");
    // What was sent is what the bucket held, and not the 30,000 bytes that were offered.
    assert!(number("bytes") < 10_000, "{seen}");

    bench.converge(&desired(&[]));
    assert_eq!(root("va")["handle"], "0:");
}

#[test]
fn packets_go_into_the_default_class() {
    let bench = Bench::new();
    let htb = json!({ "kind": "htb", "default": "20", "classes": {
        "10": { "rate": "10mbit" },
        "20": { "rate": "8kbit", "qdisc": { "kind": "pfifo", "limit": 2 } } } });
    bench.converge(&desired(&[("qdisc va", htb)]));
    bench.flood();
    let classes = tc("-s class show dev va");
    let packets = |handle: &str| {
        let start = format!("class htb {handle} ");
        let mut lines = classes.lines().skip_while(|line| !line.starts_with(&start));
        let mut sent = lines.nth(1).unwrap().split_whitespace();
        sent.nth(3).unwrap().parse::<u64>().unwrap()
    };
    assert!(packets("4000:20") > 0, "{classes}");
    assert_eq!(packets("4000:10"), 0, "{classes}");
    let leaf =
        tc_json("qdisc show dev va").into_iter().find(|one| one["handle"] == "4020:").unwrap();
    assert!(leaf["drops"].as_u64().unwrap() > 0, "{leaf}");
}
