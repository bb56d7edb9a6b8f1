//! A daemon over rulesets that include other files: what changes is taken over, and nothing else is
//! compiled again.

use std::fs;

use crate::daemon::Daemon;
use crate::keeping::until;
use crate::program::output;
use crate::world::World;

const DOCUMENT: &str = "[nftables]\nfile = \"fw/main.nft\"\n";
const MAIN: &str = "include \"names.nft\"\ninclude \"./parts/*.nft\"\ninclude \"late/*.nft\"\n\
                    table ip main { chain x { tcp dport $port accept; }; }\n";
/// Counts its runs.
const NFT: &str = "#!/bin/sh\necho run >> runs\nPATH=${PATH#*:} exec nft \"$@\"\n";

impl World {
    /// Keeps a document with an `nft` that is counted.
    fn keep_counting(&self, document: &str) -> Daemon {
        let nft = NFT.replace("runs", self.runs_file().to_str().unwrap());
        let nft = self.write_program("bin/nft", &nft);
        self.write("host.toml", document);
        let mut command = self.homeostat("run host.toml");
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", nft.parent().unwrap().display()));
        self.keep_by(command)
    }

    fn runs_file(&self) -> std::path::PathBuf {
        self.path().join("runs")
    }

    /// How often `nft` was run by the daemon.
    fn runs(&self) -> usize {
        fs::read_to_string(self.runs_file()).unwrap_or_default().lines().count()
    }

    fn tables(&self) -> String {
        let mut command = self.command("nft");
        command.args(["-s", "list", "ruleset"]);
        output(command)
    }
}

#[test]
fn an_included_file_that_changes_comes_or_goes_is_taken_over() {
    let world = World::new();
    world.write("fw/main.nft", MAIN);
    world.write("fw/names.nft", "define port = 22\n");
    fs::create_dir(world.path().join("fw/parts")).unwrap();
    let _daemon = world.keep_counting(DOCUMENT);
    world.converges();
    assert!(world.tables().contains("tcp dport 22 accept"), "{}", world.tables());
    world.write("fw/names.nft", "define port = 23\n");
    until("the edit", || world.tables().contains("tcp dport 23 accept"));
    // As editors do it.
    let next = world.write("fw/.next", "define port = 24\n");
    fs::rename(next, world.path().join("fw/names.nft")).unwrap();
    until("the replacement", || world.tables().contains("tcp dport 24 accept"));
    let part = world.write("fw/parts/a.nft", "table ip a { chain x { accept; }; }\n");
    until("a file of the pattern", || world.tables().contains("table ip a {"));
    fs::remove_file(part).unwrap();
    until("its end", || !world.tables().contains("table ip a {"));
    // A directory that was not there so far.
    world.write("fw/late/b.nft", "table ip b { chain x { accept; }; }\n");
    until("a file in a fresh directory", || world.tables().contains("table ip b {"));
    world.write("fw/late/b.nft", "table ip b { chain x { drop; }; }\n");
    until("an edit in there", || world.tables().contains("drop"));
}

#[test]
fn a_mistake_in_an_included_file_is_refused_and_the_last_good_one_stands() {
    let world = World::new();
    world.write("fw/main.nft", "include \"parts/*\"\n");
    world.write("fw/parts/a.nft", "table ip a { }\n");
    let _daemon = world.keep(DOCUMENT);
    world.converges();
    world.write("fw/parts/b.nft", "table ip b {\n oops }\n");
    until("the refusal", || {
        assert!(world.tables().contains("table ip a {"));
        world.log().contains("fw/parts/b.nft:2:")
    });
    world.write("fw/parts/b.nft", "table ip b { }\n");
    until("the good one", || world.tables().contains("table ip b {"));
}

#[test]
fn only_a_change_is_compiled() {
    let world = World::new().with_own_names();
    world.write("fw/main.nft", MAIN);
    world.write("fw/names.nft", "define port = 22\n");
    let red = "[namespaces.red.links.lo]\naddresses = [\"10.7.0.1/32\"]\n\
               [namespaces.red.nftables]\nruleset = \"table ip r { chain x { iif lo accept; }; }\"\n";
    world.ip("netns add red");
    let _daemon = world.keep_counting(&format!("{DOCUMENT}{red}"));
    world.converges();
    let first = world.runs();
    assert!(first > 0);
    // Namespaces of others come and go, files are touched, and somebody wants it all read again.
    world.ip("netns add blue");
    world.ip("netns delete blue");
    world.write("fw/names.nft", "define port = 22\n");
    world.write("fw/beside.nft", "nonsense");
    world.run("reload").exits(0);
    world.write("host.toml", format!("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n{DOCUMENT}{red}"));
    world.run("reload").exits(0);
    world.converges();
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    assert_eq!(world.runs(), first);
    world.write("fw/names.nft", "define port = 23\n");
    until("the change", || world.tables().contains("tcp dport 23 accept"));
    let second = world.runs();
    assert!(second > first);
    world.ip("netns delete red");
    world.run("reload").exits(1);
    assert_eq!(world.runs(), second, "one that goes takes nothing with it");
}
