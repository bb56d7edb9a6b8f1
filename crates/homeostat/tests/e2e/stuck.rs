//! An `nft` that never ends stops no other healing, and no stop of the daemon.

use std::fs;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::daemon::Daemon;
use crate::world::World;

/// Goes on as the real one, until there is a file `stuck`: then it writes its process id, and never ends.
const NFT: &str = "#!/bin/sh
dir=${0%/bin/nft}
if [ -e \"$dir/stuck\" ]; then
    echo $$ > \"$dir/begun\"
    exec tail -f /dev/null
fi
PATH=${PATH#*:}
exec nft \"$@\"
";

const LINKS: &str = "[links.br0]\nkind = \"bridge\"\n";
const PLAIN: &str = "[nftables]\nruleset = 'table ip a { chain x { accept; }; }'\n";

/// One `nft` that is stuck, ended with its test.
struct Stuck(Pid);

impl Stuck {
    fn is_still_there(&self) -> bool {
        test_kill_process(self.0).is_ok()
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // The daemon may have ended it.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

fn keep(world: &World, document: &str) -> Daemon {
    let program = world.write_program("bin/nft", NFT);
    assert!(world.command("mkfifo").arg("begun").status().unwrap().success());
    world.write("host.toml", document);
    let mut command = world.homeostat("run host.toml");
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", program.parent().unwrap().display()));
    let daemon = world.keep_by(command);
    world.converges();
    daemon
}

/// Waits until `nft` is stuck, which `act` leads to.
fn stuck(world: &World, act: impl FnOnce()) -> Stuck {
    world.write("stuck", "");
    act();
    let pid = fs::read_to_string(world.path().join("begun")).unwrap();
    Stuck(Pid::from_raw(pid.trim().parse().unwrap()).unwrap())
}

/// Takes a link away, and waits until it is there again.
fn is_healed(world: &World) {
    let mut events = world.follow();
    world.namespace.ip(&["link", "del", "br0"]).unwrap();
    events.until_healed("link br0");
    world.namespace.ip(&["link", "show", "br0"]).unwrap();
}

#[test]
fn others_are_healed_while_a_document_is_being_understood() {
    let world = World::new();
    let _daemon = keep(&world, &format!("{LINKS}{PLAIN}"));
    // The daemon sees by itself that there is another document.
    let document = format!("{LINKS}{}", PLAIN.replace("accept", "drop"));
    let stuck = stuck(&world, || _ = world.write("host.toml", document));
    is_healed(&world);
    let status = world.run("status").exits(0).stdout;
    assert!(status.contains("nft"), "{status}");
    assert!(stuck.is_still_there(), "it was healed only afterwards");
}

#[test]
fn others_are_healed_while_the_text_is_understood_by_other_links() {
    let world = World::new();
    world.namespace.ip(&["link", "add", "br7", "type", "bridge"]).unwrap();
    let rules = PLAIN.replace("accept", "iif br7 accept");
    let _daemon = keep(&world, &format!("{LINKS}{rules}"));
    let stuck = stuck(&world, || world.namespace.ip(&["link", "del", "br7"]).unwrap());
    is_healed(&world);
    assert!(stuck.is_still_there(), "it was healed only afterwards");
}

#[test]
fn a_daemon_stops_without_waiting_for_it() {
    let world = World::new();
    let daemon = keep(&world, PLAIN);
    let document = PLAIN.replace("accept", "drop");
    let stuck = stuck(&world, || _ = world.write("host.toml", document));
    let id = Pid::from_raw(daemon.pid().cast_signed()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    assert!(daemon.wait().success());
    assert!(stuck.is_still_there(), "it was waited for");
}
