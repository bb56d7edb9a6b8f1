//! The store's side of a node: follows what is meant for it, judges and fetches that, says that the node is alive, and
//! publishes its status.
//!
//! Everything is level-triggered: each round compares what the store has with what the node has. A store that cannot be
//! reached changes nothing but the report to the daemon.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use homeostat_document::{Document, TRIAL};
use homeostat_engine::{Failure, Retry};
use homeostat_etcd::EtcdStore;
use homeostat_fleet::judge::{self, Refusal, Verdict, judge};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::node::{Offer, Stage, Terms};
use homeostat_fleet::records::{
    Accepted, Alive, NodePhase, PlanAnswer, PlanResult, Record as _, SignedStatement, Status, Take,
    Want,
};
use homeostat_fleet::{AllowedSigners, Digest, Name, Time};
use homeostat_kit::provider::{Answer, Provider as _};
use homeostat_kit::store::Reflector;
use homeostat_store::{
    Committed, Entry, Error, Guard, Keys as StoreKeys, LeaseId, Prefix, Renewal, Revision, Store,
    Transaction,
};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::fetch::{Unfetched, beside, fetch};
use super::planning::planned;
use super::settings::{ClockTrust, FleetSettings};
use super::{Node, now, plain_text};
use crate::daemon::DaemonView;
use crate::daemon::clock::boot_id;
use crate::sys;

/// Everything is listed and compared again after this time, whatever the watch says: watches of some versions of etcd lose
/// events.
const RESYNC: Duration = Duration::from_mins(1);
/// Before something is looked at again that was missing or failed.
const AGAIN: Duration = Duration::from_secs(2);
/// Counts of open keys change often. They are published at most this often.
const PUBLISH: Duration = Duration::from_secs(1);

/// How long an answer to a request for a plan is kept in the store.
const PLAN_LEASE: Duration = Duration::from_hours(1);

/// What the provider has to know.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    /// What is to be tried.
    to_try: Option<Accepted>,
    /// Why this machine does not get, or does not take, what its fleet has for it.
    pub(super) trouble: Option<Failure>,
    /// Changes when the trouble does.
    stage: Stage,
    /// How often a document was fetched again that was lost here.
    fetched_again: u64,
}

/// Follows the store for as long as the daemon runs.
pub(super) async fn run(
    node: Arc<Node>,
    mut daemon: DaemonView,
    report: Arc<watch::Sender<Report>>,
) {
    let mut settings = node.settings.subscribe();
    let identity = identity();
    loop {
        let current = settings.borrow_and_update().clone();
        let mut session = Session::new(Arc::clone(&node), current, identity.clone());
        tokio::select! {
            () = session.run(&mut daemon, &report) => return,
            changed = settings.changed() => if changed.is_err() { return },
        }
    }
}

/// Which machine, boot and process this is.
fn identity() -> Alive {
    let boot = boot_id();
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let machine = if machine.trim().is_empty() { &boot } else { machine.trim() };
    // The id itself is not for others.
    let hashed = Digest::of_parts([b"homeostat-fleet ".as_slice(), machine.as_bytes()]);
    let machine = hashed.hex().chars().take(32).collect();
    let process = format!("{}-{}", std::process::id(), now().as_millis());
    Alive { machine, boot, process, agent: env!("CARGO_PKG_VERSION").to_owned() }
}

/// What the store has as this node's status.
#[derive(PartialEq)]
enum StoredStatus {
    /// Not read since the last failure or change of another process.
    Unread,
    Absent,
    Present(Status),
}

struct Session {
    node: Arc<Node>,
    settings: FleetSettings,
    keys: Keys,
    store: Arc<EtcdStore>,
    identity: Alive,
    alive: AliveKey,
    stored: StoredStatus,
    publish_at: Instant,
    offer: Offer,
    offered_since: Time,
    statement: Option<FetchedStatement>,
    fetching: Option<Fetching>,
    checked: Option<Checked>,
    /// Whether what is tried or in force is not here.
    has_lost: bool,
    fetched_again: u64,
    has_fetched: Arc<Notify>,
    /// When to look again, besides changes.
    look_at: Instant,
    resync_at: Instant,
    trouble: Option<Failure>,
    /// The request for a plan that is worked on, or was answered last.
    plan: Option<PlanRequest>,
    /// The version of the store was looked at.
    is_version_known: bool,
}

