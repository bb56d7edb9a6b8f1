//! A node of a fleet: a real store, statements signed by a real `ssh-keygen`, and the built daemon. What the store holds is
//! asked of `etcdctl`.

use std::cell::RefCell;
use std::fs;
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use homeostat_fleet::chunks::{Packed, deflate, pack};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::merkle::{Class, Leaf, Tree};
use homeostat_fleet::records::{Record as _, SignedStatement, Statement, Take, Want, Wave};
use homeostat_fleet::{Name, Time};
use serde_json::Value;

use crate::daemon::Daemon;
use crate::keeping::until;
use crate::program::output;
use crate::world::World;

const KEY: &str = "net/ipv4/tcp_retries1";
/// Longer than any test.
const LATER: u64 = 4_000_000_000_000;

/// A world with a store, and what operators have.
pub(crate) struct FleetWorld {
    pub(crate) world: World,
    etcd: RefCell<Option<Child>>,
}

/// What an operator signs; the rest is the same everywhere.
struct Rollout<'a> {
    generation: u64,
    document: &'a str,
    fallback: &'a str,
    fleet: &'a str,
    signer: &'a str,
    not_after: u64,
    confirm_within: &'a str,
    take: Take,
    class: Class,
    plan: bool,
}

impl Default for Rollout<'_> {
    fn default() -> Self {
        Rollout {
            generation: 1,
            document: "",
            fallback: "",
            fleet: "edge",
            signer: "ann",
            not_after: LATER,
            confirm_within: "2m",
            take: Take::Document,
            class: Class::Reversible,
            plan: false,
        }
    }
}

fn retries(value: u8) -> String {
    format!("[sysctl]\n\"net.ipv4.tcp_retries1\" = {value}\n")
}

