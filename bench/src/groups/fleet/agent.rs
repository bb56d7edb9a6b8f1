//! A node as the store sees it: a lease, a watch, and an answer to each assignment. It applies nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use homeostat_fleet::keys::Keys;
use homeostat_fleet::records::{Alive, NodePhase, Open, Record as _, Status, Want};
use homeostat_fleet::{Name, Time};
use homeostat_store::{Error, Keys as Range, Lease, Renewal, Store, Transaction, WatchEvent};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

use crate::clock;

const LEASE: Duration = Duration::from_mins(1);
/// After a failure; the client itself spreads its connections.
const PAUSE: Duration = Duration::from_millis(500);

/// What a node says of itself to the benchmark.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Its lease lasts and its watch is open.
    Up {
        node: usize,
        has_new_lease: bool,
    },
    Seen {
        node: usize,
        generation: u64,
        at: Instant,
    },
    Answered {
        node: usize,
        generation: u64,
    },
}

impl Event {
    pub(super) fn node(&self) -> usize {
        match self {
            Event::Up { node, .. } | Event::Seen { node, .. } | Event::Answered { node, .. } => {
                *node
            }
        }
    }
}

pub(super) struct Agent {
    nth: usize,
    name: Name,
    store: Arc<dyn Store>,
    keys: Keys,
    say: UnboundedSender<Event>,
    lease: Option<Lease>,
    answered: u64,
}

impl Agent {
    pub(super) fn new(
        nth: usize,
        name: Name,
        store: Arc<dyn Store>,
        keys: Keys,
        say: UnboundedSender<Event>,
    ) -> Self {
        Agent { nth, name, store, keys, say, lease: None, answered: 0 }
    }

    /// Until the benchmark is over.
    pub(super) async fn live(mut self) {
        while !self.say.is_closed() {
            // Whatever the store does, it tries again.
            let _ = self.follow().await;
            sleep(PAUSE).await;
        }
    }

    async fn follow(&mut self) -> Result<(), Error> {
        let (lease, has_new_lease) = self.hold_lease().await?;
        let node = Range::Below(self.keys.node(&self.name));
        let listed = self.store.list(node.clone()).await?;
        if let Some(entry) = listed.values.get(&self.keys.want(&self.name)) {
            self.answer(&entry.value).await?;
        }
        let mut watch = self.store.watch(node, listed.revision).await?;
        let _ = self.say.send(Event::Up { node: self.nth, has_new_lease });
        loop {
            match timeout(lease.time_to_live / 3, watch.next()).await {
                Ok(Ok(WatchEvent::Changed { value: Some(entry), .. })) => {
                    self.answer(&entry.value).await?;
                }
                Ok(Ok(WatchEvent::Changed { .. } | WatchEvent::Progress { .. })) => {}
                Ok(_) => return Ok(()),
                Err(_) => {
                    if self.store.renew(lease.id).await? == Renewal::Gone {
                        self.lease = None;
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The lease of before, if it lasts; says whether it is another one.
    async fn hold_lease(&mut self) -> Result<(Lease, bool), Error> {
        if let Some(lease) = self.lease
            && self.store.renew(lease.id).await? != Renewal::Gone
        {
            return Ok((lease, false));
        }
        let lease = self.store.grant(LEASE).await?;
        let text = |text: &str| text.to_owned();
        let machine = self.name.to_string();
        let (boot, process, agent) = (text("b1"), text("p1"), text("1"));
        let alive = Alive { machine, boot, process, agent }.write();
        let put = Transaction::new().put_leased(self.keys.alive(&self.name), alive, lease.id);
        let _ = self.store.commit(put).await?;
        self.lease = Some(lease);
        Ok((lease, true))
    }

    async fn answer(&mut self, want: &[u8]) -> Result<(), Error> {
        let Ok(want) = Want::read(want) else { return Ok(()) };
        let (node, generation) = (self.nth, want.generation);
        if generation <= self.answered {
            return Ok(());
        }
        let _ = self.say.send(Event::Seen { node, generation, at: clock::now() });
        let status = Status {
            generation,
            take: want.take,
            document: want.document,
            phase: NodePhase::Good,
            why: String::new(),
            converged: true,
            since: Time::of_millis(1_000_000),
            open: Open::default(),
            accepted: generation,
            agent: "1".to_owned(),
            boot: "b1".to_owned(),
        };
        let put = Transaction::new().put(self.keys.status(&self.name), status.write());
        let _ = self.store.commit(put).await?;
        self.answered = generation;
        let _ = self.say.send(Event::Answered { node, generation });
        Ok(())
    }
}
