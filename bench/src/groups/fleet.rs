//! A fleet of a thousand nodes over one real member of etcd with TLS: how soon the nodes are there, see an assignment, have
//! answered a rollout, and are back after a restart of the store. Beside it, rollouts over a store in memory show what the
//! coordinator costs with five thousand nodes.
//!
//! All nodes are in this process, and the member on the same cores.

mod agent;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use homeostat_coordinator::Coordinator;
use homeostat_etcd::{Config, EtcdStore, TlsFiles};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::merkle::{Class, Leaf, Tree};
use homeostat_fleet::records::{Leaves, Record as _, SignedStatement, Statement, Take, Want, Wave};
use homeostat_fleet::{Digest, Name, Time};
use homeostat_store::{BootTime, MemoryStore, Store, Transaction};
use homeostat_testkit::etcd::{ClientFiles, Members};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use self::agent::{Agent, Event};
use crate::memory::Weight;
use crate::program::{self, process_work};
use crate::{Budget, Group, Run, Unit, clock, memory};

pub(super) fn groups() -> Vec<Group> {
    let with_tls = |figure: fn(&Measured) -> f64| {
        move |run: &mut Run| {
            let figure = measured(run, figure)?;
            run.record(figure);
            Ok(())
        }
    };
    vec![
        Group::new("fleet: 1,000 nodes over etcd with TLS", Unit::Seconds)
            .with("all are there", with_tls(|it| it.up), &[])
            .with("one assignment is seen, p50", with_tls(|it| it.seen[0]), &[])
            .with("one assignment is seen, p99", with_tls(|it| it.seen[1]), &[])
            // A fifth of what 5,000 may take.
            .with("a rollout to all, answered", with_tls(|it| it.answered), &[Budget::AtMost(0.8)])
            .with(
                "all are back after a restart of the store",
                with_tls(|it| it.back),
                &[Budget::AtMost(30.0)],
            ),
        Group::new("fleet: 1,000 nodes at rest", Unit::Count)
            .with("writes to the store in 20 s", with_tls(|it| it.writes), &[Budget::AtMost(0.0)])
            // A fifth of what 5,000 may take.
            .with(
                "store, % of a core",
                with_tls(|it| it.store_work * 100.0),
                &[Budget::AtMost(3.0)],
            )
            .with(
                "leases lost in a restart of the store",
                with_tls(|it| it.lost),
                &[Budget::AtMost(0.0)],
            ),
        Group::new("fleet: memory of a node's client", Unit::Bytes).with(
            "heap",
            |run| {
                let (nodes, weight) = measured(run, |it| (it.nodes, it.weight))?;
                run.weighed(nodes, weight);
                Ok(())
            },
            &[Budget::BytesEach(51_200.0)],
        ),
        Group::new("fleet: a rollout to all over a store in memory, answered", Unit::Seconds)
            .with("1,000 nodes", |run| in_memory(run, 1000), &[])
            .with("5,000 nodes", |run| in_memory(run, 5000), &[Budget::AtMost(4.0)]),
    ]
}

/// However busy the machine is, what has not happened by then is a failure.
const PATIENCE: Duration = Duration::from_mins(2);
const REST: Duration = Duration::from_secs(20);
const ASSIGNMENTS: usize = 300;
/// As nodes have it without a setting.
const SPREAD: Duration = Duration::from_secs(10);
/// Keys in one transaction; etcd takes 128.
const AT_ONCE: usize = 100;

#[derive(Clone, Copy, Debug)]
struct Measured {
    nodes: usize,
    up: f64,
    seen: [f64; 2],
    answered: f64,
    back: f64,
    writes: f64,
    store_work: f64,
    lost: f64,
    weight: Weight,
}

thread_local! {
    // Measured once for all contestants and rounds.
    static MEASURED: RefCell<Option<Measured>> = const { RefCell::new(None) };
}