/// The key that says that this node is alive.
enum AliveKey {
    Unknown {
        ask_at: Instant,
    },
    Ours {
        lease: LeaseId,
        renew_at: Instant,
        modified: Revision,
    },
    /// Another machine, or another process of this one, has it.
    Taken {
        by: Alive,
        ask_at: Instant,
    },
}

struct FetchedStatement {
    want: Revision,
    at: Instant,
    signed: SignedStatement,
}

/// A document that is fetched and read beside the thread of the daemon.
struct Fetching {
    document: Digest,
    result: Arc<OnceLock<Result<(), Unfetched>>>,
    task: JoinHandle<()>,
}

/// What came of reading a document, so that it is read once.
struct Checked {
    document: Digest,
    at: Instant,
    result: Result<(), Unfetched>,
}

/// A request for a plan, by the last change of its key.
struct PlanRequest {
    modified: Revision,
    want: Want,
    result: Arc<OnceLock<PlanResult>>,
    is_answered: bool,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Values = Arc<BTreeMap<String, Entry>>;

impl Session {
    fn new(node: Arc<Node>, settings: FleetSettings, identity: Alive) -> Self {
        let now = Instant::now();
        Session {
            keys: Keys::new(&settings.fleet),
            store: Arc::new(EtcdStore::new(settings.config())),
            node,
            settings,
            identity,
            alive: AliveKey::Unknown { ask_at: now },
            stored: StoredStatus::Unread,
            publish_at: now,
            offer: Offer::Current,
            offered_since: super::now(),
            statement: None,
            fetching: None,
            checked: None,
            has_lost: false,
            fetched_again: 0,
            has_fetched: Arc::default(),
            look_at: now,
            resync_at: now + RESYNC,
            trouble: None,
            plan: None,
            is_version_known: false,
        }
    }

    async fn run(&mut self, daemon: &mut DaemonView, report: &watch::Sender<Report>) {
        let prefix = Prefix::new(
            Arc::clone(&self.store) as Arc<dyn Store>,
            self.keys.node(&self.settings.node),
        );
        let mut wants = Reflector::new(prefix).with_resync(RESYNC);
        let mut progress = self.node.progress.subscribe();
        let mut postponed = self.node.postponed.subscribe();
        let mut values: Option<Values> = None;
        let (mut ask, mut look) = (true, true);
        loop {
            if ask {
                values = match wants.answer().await {
                    Answer::DesiredState(found) => Some(found),
                    Answer::Unknown { why } => {
                        self.unreachable(&why);
                        None
                    }
                    Answer::Nothing => None,
                };
            }
            match &values {
                Some(values) => {
                    if let Err(error) = self.round(values, look, daemon).await {
                        self.failed(error);
                    }
                }
                // The lease may outlive the outage. Its renewal also tells that the store is back.
                None if self.renew_meanwhile().await => {
                    ask = true;
                    continue;
                }
                None => {}
            }
            self.tell(report);
            (ask, look) = (false, true);
            let due = match (&values, &self.alive) {
                (Some(_), _) => self.due(),
                (None, AliveKey::Ours { renew_at, .. }) => *renew_at,
                // Only the return of the store matters.
                (None, _) => Instant::now() + RESYNC,
            };
            let has_fetched = Arc::clone(&self.has_fetched);
            tokio::select! {
                () = wants.changed() => ask = true,
                () = sleep_until(due) => {}
                changed = progress.changed() => if changed.is_err() { return },
                changed = postponed.changed() => if changed.is_err() { return },
                () = daemon.changed() => look = false,
                () = has_fetched.notified() => {}
            }
        }
    }