/// Everything to the store is dropped. The knob shows that the document is in force.
fn cut_off(value: u8) -> String {
    format!(
        "{}[nftables]\nruleset = '''\ntable inet cut {{\n chain out {{\n  type filter hook output priority 0;\n  \
         tcp dport 2379 drop\n }}\n}}\n'''\n",
        retries(value)
    )
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn packed(document: &str) -> Packed {
    match document {
        "" => pack([], &[]),
        text => pack([("host.toml", text.as_bytes())], &[]),
    }
}

impl FleetWorld {
    pub(crate) fn new() -> Self {
        Self::within(World::new())
    }

    fn within(world: World) -> Self {
        world.ip("link set lo up");
        let fleet = FleetWorld { world, etcd: RefCell::new(None) };
        fleet.start_store();
        for signer in ["ann", "eve"] {
            let mut keygen = fleet.world.command("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", signer, "-f", signer]);
            output(keygen);
        }
        fleet.allow("ann");
        fleet
    }

    /// Lets one key sign, and no other.
    fn allow(&self, signer: &str) {
        let key = fs::read_to_string(self.world.path().join(format!("{signer}.pub"))).unwrap();
        let line = format!("{signer}@example.net namespaces=\"homeostat-rollout\" {key}");
        self.world.write("allowed_signers.new", line);
        let path = |name: &str| self.world.path().join(name);
        fs::rename(path("allowed_signers.new"), path("allowed_signers")).unwrap();
    }

    fn start_store(&self) {
        let mut etcd = self.world.command("etcd");
        let url = "http://127.0.0.1:2379";
        etcd.args([
            "--data-dir",
            "etcd",
            "--listen-client-urls",
            url,
            "--advertise-client-urls",
            url,
        ]);
        let log = self.world.path().join("etcd.log");
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        etcd.stdout(log.try_clone().unwrap()).stderr(log);
        let started = etcd.spawn();
        let started =
            started.unwrap_or_else(|error| panic!("etcd: {error}; run `cargo xtask setup`"));
        self.etcd.replace(Some(started));
        until("the store", || self.etcdctl(&["endpoint", "health"], "").is_ok());
    }

    fn kill_store(&self) {
        let mut etcd = self.etcd.take().unwrap();
        etcd.kill().unwrap();
        etcd.wait().unwrap();
    }

    fn etcdctl(&self, args: &[&str], input: impl AsRef<[u8]>) -> Result<String, String> {
        let mut etcdctl = self.world.command("etcdctl");
        etcdctl.env("ETCDCTL_API", "3").args(args);
        etcdctl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = etcdctl.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // One that reads nothing may have ended.
        let _ = stdin.write_all(input.as_ref());
        drop(stdin);
        let done = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
    }

    fn put(&self, key: &str, value: impl AsRef<[u8]>) {
        self.etcdctl(&["put", key], value).unwrap();
    }

    fn get(&self, key: &str) -> String {
        self.etcdctl(&["get", "--print-value-only", key], "").unwrap_or_default()
    }

    fn revision(&self) -> u64 {
        let status = self.etcdctl(&["endpoint", "status", "-w", "json"], "").unwrap();
        let status: Value = serde_json::from_str(&status).unwrap();
        status[0]["Status"]["header"]["revision"].as_u64().unwrap()
    }

    fn sign(&self, statement: &[u8], signer: &str) -> String {
        self.world.write("statement", statement);
        let _ = fs::remove_file(self.world.path().join("statement.sig"));
        let mut keygen = self.world.command("ssh-keygen");
        keygen.args(["-q", "-Y", "sign", "-n", "homeostat-rollout", "-f", signer, "statement"]);
        output(keygen);
        fs::read_to_string(self.world.path().join("statement.sig")).unwrap()
    }

    /// Puts what an operator and a coordinator would: content, statement, want.
    fn assign(&self, rollout: &Rollout) {
        let keys = Keys::new(&name("edge"));
        let [document, fallback] = [rollout.document, rollout.fallback].map(|text| {
            let packed = packed(text);
            for (digest, chunk) in &packed.chunks {
                self.put(&keys.blob(&name("all"), digest), deflate(chunk));
            }
            self.put(&keys.document(&name("all"), &packed.document), &packed.manifest);
            packed.document
        });
        let class = rollout.class;
        let leaf = |node: &str| Leaf { node: name(node), document, fallback, class };
        let leaves = ["r0", "r1", "r2"].map(leaf);
        let tree = Tree::new(leaves.iter().map(Leaf::hash));
        let id = name(&format!("rollout-{}", rollout.generation));
        let period = |text: &str| text.parse().unwrap();
        let statement = Statement {
            fleet: name(rollout.fleet),
            id: id.clone(),
            generation: rollout.generation,
            not_after: Time::of_millis(rollout.not_after),
            root: tree.root(),
            nodes: 3,
            waves: vec![Wave::Percent(100)],
            max_in_flight: 1,
            max_failed: 0,
            settle: period("500ms"),
            confirm_within: period(rollout.confirm_within),
            soak: period("0s"),
            accept: Vec::new(),
            plan: rollout.plan,
        };
        let statement = statement.write();
        let signatures = vec![self.sign(&statement, rollout.signer)];
        let statement = String::from_utf8(statement).unwrap();
        self.put(&keys.statement(&id), SignedStatement { statement, signatures }.write());
        let want = Want {
            rollout: id,
            generation: rollout.generation,
            take: rollout.take,
            document,
            fallback,
            class,
            index: 1,
            proof: tree.proof(1).unwrap(),
            at: Time::of_millis(0),
        };
        let node = name("r1");
        let key = if rollout.plan { keys.plan_request(&node) } else { keys.want(&node) };
        self.put(&key, want.write());
    }

    /// Starts the daemon of node r1.
    fn keep(&self) -> Daemon {
        self.keep_with("")
    }

    fn keep_with(&self, more: &str) -> Daemon {
        let signers = self.world.path().join("allowed_signers");
        let url = format!(
            "etcd://127.0.0.1:2379/edge/r1?allowed-signers={}&lease=3s&reconnect-spread=100ms&clock=always{more}",
            signers.display()
        );
        self.world.keep_at(&url)
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.get("/homeostat/v1/edge/status/r1")).unwrap_or_default()
    }

    #[track_caller]
    fn until_phase(&self, generation: u64, phase: &str) -> Value {
        until(&format!("generation {generation} is {phase}"), || {
            let status = self.status();
            status["generation"] == generation && status["phase"] == phase
        });
        self.status()
    }

    /// What the daemon says is wrong with its provider.
    fn trouble(&self) -> String {
        // Before it listens there is nothing to read.
        let status = self.world.run("status --json").stdout;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        status["provider"]["last_error"]["error"].as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for FleetWorld {
    fn drop(&mut self) {
        if let Some(mut etcd) = self.etcd.take() {
            let _ = etcd.kill();
            let _ = etcd.wait();
        }
    }
}

#[test]
fn an_assignment_is_tried_and_good_and_then_nothing_is_written_but_renewals() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let _daemon = fleet.keep();
    until("the node is alive", || !fleet.get("/homeostat/v1/edge/alive/r1").is_empty());
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    let status = fleet.until_phase(1, "good");
    assert_eq!(world.knob(KEY), "5");
    assert_eq!(status["accepted"], 1);
    until("it is published as converged", || fleet.status()["converged"] == true);
    assert!(fleet.get("/homeostat/v1/edge/status/r1").len() <= 1024);
    assert_eq!(world.provider()["ok"], true);
    let (revision, begun) = (fleet.revision(), UNIX_EPOCH.elapsed().unwrap());
    until("three leases have passed", || {
        assert_eq!(fleet.revision(), revision);
        assert!(!fleet.get("/homeostat/v1/edge/alive/r1").is_empty());
        UNIX_EPOCH.elapsed().unwrap().saturating_sub(begun) > Duration::from_secs(9)
    });
    // A document that is in force needs no trial.
    fleet.assign(&Rollout { generation: 2, document: &retries(5), ..Rollout::default() });
    fleet.until_phase(2, "good");
    world.meddle(KEY, "9");
    until("drift is healed", || world.knob(KEY) == "5");
}

