//! Documents: three formats, directories, standard input.

use snapbox::str;

use crate::world::World;

const TOML: &str = r#"[settings]
owner = "default"
[sysctl]
"net.ipv4.ip_forward" = 1
"net.ipv4.tcp_rmem" = "4096 8192 65536"
[links.lo.sysctl]
"ipv4/rp_filter" = 2
"#;

const YAML: &str = r#"settings:
  owner: default
sysctl:
  net.ipv4.ip_forward: 1
  net.ipv4.tcp_rmem: "4096 8192 65536"
links:
  lo:
    sysctl:
      ipv4/rp_filter: 2
"#;

const JSON: &str = r#"{
  "settings": { "owner": "default" },
  "sysctl": { "net.ipv4.ip_forward": 1, "net.ipv4.tcp_rmem": "4096 8192 65536" },
  "links": { "lo": { "sysctl": { "ipv4/rp_filter": 2 } } }
}
"#;

#[test]
fn the_three_formats_mean_the_same() {
    let world = World::with(TOML);
    world.write("host.yaml", YAML);
    world.write("host.yml", YAML);
    world.write("host.json", JSON);
    let expected = world.run("plan --json host.toml").exits(0).stdout;
    assert!(expected.contains("tcp_rmem"), "{expected}");
    for name in ["host.yaml", "host.yml", "host.json"] {
        assert_eq!(world.run(&format!("plan --json {name}")).exits(0).stdout, expected, "{name}");
    }
    world.run("apply --yes host.json").exits(0);
    world.run("verify host.yaml").says(0, "");
    world.run("plan host.toml").says(0, "No changes.\n");
}