fn measured<T>(run: &Run, figure: fn(&Measured) -> T) -> Result<T> {
    MEASURED.with_borrow_mut(|kept| match kept {
        Some(kept) => Ok(figure(kept)),
        none => Ok(figure(none.insert(measure(run)?))),
    })
}

fn measure(run: &Run) -> Result<Measured> {
    program::find_or_leave_out("etcd", "etcd-server")?;
    let nodes = run.size(1000, 10);
    let rest = if run.size(1, 0) > 0 { REST } else { Duration::ZERO };
    let options = [
        "--cert-file=DIR/server.pem",
        "--key-file=DIR/server.key",
        "--trusted-ca-file=DIR/ca.pem",
        "--client-cert-auth",
    ];
    let mut members = Members::start(1, &options, |at| certificates(at).ok())?;
    let files = members.tls().context("no certificates")?.clone();
    let client = |name: &str| -> Result<Arc<dyn Store>> {
        let tls = TlsFiles::new(&files.ca).with_client(&files.certificate, &files.key);
        let endpoint = Members::endpoint(0).parse().map_err(|error| anyhow!("{error:?}"))?;
        let config = Config::new([endpoint], name).with_tls(tls).with_spread(SPREAD);
        Ok(Arc::new(EtcdStore::new(config)))
    };
    // Everything stays on this thread, which is in the namespace of the member.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let operator = client("operator")?;
    runtime.block_on(until_written(&operator))?;
    let mut fleet = Fleet::new(Arc::clone(&operator), nodes)?;
    let start = clock::now();
    let (there, weight) = memory::weigh(|| {
        runtime.block_on(async {
            fleet.start_agents(&client)?;
            fleet.until_all(|event| matches!(event, Event::Up { .. })).await
        })
    });
    there?;
    let up = start.elapsed();
    let mut seen = runtime.block_on(fleet.assign_one_by_one(run.size(ASSIGNMENTS, 5)))?;
    seen.sort_unstable();
    let seen = [50, 99].map(|percent| seen[(seen.len() - 1) * percent / 100].as_secs_f64());
    let answered = runtime.block_on(fleet.roll_out(client("coordinator")?))?;
    let pid = members.pid(0).context("the member has ended")?;
    let (writes, work) = runtime.block_on(async {
        let before = (operator.status().await?.revision, process_work(pid)?);
        sleep(rest).await;
        let after = (operator.status().await?.revision, process_work(pid)?);
        anyhow::Ok((after.0 - before.0, after.1 - before.1))
    })?;
    let begin = clock::now();
    members.kill(0)?;
    members.run(0)?;
    let lost = runtime.block_on(fleet.until_all_are_back())?;
    let back = begin.elapsed();
    Ok(Measured {
        nodes,
        up: up.as_secs_f64(),
        seen,
        answered: answered.as_secs_f64(),
        back: back.as_secs_f64(),
        writes: f64::from(u32::try_from(writes)?),
        store_work: work / rest.as_secs_f64().max(1.0),
        lost: f64::from(u32::try_from(lost)?),
        weight,
    })
}

fn in_memory(run: &mut Run, nodes: usize) -> Result<()> {
    let nodes = run.size(nodes, 10);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answered = runtime.block_on(async {
        let store = MemoryStore::new();
        let client = |_: &str| -> Result<Arc<dyn Store>> { Ok(Arc::new(store.clone())) };
        let mut fleet = Fleet::new(client("operator")?, nodes)?;
        fleet.start_agents(&client)?;
        fleet.until_all(|event| matches!(event, Event::Up { .. })).await?;
        fleet.roll_out(client("coordinator")?).await
    });
    end(runtime);
    run.record(answered?.as_secs_f64());
    Ok(())
}

/// Without waiting for its tasks.
fn end(runtime: Runtime) {
    runtime.shutdown_background();
}

async fn until_written(store: &Arc<dyn Store>) -> Result<()> {
    let written = async {
        while store.commit(Transaction::new().put("/probe", "")).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, written).await.context("the member of etcd cannot be written to")
}