    /// One comparison of what is here with what the store has. What the store says is looked at again unless only the
    /// machine has changed.
    async fn round(
        &mut self,
        values: &Values,
        look: bool,
        daemon: &DaemonView,
    ) -> Result<(), Error> {
        if Instant::now() >= self.resync_at {
            self.resync_at = Instant::now() + RESYNC;
            self.check_alive().await?;
            self.stored = StoredStatus::Unread;
        }
        if !self.is_version_known {
            self.check_version().await?;
        }
        if !self.hold_alive().await? {
            return Ok(());
        }
        self.trouble = None;
        if look {
            self.look_at = Instant::now() + RESYNC;
            self.fetch_lost();
            let offer = self.offered(values).await?;
            self.set_offer(offer);
        }
        self.publish(daemon).await?;
        self.answer_plan(values, daemon).await
    }

    fn due(&self) -> Instant {
        let alive = match &self.alive {
            AliveKey::Unknown { ask_at } | AliveKey::Taken { ask_at, .. } => *ask_at,
            AliveKey::Ours { renew_at, .. } => *renew_at,
        };
        let soonest = self.look_at.min(self.resync_at).min(alive);
        let publish = Some(self.publish_at).filter(|at| *at > Instant::now());
        let soonest = publish.map_or(soonest, |at| soonest.min(at));
        // Whatever is due and cannot be done is not tried without a pause.
        soonest.max(Instant::now() + Duration::from_millis(100))
    }

    fn unreachable(&mut self, why: &Failure) {
        // The words change with each try; what matters does not.
        self.trouble.get_or_insert_with(|| why.clone());
    }

    fn failed(&mut self, error: Error) {
        tracing::debug!(error = %error, "the store has not carried out a request");
        self.stored = StoredStatus::Unread;
        self.look_at = Instant::now() + AGAIN;
        let failure = Failure::from(error);
        self.unreachable(&failure);
    }

    fn tell(&self, report: &watch::Sender<Report>) {
        let progress = self.node.progress();
        let trouble = self.trouble.clone().or_else(|| match &self.offer {
            Offer::Waits { phase: NodePhase::Held, .. } | Offer::Current => None,
            Offer::Ignored { why } | Offer::Waits { why, .. } => {
                Some(Failure::new(why.clone(), Retry::OnChange))
            }
        });
        let to_try = progress.to_try().copied();
        let fetched_again = self.fetched_again;
        let new = Report { to_try, trouble, stage: progress.stage, fetched_again };
        report.send_if_modified(|known| {
            let is_new = *known != new;
            *known = new;
            is_new
        });
    }

    async fn check_version(&mut self) -> Result<(), Error> {
        let status = match self.store.status().await {
            // The node may lack the right to ask, which is no reason to do nothing.
            Err(Error::Denied { why }) => {
                tracing::warn!(why, "the version of the store is not known");
                self.is_version_known = true;
                return Ok(());
            }
            status => status?,
        };
        self.is_version_known = true;
        if is_open_to_all(&status.version) {
            tracing::warn!(
                version = status.version,
                member = status.member,
                "the store's permissions are no boundary in this version: only signatures protect this node"
            );
        }
        Ok(())
    }

    /// Renews the lease while nothing else can be done; says whether the store has answered.
    async fn renew_meanwhile(&mut self) -> bool {
        let now = Instant::now();
        let AliveKey::Ours { lease, renew_at, .. } = &mut self.alive else { return false };
        if now < *renew_at {
            return false;
        }
        let lease = *lease;
        match self.store.renew(lease).await {
            Ok(Renewal::Lasts(time)) => {
                self.renewed(now + time / 3);
                true
            }
            Ok(Renewal::Gone) => {
                self.alive = AliveKey::Unknown { ask_at: now };
                true
            }
            Err(_) => {
                self.renewed(Instant::now() + self.settings.lease / 6);
                false
            }
        }
    }

