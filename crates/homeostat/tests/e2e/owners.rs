//! Owners: two of them in one namespace do not see each other's knobs.

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
help: add --protocol with a free number, such as 77, that only this owner uses

"#]]);
    world.run("plan --owner two --protocol 76 host.toml").fails(str![[r#"
error: the owner `two` needs a mark of its own in the kernel
help: add --protocol with a free number, such as 77, that only this owner uses

"#]]);
    world.write("two.toml", "[settings]\nowner = \"two\"\nprotocol = 77\n");
    world.run("plan --protocol 76 two.toml").fails(str![[r#"
error: the owner `two` needs a mark of its own in the kernel
help: add --protocol with a free number, such as 77, that only this owner uses

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