/// An authority, the certificate of the member, and one for all clients.
fn certificates(at: &Path) -> Result<ClientFiles> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    std::fs::write(at.join("ca.pem"), params.self_signed(&key)?.pem())?;
    let authority = Issuer::new(params, key);
    for name in ["server", "client"] {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &authority)?;
        std::fs::write(at.join(format!("{name}.pem")), certificate.pem())?;
        std::fs::write(at.join(format!("{name}.key")), key.serialize_pem())?;
    }
    let at = |name: &str| at.join(name);
    Ok(ClientFiles { ca: at("ca.pem"), certificate: at("client.pem"), key: at("client.key") })
}

/// The nodes of a fleet, and what they say.
struct Fleet {
    store: Arc<dyn Store>,
    name: Name,
    keys: Keys,
    nodes: Vec<Name>,
    said: UnboundedReceiver<Event>,
    say: UnboundedSender<Event>,
}

impl Fleet {
    fn new(store: Arc<dyn Store>, nodes: usize) -> Result<Self> {
        let name: Name = "edge".parse().map_err(|error| anyhow!("{error:?}"))?;
        let node = |nth| format!("n{nth:04}").parse().map_err(|error| anyhow!("{error:?}"));
        let nodes = (0..nodes).map(node).collect::<Result<_>>()?;
        let (say, said) = unbounded_channel();
        Ok(Fleet { store, keys: Keys::new(&name), name, nodes, said, say })
    }

    /// Each with a client of its own.
    fn start_agents(&self, client: &impl Fn(&str) -> Result<Arc<dyn Store>>) -> Result<()> {
        for (nth, node) in self.nodes.iter().enumerate() {
            let store = client(&node.to_string())?;
            let agent = Agent::new(nth, node.clone(), store, self.keys.clone(), self.say.clone());
            tokio::spawn(agent.live());
        }
        Ok(())
    }

    /// Waits until each node has said such a thing.
    async fn until_all(&mut self, is_it: impl Fn(&Event) -> bool) -> Result<()> {
        let mut missing: BTreeSet<usize> = (0..self.nodes.len()).collect();
        let all = async {
            while !missing.is_empty() {
                let event = self.said.recv().await.context("the nodes have ended")?;
                if is_it(&event) {
                    missing.remove(&event.node());
                }
            }
            anyhow::Ok(())
        };
        match timeout(PATIENCE, all).await {
            Ok(all) => all,
            Err(_) => Err(anyhow!("{} nodes are silent", missing.len())),
        }
    }