    fn renewed(&mut self, next: Instant) {
        if let AliveKey::Ours { renew_at, .. } = &mut self.alive {
            *renew_at = next;
        }
    }

    /// Whether the key that says that this node is alive is ours, and will be for some time.
    async fn hold_alive(&mut self) -> Result<bool, Error> {
        let now = Instant::now();
        match &mut self.alive {
            AliveKey::Ours { renew_at, .. } if now < *renew_at => return Ok(true),
            AliveKey::Ours { lease, renew_at, .. } => {
                // A failure is tried again soon, well before the lease ends.
                *renew_at = now + AGAIN;
                match self.store.renew(*lease).await? {
                    Renewal::Lasts(time) => {
                        *renew_at = now + time / 3;
                        return Ok(true);
                    }
                    Renewal::Gone => self.alive = AliveKey::Unknown { ask_at: now },
                }
            }
            AliveKey::Unknown { ask_at } | AliveKey::Taken { ask_at, .. } if now < *ask_at => {
                return Ok(false);
            }
            AliveKey::Unknown { ask_at } | AliveKey::Taken { ask_at, .. } => *ask_at = now + AGAIN,
        }
        self.take_alive().await
    }

    /// Takes the key, unless another machine has it. A restarted process takes it from its predecessor.
    async fn take_alive(&mut self) -> Result<bool, Error> {
        let key = self.keys.alive(&self.settings.node);
        let entry = self.entry(&key).await?;
        let guard = match &entry {
            None => Guard::Absent { key: key.clone() },
            Some(entry) => {
                let owner = Alive::read(&entry.value).ok();
                match owner.filter(|owner| !self.may_replace(owner)) {
                    Some(owner) => return Ok(self.taken_by(owner)),
                    None => Guard::Unmodified { key: key.clone(), since: entry.modified },
                }
            }
        };
        let lease = self.store.grant(self.settings.lease).await?;
        let put =
            Transaction::new().only_if(guard).put_leased(key, self.identity.write(), lease.id);
        match self.store.commit(put).await {
            Ok(Committed::Done { revision }) => {
                let renew_at = Instant::now() + lease.time_to_live / 3;
                self.alive = AliveKey::Ours { lease: lease.id, renew_at, modified: revision };
                self.stored = StoredStatus::Unread;
                Ok(true)
            }
            refused => {
                // It would expire by itself.
                let _ = self.store.revoke(lease.id).await;
                refused.map(|_| false)
            }
        }
    }

    fn may_replace(&self, owner: &Alive) -> bool {
        let is_newer = |taken: &Alive| taken.process == owner.process;
        let is_replaced = matches!(&self.alive, AliveKey::Taken { by, .. } if is_newer(by));
        owner.machine == self.identity.machine && !is_replaced
    }

    fn taken_by(&mut self, owner: Alive) -> bool {
        let node = &self.settings.node;
        let who = if owner.machine == self.identity.machine {
            "another process of this machine".to_owned()
        } else {
            format!("another machine ({}, boot {})", owner.machine, owner.boot)
        };
        let error = format!("{who} is the node `{node}` of the fleet `{}`", self.settings.fleet);
        let help =
            "give each machine a name of its own; nothing is taken from the fleet here until then";
        self.trouble = Some(Failure::new(error, Retry::OnChange).with_help(help));
        let ask_at = Instant::now() + self.settings.lease / 3;
        self.alive = AliveKey::Taken { by: owner, ask_at };
        false
    }

    /// Notices that the key is gone, or was taken by another process.
    async fn check_alive(&mut self) -> Result<(), Error> {
        let AliveKey::Ours { modified, .. } = self.alive else { return Ok(()) };
        let entry = self.entry(&self.keys.alive(&self.settings.node)).await?;
        match entry {
            Some(entry) if entry.modified == modified => {}
            entry => self.lost_alive(entry.and_then(|entry| Alive::read(&entry.value).ok())),
        }
        Ok(())
    }