#[test]
fn a_node_that_its_own_document_cuts_off_comes_back_and_does_not_try_it_again() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    let document = cut_off(6);
    let bad =
        Rollout { generation: 2, document: &document, confirm_within: "8s", ..Rollout::default() };
    fleet.assign(&bad);
    until("the bad document is in force", || world.knob(KEY) == "6");
    assert!(fleet.etcdctl(&["endpoint", "health", "--command-timeout=1s"], "").is_err());
    let status = fleet.until_phase(2, "rolled-back");
    assert_eq!(world.knob(KEY), "5");
    assert!(status["why"].as_str().unwrap().contains("cannot be reached"), "{status}");
    until("it is reported here", || fleet.trouble().contains("generation 2"));
    daemon.kill();
    let _daemon = fleet.keep();
    until("the daemon looks at its store", || fleet.trouble().contains("rolled back"));
    assert_eq!(
        (world.knob(KEY), fleet.status()["phase"].clone()),
        ("5".to_owned(), "rolled-back".into())
    );
    // The fallback is what it has.
    let back = Rollout { take: Take::Fallback, fallback: &retries(5), generation: 3, ..bad };
    fleet.assign(&back);
    fleet.until_phase(3, "good");
}

#[test]
fn a_node_that_is_killed_while_it_is_cut_off_comes_back_with_its_next_start() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    let document = cut_off(6);
    fleet.assign(&Rollout { generation: 2, document: &document, ..Rollout::default() });
    until("the bad document is in force", || world.knob(KEY) == "6");
    daemon.kill();
    let _daemon = fleet.keep();
    fleet.until_phase(2, "rolled-back");
    assert_eq!(world.knob(KEY), "5");
}

/// What was tried is not in the kernel any more, and nobody says that it was bad but the record of the trial.
#[test]
fn a_node_that_is_booted_in_a_trial_has_the_last_good_document_and_does_not_try_again() {
    let fleet = FleetWorld::within(World::new().with_own_names());
    let world = &fleet.world;
    let daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    let document = cut_off(6);
    fleet.assign(&Rollout { generation: 2, document: &document, ..Rollout::default() });
    until("the bad document is in force", || world.knob(KEY) == "6");
    daemon.kill();
    let mut flush = world.command("nft");
    flush.args(["flush", "ruleset"]);
    output(flush);
    world.meddle(KEY, "3");
    let boot = world.write("boot_id", "11111111-2222-3333-4444-555555555555\n");
    let mut mount = world.command("mount");
    mount.arg("--bind").arg(boot).arg("/proc/sys/kernel/random/boot_id");
    output(mount);
    let daemon = fleet.keep();
    let status = fleet.until_phase(2, "rolled-back");
    assert!(status["why"].as_str().unwrap().contains("the machine was booted"), "{status}");
    assert_eq!(status["boot"], "11111111-2222-3333-4444-555555555555");
    until("the last good document is in force", || world.knob(KEY) == "5");
    // Neither a second start nor the same want brings it back.
    daemon.kill();
    let _daemon = fleet.keep();
    fleet.assign(&Rollout { generation: 2, document: &document, ..Rollout::default() });
    until("the daemon looks at its store", || fleet.trouble().contains("rolled back"));
    assert_eq!(
        (world.knob(KEY), &fleet.status()["phase"]),
        ("5".to_owned(), &"rolled-back".into())
    );
    fleet.assign(&Rollout { generation: 3, document: &retries(7), ..Rollout::default() });
    fleet.until_phase(3, "good");
}