    /// Writes assignments to one node after another, and says how soon each has seen its own.
    async fn assign_one_by_one(&mut self, count: usize) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for nth in 0..count {
            let to = nth * 7 % self.nodes.len();
            let generation = 1 + nth as u64;
            let node = self.nodes.get(to).context("no such node")?;
            let want = Want {
                rollout: self.name.clone(),
                generation,
                take: Take::Document,
                document: Digest::of(b"one"),
                fallback: Digest::of(b"old"),
                class: Class::Reversible,
                index: 0,
                proof: Vec::new(),
                at: Time::of_millis(1),
            };
            let put = Transaction::new().put(self.keys.want(node), want.write());
            let start = clock::now();
            let _ = self.store.commit(put).await?;
            let seen = loop {
                match self.said.recv().await.context("the nodes have ended")? {
                    Event::Seen { node, generation: seen, at } if node == to => {
                        ensure!(seen == generation, "generation {seen} is seen, not {generation}");
                        break at;
                    }
                    _ => {}
                }
            };
            times.push(seen.duration_since(start));
        }
        Ok(times)
    }

    /// Starts one rollout to all nodes; says how soon the last of them has answered. Its end is waited for, so that nothing
    /// is written after it.
    async fn roll_out(&mut self, store: Arc<dyn Store>) -> Result<Duration> {
        let wall = || Time::of_millis(1_000_000);
        let own = Duration::from_secs(10);
        let coordinator =
            Coordinator::new(store, Arc::new(BootTime), wall, self.name.clone(), "c1")
                .with_leases(own, Duration::from_mins(1));
        let coordinator =
            tokio::spawn(async move { coordinator.run(std::future::pending()).await });
        self.until_led().await?;
        let generation = 1_000_000;
        let statement = self.upload(generation).await?;
        let start = clock::now();
        let _ = self.store.commit(statement).await?;
        self.until_all(
            |event| matches!(event, Event::Answered { generation: it, .. } if *it == generation),
        )
        .await?;
        let answered = start.elapsed();
        self.until_over(generation).await?;
        coordinator.abort();
        Ok(answered)
    }

    async fn until_led(&self) -> Result<()> {
        let led = async {
            let leader = homeostat_store::Keys::One(self.keys.leader());
            while self.store.list(leader.clone()).await.is_ok_and(|it| it.values.is_empty()) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, led).await.context("nobody leads")
    }

    async fn until_over(&self, generation: u64) -> Result<()> {
        let key = self.keys.state(&id(generation)?);
        let over = async {
            loop {
                let listed = self.store.list(homeostat_store::Keys::One(key.clone())).await?;
                let state = listed.values.get(&key);
                let state = state.map(|it| homeostat_fleet::records::State::read(&it.value));
                if state.transpose()?.is_some_and(|state| state.phase.is_over()) {
                    return anyhow::Ok(());
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, over).await.context("the rollout does not end")?
    }

    /// Uploads all that a rollout in one wave needs; what begins it is returned.
    async fn upload(&self, generation: u64) -> Result<Transaction> {
        let leaf = |node: &Name| Leaf {
            node: node.clone(),
            document: Digest::of(b"new"),
            fallback: Digest::of(b"old"),
            class: Class::Reversible,
        };
        let leaves: Vec<Leaf> = self.nodes.iter().map(leaf).collect();
        let nodes = self.nodes.len() as u64;
        let period = |text: &str| text.parse().map_err(|error| anyhow!("{error:?}"));
        let statement = Statement {
            fleet: self.name.clone(),
            id: id(generation)?,
            generation,
            not_after: Time::of_millis(1_000_000_000),
            root: Tree::new(leaves.iter().map(Leaf::hash)).root(),
            nodes,
            waves: vec![Wave::Nodes(nodes)],
            max_in_flight: nodes,
            max_failed: 0,
            settle: period("1s")?,
            confirm_within: period("1m")?,
            soak: period("0s")?,
            accept: Vec::new(),
            plan: false,
        };
        for (nth, part) in Leaves::parts(&leaves).enumerate() {
            let put = Transaction::new().put(self.keys.leaves(&statement.id, nth), part.write());
            let _ = self.store.commit(put).await?;
        }
        // What was assigned before belongs to no rollout.
        for some in self.nodes.chunks(AT_ONCE) {
            let wants = some.iter().map(|node| self.keys.want(node));
            let _ = self.store.commit(wants.fold(Transaction::new(), Transaction::delete)).await?;
        }
        let text = String::from_utf8(statement.write())?;
        let signed = SignedStatement { statement: text, signatures: Vec::new() };
        Ok(Transaction::new().put(self.keys.statement(&statement.id), signed.write()))
    }

    /// After a restart of the store; says how many leases were lost.
    async fn until_all_are_back(&mut self) -> Result<usize> {
        let mut missing: BTreeSet<usize> = (0..self.nodes.len()).collect();
        let mut lost = 0;
        let all = async {
            while !missing.is_empty() {
                match self.said.recv().await.context("the nodes have ended")? {
                    Event::Up { node, has_new_lease } => {
                        missing.remove(&node);
                        lost += usize::from(has_new_lease);
                    }
                    Event::Seen { .. } | Event::Answered { .. } => {}
                }
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, all).await.context("nodes do not come back")??;
        Ok(lost)
    }
}

fn id(generation: u64) -> Result<Name> {
    format!("g{generation}").parse().map_err(|error| anyhow!("{error:?}"))
}