    fn lost_alive(&mut self, owner: Option<Alive>) {
        match owner.filter(|owner| owner.process != self.identity.process) {
            Some(owner) => drop(self.taken_by(owner)),
            None => self.alive = AliveKey::Unknown { ask_at: Instant::now() },
        }
    }

    async fn entry(&self, key: &str) -> Result<Option<Entry>, Error> {
        let mut listed = self.store.list(StoreKeys::One(key.to_owned())).await?;
        Ok(listed.values.remove(key))
    }

    fn set_offer(&mut self, offer: Offer) {
        if self.offer == offer {
            return;
        }
        if let Offer::Ignored { why } | Offer::Waits { why, .. } = &offer {
            tracing::warn!(why, "what the fleet offers is not taken");
        }
        (self.offer, self.offered_since) = (offer, super::now());
    }

    /// What the store offers. What can be taken is accepted on the way.
    async fn offered(&mut self, values: &Values) -> Result<Offer, Error> {
        let Some(entry) = values.get(&self.keys.want(&self.settings.node)) else {
            return Ok(Offer::Current);
        };
        let want = match Want::read(&entry.value) {
            Ok(want) => want,
            Err(error) => return Ok(Offer::Ignored { why: error.to_string() }),
        };
        let offered = accepted_of(&want);
        let progress = self.node.progress();
        if progress.accepted == Some(offered) {
            return Ok(Offer::Current);
        }
        if progress.to_try().is_some() {
            // An open trial ends first, which takes no longer than was signed.
            return Ok(Offer::Current);
        }
        let waits = |phase, why: String| Ok(Offer::Waits { offered, phase, why });
        let Some(signed) = self.statement(&want, entry.modified).await? else {
            self.look_again();
            let why =
                format!("the statement of rollout `{}` is not in the store yet", want.rollout);
            return waits(NodePhase::Stale, why);
        };
        let verdict = match self.judge(&signed, &want) {
            Ok(verdict) => verdict,
            Err(why) => return waits(NodePhase::Refused, why),
        };
        let (accepted, class, statement) = match verdict {
            Verdict::Current => return Ok(Offer::Current),
            Verdict::Plan { .. } => {
                let why = format!("rollout `{}` asks for plans and assigns nothing", want.rollout);
                return Ok(Offer::Ignored { why });
            }
            Verdict::Refused(refusal @ Refusal::Older { .. }) => {
                return Ok(Offer::Ignored { why: refusal.to_string() });
            }
            Verdict::Refused(refusal) => {
                // A signature that is missing may still come.
                self.statement = None;
                return waits(NodePhase::Refused, refusal.to_string());
            }
            Verdict::Accept { accepted, class, statement } => (accepted, class, statement),
        };
        match self.fetched(&accepted.document) {
            None => return Ok(self.offer.clone()),
            Some(Ok(())) => {}
            Some(Err(Unfetched::Missing(why))) => {
                self.look_again();
                return waits(NodePhase::Stale, why);
            }
            Some(Err(Unfetched::Unusable(why))) => return waits(NodePhase::Refused, why),
        }
        if let Some(why) = self.held() {
            self.look_again();
            return waits(NodePhase::Held, why);
        }
        let terms = Terms::of(&statement, class);
        if terms.settle.get().max(self.settings.settle) >= terms.confirm_within.get() {
            let why = "everything would have to be as declared for longer than the trial lasts"
                .to_owned();
            return waits(NodePhase::Refused, why);
        }
        if !TRIAL.contains(&terms.confirm_within.get()) {
            let why = format!("a trial of {} is too short or too long", terms.confirm_within);
            return waits(NodePhase::Refused, why);
        }
        let mut progress = self.node.progress();
        progress.accept(accepted, terms, super::now());
        if let Err(error) = self.node.kept.write_progress(&progress) {
            self.look_again();
            return waits(NodePhase::Stale, plain_text(&error));
        }
        let needed = [Some(accepted), progress.good].into_iter().flatten();
        let needed: Vec<Digest> = needed.map(|one| one.document).collect();
        self.node.kept.forget_others(&needed);
        tracing::info!(
            generation = accepted.generation,
            document = %accepted.document,
            "an assignment of the fleet is accepted"
        );
        self.node.progress.send_replace(progress);
        Ok(Offer::Current)
    }