#[test]
fn a_store_that_is_away_changes_nothing_and_a_boot_without_it_runs_the_last_good_document() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    fleet.kill_store();
    until("the trouble is reported", || world.provider()["ok"] == false);
    world.meddle(KEY, "9");
    until("drift is healed", || world.knob(KEY) == "5");
    daemon.kill();
    world.meddle(KEY, "9");
    let _daemon = fleet.keep();
    until("the last good document is in force", || world.knob(KEY) == "5");
    fleet.start_store();
    until("the trouble is over", || world.provider()["ok"] == true);
    fleet.assign(&Rollout { generation: 2, document: &retries(7), ..Rollout::default() });
    fleet.until_phase(2, "good");
    assert_eq!(world.knob(KEY), "7");
}

#[test]
fn statements_that_are_forged_foreign_expired_or_older_are_refused_and_reported() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let _daemon = fleet.keep();
    fleet.assign(&Rollout { generation: 5, document: &retries(5), ..Rollout::default() });
    fleet.until_phase(5, "good");
    let document = retries(6);
    let rollout = |generation| Rollout { generation, document: &document, ..Rollout::default() };
    let refused = |rollout: &Rollout, why: &str| {
        fleet.assign(rollout);
        let status = fleet.until_phase(rollout.generation, "refused");
        assert!(status["why"].as_str().unwrap().contains(why), "{status}");
        assert_eq!((&status["accepted"], &*world.knob(KEY)), (&5.into(), "5"));
        until("it is reported here", || fleet.trouble().contains(why));
        assert!(world.event("document-refused").is_some());
    };
    refused(&Rollout { signer: "eve", ..rollout(6) }, "not in the list of allowed signers");
    refused(&Rollout { fleet: "core", ..rollout(7) }, "for the fleet `core`");
    refused(&Rollout { not_after: 1000, ..rollout(8) }, "valid until 1970-01-01");
    fleet.assign(&rollout(4));
    let why = "generation 4 is older than 5";
    until("the older one is reported", || {
        fleet.status()["why"].as_str().unwrap_or_default().contains(why)
    });
    assert_eq!(
        (&fleet.status()["generation"], &fleet.status()["phase"]),
        (&5.into(), &"good".into())
    );
    assert_eq!(world.knob(KEY), "5");
    // Who may sign changes without a restart.
    fleet.allow("eve");
    fleet.assign(&Rollout { signer: "eve", ..rollout(9) });
    fleet.until_phase(9, "good");
    assert_eq!(world.knob(KEY), "6");
    until("the trouble is over", || world.provider()["ok"] == true);
}

#[test]
fn a_second_machine_of_the_same_name_is_refused() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let other = "{\"format\":1,\"machine\":\"another\",\"boot\":\"b\",\"process\":\"1\"}";
    fleet.put("/homeostat/v1/edge/alive/r1", other);
    let _daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    until("it is reported", || fleet.trouble().contains("another machine (another, boot b)"));
    assert_eq!(fleet.get("/homeostat/v1/edge/alive/r1").trim(), other);
    assert_eq!(fleet.status(), Value::Null);
    assert_ne!(world.knob(KEY), "5");
    fleet.etcdctl(&["del", "/homeostat/v1/edge/alive/r1"], "").unwrap();
    fleet.until_phase(1, "good");
}

#[test]
fn a_hold_keeps_new_documents_back_until_it_ends() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let _daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    world.run("hold the-uplink-is-being-moved").exits(0);
    fleet.assign(&Rollout { generation: 2, document: &retries(6), ..Rollout::default() });
    let status = fleet.until_phase(2, "held");
    assert!(status["why"].as_str().unwrap().contains("the-uplink-is-being-moved"), "{status}");
    assert_eq!(world.knob(KEY), "5");
    assert_eq!(world.provider()["ok"], true, "a hold is no fault");
    world.run("unhold").exits(0);
    fleet.until_phase(2, "good");
    assert_eq!(world.knob(KEY), "6");
}

