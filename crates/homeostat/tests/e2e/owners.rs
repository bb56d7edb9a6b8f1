//! Owners: two of them in one namespace do not see each other's knobs.

use homeostat_engine::NetnsLock;
use snapbox::str;

use crate::world::World;

#[test]
fn each_owner_releases_only_its_own() {
    let world = World::new();
    world.write("one.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.write(
        "two.toml",
        "[settings]\nowner = \"two\"\nprotocol = 77\n[sysctl]\n\"net.ipv4.tcp_retries2\" = 9\n",
    );
    let (first, second) =
        (world.knob("net/ipv4/tcp_retries1"), world.knob("net/ipv4/tcp_retries2"));
    world.run("apply --yes one.toml").exits(0);
    world.run("apply --yes two.toml").exits(0);
    world.run("verify one.toml").says(0, "");
    world.write("two.toml", "[settings]\nowner = \"two\"\nprotocol = 77\n[sysctl]\n");
    world.run("apply --yes --revert-on-release two.toml").says(
        0,
        str![[r#"
knobs in host
  applied:
    - sysctl net.ipv4.tcp_retries2  9 -> 15  (released, original restored)
Applied: 0 created, 0 updated, 0 replaced, 1 deleted.

"#]],
    );
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "5");
    assert_eq!(world.knob("net/ipv4/tcp_retries2"), second);
    world.write("one.toml", "[sysctl]\n");
    world.run("apply --yes --revert-on-release one.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), first);
}

#[test]
fn a_knob_that_another_owner_keeps_is_a_conflict_until_it_is_released() {
    let world = World::new();
    let two = |value: &str| {
        let settings = "[settings]\nowner = \"two\"\nprotocol = 77\n";
        world.write(
            "two.toml",
            format!("{settings}[sysctl]\n\"net.ipv4.tcp_retries1\" = {value}\n"),
        );
    };
    world.apply("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    two("7");
    world.run("apply --yes two.toml").says(
        1,
        str![[r#"
knobs in host
  conflicts:
    ! sysctl net.ipv4.tcp_retries1  belongs to owner default; `adopt = true` would take it
Not converged: 0 created, 0 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "5");
    // The same value is left as it is, and not claimed.
    two("5");
    world.run("apply --yes two.toml").says(0, "No changes.\n");
    world.apply("[sysctl]\n");
    two("7");
    world.run("apply --yes two.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "7");
}

#[test]
fn the_command_line_overrides_the_documents_owner() {
    let world = World::new();
    world.apply("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.write("host.toml", "[sysctl]\n");
    world.run("plan --owner two --protocol 77 host.toml").says(0, "No changes.\n");
    assert_eq!(world.plan()["changes"].as_array().unwrap().len(), 1);
}

#[test]
fn another_owner_needs_a_mark_of_its_own() {
    let world = World::with("[sysctl]\n");
    world.run("plan --owner two host.toml").fails(str![[r#"
error: the owner `two` needs a mark of its own in the kernel
help: add `protocol = 77` to [settings], or --protocol, with a free number that only this owner uses

"#]]);
    world.run("plan --owner two --protocol 76 host.toml").fails(str![[r#"
error: the owner `two` needs a mark of its own in the kernel
help: add `protocol = 77` to [settings], or --protocol, with a free number that only this owner uses

"#]]);
    world.write("two.toml", "[settings]\nowner = \"two\"\nprotocol = 77\n");
    world.run("plan --protocol 76 two.toml").fails(str![[r#"
error: the owner `two` needs a mark of its own in the kernel
help: add `protocol = 77` to [settings], or --protocol, with a free number that only this owner uses

"#]]);
}

#[test]
fn an_owner_or_a_mark_that_cannot_be_one_is_refused() {
    let world = World::with("[sysctl]\n");
    world.run("plan --owner A/b --protocol 77 host.toml").fails(str![[r#"
error: invalid value 'A/b' for '--owner <NAME>': `A/b` is not an owner's name

For more information, try '--help'.

"#]]);
    for protocol in ["0", "256", "-1", "77x", "kernel", "bird", "2", ""] {
        let mut command = world.homeostat("plan host.toml");
        command.arg(format!("--protocol={protocol}"));
        let ran = world.finish(command).exits(1);
        assert!(ran.stderr.contains("--protocol"), "{protocol:?}: {}", ran.stderr);
    }
    world.run("plan --protocol 77 host.toml").says(0, "No changes.\n");
}

#[test]
fn a_protocol_by_name_is_the_number_that_the_machine_gives_it() {
    let world = World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    world.run("plan --owner two --protocol lab host.toml").fails(str![[r#"
error: this machine has no protocol named `lab`
help: give its number, or add a line such as `77 lab` to /etc/iproute2/rt_protos

"#]]);
    let names = world.write("protos", "77 lab # ours\n76 shared\n12 hawk\n");
    let in_names = |args: &str| {
        let mount = format!("mount --bind {} /etc/iproute2/rt_protos", names.display());
        let mut command = world.command("unshare");
        let homeostat = crate::program::HOMEOSTAT;
        let script = format!("{mount}\nexec {homeostat} {args} host.toml --state-dir state");
        command.args(["--mount", "sh", "-ec", &script]);
        world.finish(command)
    };
    let held = NetnsLock::take(&["protocol/77"]).unwrap();
    let ran = in_names("apply --yes --owner two --protocol lab").exits(1);
    assert!(ran.stderr.contains("with protocol 77: "), "{}", ran.stderr);
    drop(held);
    in_names("apply --yes --owner two --protocol lab").exits(0);
    let ran = in_names("plan --owner two --protocol shared").exits(1);
    assert!(ran.stderr.contains("needs a mark of its own"), "{}", ran.stderr);
    let ran = in_names("plan --owner two --protocol hawk").exits(1);
    assert!(ran.stderr.contains("protocol `12` is not free"), "{}", ran.stderr);
}

#[test]
fn a_field_of_a_link_that_another_owner_keeps_is_a_conflict_until_it_is_released() {
    let world = World::new();
    world.add_pair("va", "vb");
    let two = "[settings]\nowner = \"two\"\nprotocol = 77\n";
    world.apply("[links.va]\nmtu = 1400\n");
    world.write("two.toml", format!("{two}[links.va]\nmtu = 1300\n"));
    let ran = world.run("apply --yes two.toml").exits(1);
    assert!(ran.stdout.contains("! link va mtu  belongs to owner default"), "{ran:?}");
    assert!(world.ip("link show va").contains("mtu 1400"));
    // Another field is free, and the same value is no conflict.
    world.write("two.toml", format!("{two}[links.va]\nmtu = 1400\nup = true\n"));
    world.run("apply --yes two.toml").exits(0);
    world.apply("[links]\n");
    world.write("two.toml", format!("{two}[links.va]\nmtu = 1300\n"));
    world.run("apply --yes two.toml").exits(0);
    assert!(world.ip("link show va").contains("mtu 1300"));
}

#[test]
fn the_protocol_on_the_command_line_serves_an_owner_without_one_in_the_document() {
    let world = World::new();
    let route = "[[routes]]\nto = \"10.9.0.0/16\"\ntype = \"blackhole\"\n";
    world.write("host.toml", format!("[settings]\nowner = \"lab\"\n{route}"));
    for command in ["check", "plan", "apply --yes"] {
        let ran = world.run(&format!("{command} host.toml")).exits(1);
        let expected = "the owner `lab` needs a mark of its own in the kernel";
        assert!(ran.stderr.contains(expected), "{command}: {ran:?}");
        world.run(&format!("{command} --protocol 78 host.toml")).exits(0);
    }
    assert!(world.ip("route show").contains("proto 78"));
}

#[test]
fn another_protocol_leaves_nothing_behind_without_a_word() {
    let world = World::new();
    let route = "to = \"10.9.0.0/16\", type = \"blackhole\"";
    world.apply(&format!("routes = [{{ {route} }}]\n"));
    let other = |list: &str| {
        world.write("host.toml", format!("routes = [{list}]\n[settings]\nprotocol = 77\n"));
    };
    for list in [format!("{{ {route} }}"), String::new()] {
        other(&list);
        for command in ["plan", "apply --yes"] {
            let ran = world.run(&format!("{command} host.toml")).exits(1);
            let expected = "has used protocol 76: with 77 it would leave 1 objects behind, such as \
                            `route 10.9.0.0/16`";
            assert!(ran.stderr.contains(expected), "{command}: {ran:?}");
        }
    }
    other(&format!("{{ {route}, adopt = true }}"));
    world.run("apply --yes host.toml").exits(0);
    assert!(world.ip("route show").contains("proto 77"));
    other("");
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.ip("route show"), "");
    // The number is free for others again once they have used it.
    world.write(
        "lab.toml",
        format!("routes = [{{ {route} }}]\n[settings]\nprotocol = 78\nowner = \"lab\"\n"),
    );
    world.run("apply --yes lab.toml").exits(0);
    other("");
    world.run("plan host.toml").exits(0);
}