    fn look_again(&mut self) {
        self.look_at = Instant::now() + AGAIN;
    }

    async fn statement(
        &mut self,
        want: &Want,
        modified: Revision,
    ) -> Result<Option<SignedStatement>, Error> {
        let known = self.statement.as_ref();
        let known = known.filter(|known| known.want == modified && known.at.elapsed() < RESYNC);
        if let Some(known) = known {
            return Ok(Some(known.signed.clone()));
        }
        let entry = self.entry(&self.keys.statement(&want.rollout)).await?;
        let signed = entry.and_then(|entry| SignedStatement::read(&entry.value).ok());
        let at = Instant::now();
        self.statement =
            signed.clone().map(|signed| FetchedStatement { want: modified, at, signed });
        Ok(signed)
    }

    /// The signers are read each time, so that a new list counts at once.
    fn judge(&self, signed: &SignedStatement, want: &Want) -> Result<Verdict, String> {
        let path = &self.settings.allowed_signers;
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let signers =
            AllowedSigners::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let progress = self.node.progress();
        let is_trusted = match self.settings.clock {
            ClockTrust::Always => true,
            ClockTrust::Synchronized => sys::is_clock_synchronized(),
        };
        let node = judge::Node {
            fleet: &self.settings.fleet,
            name: &self.settings.node,
            signers: &signers,
            needed: self.settings.signatures,
            accepted: progress.accepted.as_ref(),
            now: is_trusted.then(super::now),
        };
        let judgement = judge(&node, signed, want);
        for warning in judgement.warnings {
            tracing::warn!(%warning, "a statement of the fleet was judged without the time");
        }
        Ok(judgement.verdict)
    }

    /// Fetches what is tried or in force again if it was lost or damaged here.
    fn fetch_lost(&mut self) {
        let progress = self.node.progress();
        let needed = progress.to_try().into_iter().chain(&progress.good);
        let lost = needed.map(|one| one.document).find(|document| !self.node.has(document));
        let Some(document) = lost else {
            self.fetched_again += u64::from(std::mem::take(&mut self.has_lost));
            return;
        };
        self.has_lost = true;
        if let Some(Err(why)) = self.fetched(&document) {
            tracing::debug!(?why, %document, "a lost document cannot be fetched again");
            self.look_again();
        }
    }

    /// Whether a document is here and can be used; nothing while that is being found out.
    fn fetched(&mut self, document: &Digest) -> Option<Result<(), Unfetched>> {
        if let Some(checked) = self.checked.as_ref().filter(|it| it.document == *document) {
            let is_valid = match &checked.result {
                Ok(()) => self.node.has(document),
                Err(_) => checked.at.elapsed() < RESYNC,
            };
            if is_valid {
                return Some(checked.result.clone());
            }
        }
        if self.fetching.as_ref().is_some_and(|fetching| fetching.document != *document) {
            self.fetching = None;
        }
        let fetching = self.fetching.get_or_insert_with(|| {
            let (node, keys) = (Arc::clone(&self.node), self.keys.clone());
            let (group, document) = (self.settings.group.clone(), *document);
            let store = EtcdStore::new(self.settings.config().with_spread(Duration::ZERO));
            let result = Arc::new(OnceLock::new());
            let (slot, notify) = (Arc::clone(&result), Arc::clone(&self.has_fetched));
            let task = tokio::spawn(async move {
                let loaded = fetch_and_load(&store, &keys, &group, document, &node).await;
                // It is set once, here.
                let _ = slot.set(loaded.map(drop));
                notify.notify_one();
            });
            Fetching { document, result, task }
        });
        let result = fetching.result.get().cloned()?;
        self.fetching = None;
        // What is missing may come at any time.
        let is_final = !matches!(result, Err(Unfetched::Missing(_)));
        let (document, at) = (*document, Instant::now());
        self.checked = is_final.then(|| Checked { document, at, result: result.clone() });
        Some(result)
    }

