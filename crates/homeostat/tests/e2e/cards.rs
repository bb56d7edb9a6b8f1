//! Settings of links' drivers and files of sysfs, by the built program.

use crate::keeping::until;
use crate::program::output;
use crate::world::World;

const LINKS: &str = "[links.v0]\nkind = \"veth\"\npeer = { name = \"w0\" }\n";
const GRO: &str = "[links.v0.ethtool]\nfeatures = { gro = true, tso = false }\n";
const FLUSH: &str = "[sysfs]\n\"class/net/v0/gro_flush_timeout\" = 20000\n";

impl World {
    fn ethtool(&self, args: &str) -> String {
        let mut command = self.command("ethtool");
        command.args(args.split_whitespace());
        output(command)
    }

    fn has(&self, feature: &str, is_on: bool) -> bool {
        let word = if is_on { "on" } else { "off" };
        let line = format!("{feature}: {word}");
        self.ethtool("-k v0").lines().any(|shown| shown == line)
    }

    /// What a sysfs of this namespace shows.
    fn flush_timeout(&self) -> String {
        let mut command = self.command("unshare");
        let script = "mount -t sysfs none /sys && cat /sys/class/net/v0/gro_flush_timeout";
        command.args(["--mount", "sh", "-c", script]);
        output(command).trim().to_owned()
    }
}

#[test]
fn settings_of_a_link_are_applied_with_the_link_shown_and_restored() {
    let world = World::new();
    let document = format!("{LINKS}{GRO}{FLUSH}");
    world.apply(&document);
    assert!(world.has("generic-receive-offload", true));
    assert!(world.has("tcp-segmentation-offload", false));
    assert_eq!(world.flush_timeout(), "20000");
    world.run("verify host.toml").exits(0);

    let shown = world.run("show").exits(0).stdout;
    assert!(shown.contains("[links.v0.ethtool.features]\ngro = true\ntso = false"), "{shown}");
    assert!(shown.contains("kind = \"veth\""), "{shown}");
    assert!(shown.contains("\"class/net/v0/gro_flush_timeout\" = 20000"), "{shown}");

    world.ethtool("-K v0 gro off");
    let ran = world.run("verify host.toml").exits(2);
    assert!(ran.stdout.contains("~ ethtool v0 feature gro"), "{}", ran.stdout);

    world.write("host.toml", format!("{LINKS}[links.v0.ethtool]\n[sysfs]\n"));
    world.run("apply --yes --revert-on-release host.toml").exits(0);
    assert!(world.has("tcp-segmentation-offload", true));
    assert_eq!(world.flush_timeout(), "0");
}

#[test]
fn the_daemon_heals_settings_and_gives_them_to_a_link_that_is_made_again() {
    let world = World::new();
    let _daemon = world.keep(&format!("{LINKS}{GRO}"));
    until("the link", || world.namespace.ip(&["link", "show", "dev", "v0"]).is_ok());
    until("its settings", || {
        world.has("generic-receive-offload", true) && world.has("tcp-segmentation-offload", false)
    });
    world.ethtool("-K v0 gro off tso on");
    until("the setting", || world.has("generic-receive-offload", true));
    until("the other setting", || world.has("tcp-segmentation-offload", false));
    world.ip("link delete v0");
    until("the link again", || world.namespace.ip(&["link", "show", "dev", "v0"]).is_ok());
    until("its setting", || world.has("generic-receive-offload", true));
}