#[test]
fn outside_of_its_maintenance_windows_a_node_takes_nothing() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    // The same hour twelve hours from now, in UTC.
    let hour = UNIX_EPOCH.elapsed().unwrap().as_secs() / 3600;
    let window = |hour: u64| {
        let window = format!("{:02}:00-{:02}:00", hour % 24, (hour + 2) % 24);
        own(4).replace("[fleet]\n", &format!("[fleet]\nmaintenance-windows = [\"{window}\"]\n"))
    };
    let _daemon = world.keep(&window(hour + 12));
    until("its own document is in force", || world.knob(KEY) == "4");
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    let status = fleet.until_phase(1, "held");
    assert!(status["why"].as_str().unwrap().contains("window"), "{status}");
    assert_eq!(world.knob(KEY), "4");
    assert_eq!(world.provider()["ok"], true, "a window is no fault");
    // The operator opens one that has begun, and ends after the test.
    world.write("host.toml", window(hour));
    fleet.until_phase(1, "good");
    assert_eq!(world.knob(KEY), "5");
}

#[test]
fn a_request_for_a_plan_is_answered_and_changes_nothing() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let _daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    let answer = || -> Value {
        serde_json::from_str(&fleet.get("/homeostat/v1/edge/plan/r1")).unwrap_or_default()
    };
    let plan = |generation, document: &str| {
        fleet.assign(&Rollout { generation, document, plan: true, ..Rollout::default() });
        until("the answer", || answer()["generation"] == generation);
        answer()["result"].clone()
    };
    let planned = plan(2, &retries(6))["planned"].clone();
    assert_eq!((&planned["update"], &planned["delete"]), (&1.into(), &0.into()), "{planned}");
    assert!(planned["lines"].to_string().contains("tcp_retries1"), "{planned}");
    let refused = plan(3, "[colours]\n")["refused"]["why"].clone();
    assert!(refused.as_str().unwrap().contains("colours"), "{refused}");
    assert_eq!(world.knob(KEY), "5");
    assert_eq!(fleet.status()["generation"], 1);
}

/// The document of a machine with a file of its own, which is node r1.
fn own(value: u8) -> String {
    format!(
        "[fleet]\nendpoints = [\"127.0.0.1:2379\"]\nfleet = \"edge\"\nnode = \"r1\"\n\
         allowed-signers = \"allowed_signers\"\nlease = \"3s\"\nreconnect-spread = \"100ms\"\n{}",
        retries(value)
    )
}

#[test]
fn a_machines_own_document_is_in_force_until_the_fleet_assigns_one() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let own = own(4);
    let _daemon = world.keep(&own);
    until("its own document is in force", || world.knob(KEY) == "4");
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    assert_eq!(world.knob(KEY), "5");
    // Its own settings are taken over while it runs; one that is broken changes nothing.
    world.write("host.toml", format!("{own}[colours]\n"));
    until("the mistake is reported", || fleet.trouble().contains("colours"));
    assert_eq!(world.knob(KEY), "5");
    world.write("host.toml", own.replace("[fleet]\n", "[fleet]\nhold = true\n"));
    until("the settings are read", || world.provider()["ok"] == true);
    fleet.assign(&Rollout { generation: 2, document: &retries(6), ..Rollout::default() });
    let status = fleet.until_phase(2, "held");
    assert!(status["why"].as_str().unwrap().contains("hold = true"), "{status}");
}

#[test]
fn a_machine_whose_own_document_is_broken_at_the_start_belongs_to_its_fleet_once_that_is_mended() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let daemon = world.keep(&own(4));
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    daemon.kill();
    let _daemon = world.keep(&format!("{}[colours]\n", own(4)));
    until("the mistake is reported", || fleet.trouble().contains("colours"));
    assert_eq!(world.knob(KEY), "5");
    world.write("host.toml", own(4));
    until("the trouble is over", || world.provider()["ok"] == true);
    fleet.assign(&Rollout { generation: 2, document: &retries(6), ..Rollout::default() });
    fleet.until_phase(2, "good");
    assert_eq!(world.knob(KEY), "6");
}

#[test]
fn a_machine_without_a_former_assignment_falls_back_to_its_own_document() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let _daemon = world.keep(&own(4));
    let document = cut_off(6);
    let bad = Rollout { document: &document, confirm_within: "8s", ..Rollout::default() };
    fleet.assign(&bad);
    fleet.until_phase(1, "rolled-back");
    fleet.assign(&Rollout { take: Take::Fallback, ..bad });
    until("the fallback is good", || {
        let status = fleet.status();
        status["take"] == "fallback" && status["phase"] == "good" && status["converged"] == true
    });
    assert_eq!(world.knob(KEY), "4");
    // Changes of its own document count again.
    world.write("host.toml", own(7));
    until("its own document is in force", || world.knob(KEY) == "7");
}