    /// Why nothing new is taken here now.
    fn held(&self) -> Option<String> {
        if self.settings.hold {
            return Some("`hold = true` in the machine's own document".to_owned());
        }
        if let Some(hold) = self.node.kept.hold() {
            let until = hold.until.map(|until| format!(" until {until}")).unwrap_or_default();
            return Some(format!("held{until} by {}: {}", hold.by, hold.reason));
        }
        let windows = &self.settings.windows;
        let is_open =
            windows.is_empty() || windows.iter().any(|window| window.is_open(super::now()));
        (!is_open).then(|| "outside of the maintenance windows".to_owned())
    }

    /// Writes the status if the store has another one. Counts alone are not urgent.
    async fn publish(&mut self, daemon: &DaemonView) -> Result<(), Error> {
        let AliveKey::Ours { modified, .. } = self.alive else { return Ok(()) };
        let level = daemon.level(&self.identity);
        let wished = self.node.progress().status(&self.offer, self.offered_since, &level);
        // Texts are cut when it is written.
        let Some(mut wished) = wished else { return Ok(()) };
        if let (NodePhase::Trial, Some(why)) = (wished.phase, &*self.node.postponed.borrow()) {
            wished.why.clone_from(why);
        }
        let Ok(mut wished) = Status::read(&wished.write()) else { return Ok(()) };
        let key = self.keys.status(&self.settings.node);
        if self.stored == StoredStatus::Unread {
            let entry = self.entry(&key).await?;
            let status = entry.and_then(|entry| Status::read(&entry.value).ok());
            self.stored = status.map_or(StoredStatus::Absent, StoredStatus::Present);
        }
        if let StoredStatus::Present(stored) = &self.stored {
            if is_same_but_for_time(stored, &wished) {
                return Ok(());
            }
            let is_urgent = stored.phase != wished.phase
                || stored.generation != wished.generation
                || stored.take != wished.take;
            if !is_urgent {
                // The time of the phase stays while only counts change.
                wished.since = stored.since;
                if Instant::now() < self.publish_at {
                    return Ok(());
                }
            }
        }
        let alive = self.keys.alive(&self.settings.node);
        let guard = Guard::Unmodified { key: alive.clone(), since: modified };
        let put = Transaction::new().only_if(guard).put(key, wished.write());
        self.publish_at = Instant::now() + PUBLISH;
        match self.store.commit(put).await? {
            Committed::Done { .. } => self.stored = StoredStatus::Present(wished),
            Committed::Refused { current, .. } => {
                let owner = current.get(&alive).and_then(|entry| Alive::read(&entry.value).ok());
                self.lost_alive(owner);
            }
        }
        Ok(())
    }

    /// Answers a request for a plan, each once.
    async fn answer_plan(&mut self, values: &Values, daemon: &DaemonView) -> Result<(), Error> {
        let AliveKey::Ours { modified: since, .. } = self.alive else { return Ok(()) };
        let node = &self.settings.node;
        let Some(entry) = values.get(&self.keys.plan_request(node)) else { return Ok(()) };
        if self.plan.as_ref().is_none_or(|plan| plan.modified != entry.modified) {
            // What cannot be read names no rollout that could be answered.
            let Ok(want) = Want::read(&entry.value) else { return Ok(()) };
            self.plan = Some(self.start_plan(want, entry.modified, daemon).await?);
        }
        let Some(plan) = self.plan.as_mut().filter(|plan| !plan.is_answered) else { return Ok(()) };
        let Some(result) = plan.result.get().cloned() else { return Ok(()) };
        let answer = PlanAnswer {
            rollout: plan.want.rollout.clone(),
            generation: plan.want.generation,
            document: plan.want.document,
            result,
            at: super::now(),
            agent: self.identity.agent.clone(),
        };
        let lease = self.store.grant(PLAN_LEASE).await?;
        let guard = Guard::Unmodified { key: self.keys.alive(node), since };
        let put = Transaction::new().only_if(guard);
        let put = put.put_leased(self.keys.plan(node), answer.write(), lease.id);
        if let Committed::Done { .. } = self.store.commit(put).await? {
            plan.is_answered = true;
        }
        Ok(())
    }

