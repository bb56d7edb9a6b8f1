//! `homeostat fleet demo`: etcd, a coordinator and ten nodes in a sandbox; one rollout that is good, and one that cuts its
//! nodes off, stops at the first wave and goes back. Nothing of the host is touched.
//!
//! Each node is a `homeostat run` in a network namespace of its own, and reaches the store over a bridge. What is shown are
//! the commands that an operator types, and what they print. That nodes have what they should is read from the kernel.

mod processes;

use std::fmt::Write as _;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use homeostat_document::{Format, Settings};
use homeostat_engine::{Ledger, MemoryLedger};
use homeostat_netns::{Name, Netns};

use self::processes::{Processes, Ran, is_installed, read, show};
use crate::cli::Global;
use crate::commands::block_on;
use crate::context::Context;
use crate::daemon::clock::BootTime;
use crate::failure::helped;
use crate::machine::Machine;
use crate::output::line::BOLD;
use crate::output::{is_converged, stream};
use crate::registry::READER;

const NODES: usize = 10;
/// In the sandbox `/run` is empty, and ends with it.
const DIRECTORY: &str = "/run/fleet-demo";
const STORE: &str = "10.99.0.1:2379";
const TEMPLATE: &str = include_str!("demo/host.toml.node.j2");
const CUTS_OFF: &str = include_str!("demo/bad.toml");
/// All of it takes less, also on a slow machine.
const LONGEST: Duration = Duration::from_mins(5);
/// The kernel's own, that of the good document, and that of the bad one.
const FIRST_TTL: u16 = 64;
const GOOD_TTL: u16 = 61;
const BAD_TTL: u16 = 60;
/// The programs that are needed, with their packages in Debian.
const PROGRAMS: [(&str, &str); 2] = [("etcd", "etcd-server"), ("ssh-keygen", "openssh-client")];

pub(super) fn run(global: &Global) -> Result<ExitCode> {
    let missing = PROGRAMS.iter().filter(|(program, _)| !is_installed(program));
    let (programs, packages): (Vec<_>, Vec<_>) = missing.copied().unzip();
    if !programs.is_empty() {
        return Err(helped(
            format!("the demo needs {}, not installed here", programs.join(" and ")),
            format!(
                "Debian, Ubuntu: apt install {}; the demo starts its own etcd, so `systemctl disable --now etcd` \
                 afterwards if no other is wanted",
                packages.join(" ")
            ),
        ));
    }
    // The network is another owner's, so that nodes have nothing to do with it.
    let mut global = Global { sandbox: true, netns: None, state_dir: None, ..global.clone() };
    (global.owner, global.protocol) = ("demo".parse().ok(), "77".parse().ok());
    let context = Context::enter(global, &Settings::default())?;
    let mut stdout = stream::stdout(context.color);
    match play(&context, &mut stdout) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if stream::is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// Plays it to its end, and returns whether everything went as it should.
fn play(context: &Context, to: &mut impl Write) -> Result<bool> {
    let end = BootTime::after(LONGEST);
    step(
        to,
        "A sandbox: our own network, no privileges. Ten namespaces for nodes, and a bridge to the store.",
    )?;
    build_network(context)?;
    let mut demo = Demo { processes: Processes::new(DIRECTORY.into())?, end };
    demo.start_store()?;
    demo.prepare()?;
    demo.start_coordinator()?;
    demo.start_nodes()?;
    writeln!(to, "  etcd at {STORE}, a coordinator, and {NODES} daemons are running.")?;

    step(to, "One template for all nodes: documents/host.toml.node.j2")?;
    show(to, TEMPLATE)?;
    demo.operator(
        to,
        "fleet sign documents --inventory inventory.toml --out good --id good --waves 1,50%,100% \
                       --settle 500ms --soak 500ms --confirm-within 30s",
        0,
    )?;
    demo.operator(to, "fleet plan good", 0)?;
    demo.operator(to, "fleet start good --wait", 0)?;
    let is_good = judge(to, GOOD_TTL)?;

    step(to, "A document that cuts its nodes off from the store. The plan cannot know that.")?;
    demo.processes.write("documents/host.toml.node.j2", &format!("{TEMPLATE}{CUTS_OFF}"))?;
    demo.processes.write("inventory.toml", &inventory(BAD_TTL))?;
    show(to, CUTS_OFF.trim())?;
    demo.operator(
        to,
        "fleet sign documents --inventory inventory.toml --out bad --id bad --waves 1,50%,100% \
                       --settle 500ms --soak 500ms --confirm-within 5s",
        0,
    )?;
    demo.operator(to, "fleet start bad --wait", 2)?;
    demo.until_all_are_good()?;
    demo.operator(to, "fleet status --all", 0)?;
    demo.operator(to, "fleet history", 0)?;
    let is_back = judge(to, GOOD_TTL)?;
    writeln!(
        to,
        "  r1 tried the bad document, lost the store, and went back by itself. No other node has seen it."
    )?;
    let took = LONGEST.saturating_sub(end.left());
    writeln!(to, "\n{BOLD}# The end, after {} s{BOLD:#}", took.as_secs())?;
    to.flush()?;
    Ok(is_good && is_back)
}

/// The bridge and the namespaces of the nodes, by a document like any other.
fn build_network(context: &Context) -> Result<()> {
    let document = READER.parse("network.toml", Format::Toml, &network())?;
    let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::default());
    let drivers = Machine::bind(context, &document, &*ledger)?.unlock(&ledger)?;
    let reports = block_on(drivers.converge())??;
    ensure!(is_converged(&reports), "the network of the demo cannot be made");
    Ok(())
}