#[test]
fn a_document_that_mends_what_a_check_fails_for_is_tried() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let check = "&checks=cmd:/usr/bin/grep%20-q%205%20/proc/sys/net/ipv4/tcp_retries1";
    let _daemon = fleet.keep_with(check);
    until("the node is alive", || !fleet.get("/homeostat/v1/edge/alive/r1").is_empty());
    assert_ne!(world.knob(KEY), "5");
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
}

#[test]
fn a_trial_that_cannot_begin_now_is_tried_again_and_says_why() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let _daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    // Trials cannot be recorded while a file is where their directory has to be.
    let confirmed = world.state().join("confirmed");
    let owner = fs::read_dir(&confirmed).unwrap().next().unwrap().unwrap().path();
    let aside = confirmed.join("../aside");
    fs::rename(&owner, &aside).unwrap();
    fs::write(&owner, "").unwrap();
    fleet.assign(&Rollout { generation: 2, document: &retries(6), ..Rollout::default() });
    until("it says why", || fleet.status()["why"].as_str().is_some_and(|why| !why.is_empty()));
    let status = fleet.status();
    assert_eq!((&status["generation"], &status["phase"]), (&2.into(), &"trial".into()), "{status}");
    until("it is reported here", || world.provider()["ok"] == false);
    assert_eq!(world.knob(KEY), "5");
    fs::remove_file(&owner).unwrap();
    fs::rename(&aside, &owner).unwrap();
    let status = fleet.until_phase(2, "good");
    assert_eq!((status["why"].as_str(), &*world.knob(KEY)), (Some(""), "6"));
}

#[test]
fn a_kept_document_that_was_damaged_is_fetched_again_and_never_applied() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    daemon.kill();
    let digest = packed(&retries(5)).document.hex();
    let mut places = vec![world.state().join("fleet")];
    let place = loop {
        let place = places.pop().expect("the document is kept");
        if place.ends_with(&digest) {
            break place.join("files/host.toml");
        }
        places.extend(
            fs::read_dir(place).unwrap().map(|it| it.unwrap().path()).filter(|it| it.is_dir()),
        );
    };
    fs::write(&place, retries(9)).unwrap();
    let _daemon = fleet.keep();
    until("it is as it was signed", || fs::read_to_string(&place).ok() == Some(retries(5)));
    until("the trouble is over", || world.provider()["ok"] == true);
    assert_eq!(world.knob(KEY), "5");
}

#[test]
fn a_boot_with_a_full_disk_runs_the_last_good_document() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    daemon.kill();
    // As if it had been killed before it recorded the end of the trial, which now cannot be recorded.
    let owner = fs::read_dir(world.state().join("fleet")).unwrap().next().unwrap().unwrap();
    let record = owner.path().join("edge/accepted.json");
    let mut progress: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    (progress["stage"], progress["good"]) = ("trial".into(), Value::Null);
    fs::write(&record, progress.to_string()).unwrap();
    fs::create_dir(owner.path().join("edge/accepted.json.new")).unwrap();
    world.meddle(KEY, "9");
    let _daemon = fleet.keep();
    until("the last good document is in force", || world.knob(KEY) == "5");
    fleet.until_phase(1, "good");
}

#[test]
fn a_step_above_the_signed_class_is_held_and_the_node_goes_back() {
    let fleet = FleetWorld::new();
    let world = &fleet.world;
    let _daemon = fleet.keep();
    fleet.assign(&Rollout { document: &retries(5), ..Rollout::default() });
    fleet.until_phase(1, "good");
    let target = world.path().join("app.conf").display().to_string();
    let document = format!(
        "{}[files.app]\nreload = [\"/bin/true\"]\n[files.app.write]\n\"{target}\" = {{ text = \"a\\n\" }}\n",
        retries(6)
    );
    let rollout = |generation, class| Rollout {
        generation,
        document: &document,
        class,
        ..Rollout::default()
    };
    fleet.assign(&rollout(2, Class::Reversible));
    let status = fleet.until_phase(2, "rolled-back");
    let why = status["why"].as_str().unwrap();
    assert!(why.contains("could not be undone exactly") && why.contains("--class"), "{why}");
    assert_eq!(world.knob(KEY), "5");
    fleet.assign(&rollout(3, Class::Compensable));
    fleet.until_phase(3, "good");
    assert_eq!(
        (world.knob(KEY), fs::read_to_string(&target).unwrap()),
        ("6".to_owned(), "a\n".to_owned())
    );
}