    async fn start_plan(
        &self,
        want: Want,
        modified: Revision,
        daemon: &DaemonView,
    ) -> Result<PlanRequest, Error> {
        let result = Arc::new(OnceLock::new());
        let request =
            |want| PlanRequest { modified, want, result: Arc::clone(&result), is_answered: false };
        let entry = self.entry(&self.keys.statement(&want.rollout)).await?;
        let signed = entry.and_then(|entry| SignedStatement::read(&entry.value).ok());
        let verdict = match &signed {
            None => Err(format!("the statement of rollout `{}` is not in the store", want.rollout)),
            Some(signed) => self.judge(signed, &want),
        };
        let document = match verdict {
            Ok(Verdict::Plan { document, .. }) => Ok(document),
            Ok(Verdict::Refused(refusal)) => Err(refusal.to_string()),
            Ok(Verdict::Current) => Err("this generation was accepted before".to_owned()),
            Ok(Verdict::Accept { .. }) => Err("the statement does not ask for a plan".to_owned()),
            Err(why) => Err(why),
        };
        let document = match document {
            Ok(document) => document,
            Err(why) => {
                // It is set once, here.
                let _ = result.set(PlanResult::Refused { why });
                return Ok(request(want));
            }
        };
        let (node, keys, group) =
            (Arc::clone(&self.node), self.keys.clone(), self.settings.group.clone());
        let store = EtcdStore::new(self.settings.config().with_spread(Duration::ZERO));
        let (context, slot, notify) =
            (daemon.context().clone(), Arc::clone(&result), Arc::clone(&self.has_fetched));
        tokio::spawn(async move {
            let refused = |why| PlanResult::Refused { why };
            let planned = match fetch_and_load(&store, &keys, &group, document, &node).await {
                Err(Unfetched::Missing(why) | Unfetched::Unusable(why)) => refused(why),
                Ok(document) => {
                    let planned = spawn_blocking(move || planned(&context, &document)).await;
                    planned.unwrap_or_else(|error| refused(error.to_string()))
                }
            };
            // It is set once, here.
            let _ = slot.set(planned);
            notify.notify_one();
        });
        Ok(request(want))
    }
}

/// The document, which stays here for as long as this works on it.
async fn fetch_and_load(
    store: &dyn Store,
    keys: &Keys,
    group: &Name,
    document: Digest,
    node: &Arc<Node>,
) -> Result<Arc<Document>, Unfetched> {
    let in_use = node.kept.in_use(&document);
    if !node.has(&document) {
        fetch(store, keys, group, &document, &node.kept).await?;
    }
    let node = Arc::clone(node);
    let load = move || {
        let _in_use = in_use;
        node.load(&document).map_err(Unfetched::from)
    };
    beside(load).await
}

fn accepted_of(want: &Want) -> Accepted {
    let document = match want.take {
        Take::Document => want.document,
        Take::Fallback => want.fallback,
    };
    Accepted { generation: want.generation, take: want.take, document }
}

fn is_same_but_for_time(one: &Status, other: &Status) -> bool {
    Status { since: other.since, ..one.clone() } == *other
}

/// Whether a client with any certificate can write keys of others: fixed in etcd 3.5.33 and 3.6.14, never in 3.4.
fn is_open_to_all(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let [major, minor, patch] = [numbers.next(), numbers.next(), numbers.next()];
    match (major, minor, patch) {
        (Some(3), Some(..5), _) => true,
        (Some(3), Some(5), Some(patch)) => patch < 33,
        (Some(3), Some(6), Some(patch)) => patch < 14,
        _ => false,
    }
}