fn network() -> String {
    let mut text = "[links.lo]\nup = true\n\n[links.mgmt]\nkind = \"bridge\"\nup = true\n\
                    addresses = [\"10.99.0.1/24\"]\n"
        .to_owned();
    for node in 1..=NODES {
        // Writing into text cannot fail.
        let _ = write!(
            text,
            "\n[links.to-r{node}]\nkind = \"veth\"\npeer = {{ name = \"eth0\", namespace = \"r{node}\" }}\n\
             master = \"mgmt\"\nup = true\n\n[namespaces.r{node}]\ncreate = true\nlinks.lo.up = true\n\
             links.eth0.up = true\nlinks.eth0.addresses = [\"10.99.0.{}/24\"]\n",
            10 + node
        );
    }
    text
}

fn inventory(ttl: u16) -> String {
    let mut text = format!("[values]\nttl = {ttl}\n");
    for node in 1..=NODES {
        let _ = write!(text, "\n[nodes.r{node}]\n");
    }
    // Ten comes after nine.
    text.replace("[nodes.r10]\n", "[nodes.r10]\nring = 1\n")
}

struct Demo {
    processes: Processes,
    end: BootTime,
}

impl Demo {
    fn start_store(&mut self) -> Result<()> {
        let (client, peer) = (format!("http://{STORE}"), "http://127.0.0.1:2380");
        let args = format!(
            "--name demo --data-dir etcd --listen-client-urls {client} --advertise-client-urls {client} \
             --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} --initial-cluster demo={peer}"
        );
        self.processes.start("store", "etcd", &args)?;
        let address = STORE.parse()?;
        let connects = || Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok());
        self.processes.until("etcd does not answer", "store", self.end, connects)
    }

    /// A key to sign with, the list of who may sign, and how commands reach the store.
    fn prepare(&self) -> Result<()> {
        let processes = &self.processes;
        processes
            .run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "ann", "-f", "ann"])?;
        let key = read(&processes.path("ann.pub"))?;
        let line = format!("ann@example.net namespaces=\"homeostat-rollout\" {key}\n");
        processes.write("allowed_signers", &line)?;
        processes.write(
            "fleet.toml",
            &format!(
                "fleet = \"demo\"\nendpoints = [\"{STORE}\"]\nsigning-key = \"ann\"\n\
                 allowed-signers = \"allowed_signers\"\n"
            ),
        )?;
        processes.write("documents/host.toml.node.j2", TEMPLATE)?;
        processes.write("inventory.toml", &inventory(GOOD_TTL))
    }

    fn start_coordinator(&mut self) -> Result<()> {
        let args = "fleet coordinate --config fleet.toml --name c1 --lease 5s --node-lease 15s";
        self.processes.start_homeostat("coordinator", args)
    }

    fn start_nodes(&mut self) -> Result<()> {
        for node in 1..=NODES {
            let url = format!(
                "etcd://{STORE}/demo/r{node}?allowed-signers={DIRECTORY}/allowed_signers&lease=15s\
                 &reconnect-spread=200ms&clock=always"
            );
            // What a document does to the network of a node, it does to the connection to the store.
            let netns = Netns::named(&Name::new(format!("r{node}"))?)?;
            let args = format!("run {url} --state-dir {DIRECTORY}/r{node}");
            self.processes.start_in(&netns, &format!("r{node}"), &args)?;
        }
        let are_alive = || {
            let status = self.command("fleet status --json")?.stdout;
            Ok(status.matches("\"alive\":true").count() == NODES
                && !status.contains("\"leader\":null"))
        };
        self.processes.until("not all nodes are alive", "r1", self.end, are_alive)
    }

    /// Every node has what it should, and the store knows it.
    fn until_all_are_good(&self) -> Result<()> {
        let are_good = || Ok(self.command("fleet status --json")?.code == Some(0));
        self.processes.until("not all nodes are good again", "r1", self.end, are_good)
    }

    fn command(&self, args: &str) -> Result<Ran> {
        self.processes.homeostat(&format!("{args} --config fleet.toml"))
    }

    /// Shows a command of the operator, and what it prints. It must end so.
    fn operator(&self, to: &mut impl Write, args: &str, code: i32) -> Result<()> {
        step(to, &format!("homeostat {args}"))?;
        let ran = self.command(args)?;
        show(to, &ran.stdout)?;
        if ran.code == Some(code) {
            return Ok(());
        }
        let ended = ran.code.map_or("by a signal".to_owned(), |code| format!("with {code}"));
        Err(anyhow!("`homeostat {args}` ended {ended}, and should have ended with {code}"))
    }
}

/// Looks into the namespace of each node: what counts is what the kernel has.
fn judge(to: &mut impl Write, expected: u16) -> Result<bool> {
    let knob = Path::new("/proc/sys/net/ipv4/ip_default_ttl");
    let mut values = Vec::new();
    for node in 1..=NODES {
        let name = Name::new(format!("r{node}"))?;
        let value = Netns::named(&name)?.run(|| read(knob))??;
        values.push(value.parse::<u16>().context("the kernel's value is no number")?);
    }
    let right = values.iter().filter(|value| **value == expected).count();
    writeln!(
        to,
        "  In the kernel: {right} of {NODES} nodes have the time to live {expected} of the good document \
         (at first: {FIRST_TTL}, of the bad one: {BAD_TTL})."
    )?;
    to.flush()?;
    Ok(right == NODES)
}

fn step(to: &mut impl Write, title: &str) -> std::io::Result<()> {
    writeln!(to, "\n{BOLD}# {title}{BOLD:#}")?;
    to.flush()
}