#[test]
fn a_directory_is_one_document_in_name_order() {
    let world = World::new();
    world.write("conf/10-base.toml", "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    world.write("conf/20-more.yaml", "sysctl:\n  net.ipv4.tcp_retries1: 4\n");
    world.write("conf/30-last.json", "{\"sysctl\": {\"net.ipv4.tcp_retries2\": 9}}");
    world.write("conf/README.md", "not a document");
    world.write("conf/.hidden.toml", "broken");
    world.run("plan conf").says(
        0,
        str![[r#"
knobs in host
  config changed:
    ~ sysctl net.ipv4.ip_forward    0 -> 1
    ~ sysctl net.ipv4.tcp_retries1  3 -> 4
    ~ sysctl net.ipv4.tcp_retries2  15 -> 9
Plan: 0 to create, 3 to update, 0 to replace, 0 to delete.

"#]],
    );
    let files = "conf/10-base.toml conf/20-more.yaml conf/30-last.json";
    assert_eq!(
        world.run(&format!("plan {files}")).exits(0).stdout,
        world.run("plan conf/").exits(0).stdout
    );
}

#[test]
fn a_key_that_two_files_declare_names_both_places() {
    let world = World::new();
    world.write("conf/a.toml", "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    world.write("conf/b.yaml", "sysctl:\n  net.ipv4.ip_forward: 0\n");
    world.run("plan conf").fails(str![[r#"
error: `net.ipv4.ip_forward` is defined twice
 --> conf/b.yaml:2:3
  |
2 |   net.ipv4.ip_forward: 0
  |   ^^^^^^^^^^^^^^^^^^^
  |
 ::: conf/a.toml:2:1
  |
2 | "net.ipv4.ip_forward" = 1
  | --------------------- first defined here

1 error in the document; nothing was changed

"#]]);
}

#[test]
fn one_knob_by_two_spellings_names_both_places() {
    let world = World::with(
        "[sysctl]\n\"net.ipv4.conf.lo.rp_filter\" = 1\n[links.lo.sysctl]\n\"ipv4/rp_filter\" = 2\n",
    );
    world.run("check host.toml").fails(str![[r#"
error: the knob `net/ipv4/conf/lo/rp_filter` is declared twice
 --> host.toml:4:1
  |
2 | "net.ipv4.conf.lo.rp_filter" = 1
  | ---------------------------- first declared here
3 | [links.lo.sysctl]
4 | "ipv4/rp_filter" = 2
  | ^^^^^^^^^^^^^^^^

1 error in the document; nothing was changed

"#]]);
}

#[test]
fn all_mistakes_are_shown_together_with_their_places() {
    let world = World::with(
        r#"[sysctl]
"net.ipv4.ip_forward" = {}
"net/ipv4/../../vm/swappiness" = 1

[links.eth0]
adresses = ["10.0.0/24"]
mtu = 1
[[routes]]
to = "10.0.0.0/33"
via = "192.0.2.1"
"#,
    );
    for command in ["check", "plan", "verify", "apply --yes"] {
        let ran = world.run(&format!("{command} host.toml")).exits(1);
        let expected =
            ["host.toml:2:25", "host.toml:3:1", "host.toml:6:1", "host.toml:7:7", "host.toml:9:6"];
        assert_eq!(places(&ran.stderr), expected, "{command}: {}", ran.stderr);
        assert!(ran.stderr.ends_with("5 errors in the document; nothing was changed\n"));
        assert!(ran.stderr.contains("did you mean `addresses`?"), "{}", ran.stderr);
    }
}

#[test]
fn a_knob_that_can_only_be_written_is_refused_up_front() {
    let world = World::with("[sysctl]\n\"net.ipv4.route.flush\" = 1\n");
    world.run("check host.toml").fails(str![[r#"
error: `sysctl net.ipv4.route.flush` is a command, not a setting
 --> host.toml:2:1
  |
2 | "net.ipv4.route.flush" = 1
  | ^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: run it from a script or a timer

1 error in the document; nothing was changed

"#]]);
}

#[test]
fn a_dash_is_a_document_on_standard_input() {
    let world = World::new();
    let text = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n";
    let ran = world.finish_with(world.homeostat("plan -"), text);
    ran.says(
        0,
        str![[r#"
knobs in host
  config changed:
    ~ sysctl net.ipv4.ip_forward  0 -> 1
Plan: 0 to create, 1 to update, 0 to replace, 0 to delete.

"#]],
    );
    world.finish_with(world.homeostat("apply --yes -"), text).exits(0);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    world.finish_with(world.homeostat("check -"), "[sysctl\n").fails(str![[r#"
error: this is not TOML: unclosed table, expected `]`
 --> standard input:1:8
  |
1 | [sysctl
  |        ^

1 error in the document; nothing was changed

"#]]);
}

#[test]
fn standard_input_may_be_json() {
    let world = World::new();
    let json = world.run("show --json").exits(0).stdout;
    world.finish_with(world.homeostat("plan -"), &json).says(0, "No changes.\n");
    let ran = world.finish_with(world.homeostat("check -"), "\n{ \"sysctl\": 1 }\n").exits(1);
    assert_eq!(places(&ran.stderr), ["standard input:2:13"], "{}", ran.stderr);
}

/// The lines that a diagnosis points at.
fn places(stderr: &str) -> Vec<&str> {
    stderr.lines().filter_map(|line| line.trim_start().strip_prefix("--> ")).collect()
}

#[test]
fn empty_lists_declare_nothing() {
    let world = World::with("routes = []\nrules = []\n[links.lo]\naddresses = []\n[nftables]\n");
    world.run("plan host.toml").says(0, "No changes.\n");
}

#[test]
fn a_link_that_only_has_knobs_is_built_in() {
    let world = World::with("[links.lo.sysctl]\n\"ipv4/rp_filter\" = 2\n");
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/conf/lo/rp_filter"), "2");
}

#[test]
fn mistakes_that_only_a_source_can_see_are_shown_with_the_others() {
    let world = World::with(
        "[sysctl]\n\"net.ipv4.route.flush\" = 1\n\"net.ipv4.ip_forward\" = true\n\
         [cgroups.\"a/b\"]\n\"memory.max\" = \"256MB\"\n",
    );
    let ran = world.run("check host.toml").exits(1);
    for place in ["host.toml:2:1", "host.toml:3:25", "host.toml:5:1"] {
        assert!(ran.stderr.contains(place), "{place}\n{}", ran.stderr);
    }
    assert!(ran.stderr.contains("3 errors in the document"), "{}", ran.stderr);
}
