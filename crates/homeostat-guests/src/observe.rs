//! Observes the declared guests: lists first, then configurations, many at a time.
//!
//! A guest that is in no list is absent only if all nodes answered and the token could have seen it; else it is
//! unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use futures_util::stream::{self, StreamExt as _};
use homeostat_core::{Failure, Hint, Owner, See, Seen, Stage, View};

use crate::api::{Listed, Options, Place};
use crate::error::Error;
use crate::hints::{Watch, Watched};
use crate::mark::{self, Marked};
use crate::model::{Guest, Kind, Run, Vmid, Wanted};
use crate::nodes::{Lists, Nodes, Wait};
use crate::normalize;
use crate::source::Guests;

/// How many configurations are read at once.
const AT_ONCE: usize = 16;

/// What an observe learned of each guest besides its managed part.
#[derive(Debug, Default)]
pub struct Moment {
    pub(crate) guests: BTreeMap<Vmid, Facts>,
}

/// What a plan for a guest depends on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) place: Place,
    pub(crate) name: String,
    /// The digest of the configuration, if it could be read.
    pub(crate) digest: Option<String>,
    pub(crate) tags: BTreeSet<String>,
    pub(crate) mark: Option<String>,
    /// Declared options that take effect with the next start.
    pub(crate) pending: Vec<String>,
    /// The reason of its lock.
    lock: Option<String>,
}

impl Facts {
    /// The lock under which nothing can be done to the guest. That of a suspended one ends with its start.
    pub(crate) fn lock(&self) -> Option<&str> {
        self.lock.as_deref().filter(|lock| *lock != "suspended")
    }
}

/// Observes guests, and polls the cluster for hints.
#[derive(Debug)]
pub struct Reader {
    source: Guests,
    nodes: Nodes,
    /// None in a reader without hints.
    watch: Option<Watch>,
    /// Guests that were unknown at the last observe: a hint names them when a node answers again.
    missed: BTreeSet<Vmid>,
}

/// A guest to observe.
#[derive(Clone, Copy)]
struct Subject<'a> {
    key: Vmid,
    wanted: Option<&'a Wanted>,
    /// What we wrote, by the ledger.
    wrote: Option<&'a Guest>,
}

/// None, if the guest is absent. The error says why it is unknown.
type Observation = Result<Option<Present>, String>;

struct Present {
    object: Guest,
    owner: Owner,
    facts: Facts,
}

impl Reader {
    /// With hints, unless it waits the longest for each node.
    pub(crate) fn new(source: Guests, wait: Wait) -> Self {
        let watch = (wait == Wait::Usual).then(|| Watch::new(source.timeouts.poll));
        let nodes = Nodes::new(wait, source.timeouts.answer);
        Reader { source, nodes, watch, missed: BTreeSet::new() }
    }

    /// Observes all subjects. After a node has timed out once, its other guests are not waited for.
    async fn observe_all(
        &mut self,
        lists: &Lists,
        subjects: Vec<Subject<'_>>,
    ) -> Vec<(Vmid, Observation)> {
        let (source, timed_out) = (&self.source, Mutex::new(BTreeSet::new()));
        let timed_out_nodes = &|| timed_out.lock().unwrap_or_else(PoisonError::into_inner);
        let subjects = subjects.into_iter().map(|subject| {
            let node = lists.found.get(&subject.key).map_or("", |found| &found.place.node);
            (self.nodes.config_timeout(node), node, subject)
        });
        let subjects = &subjects.collect::<Vec<_>>();
        // By index, since a closure that takes borrowed items makes a stream that is not `Send`.
        let observations = stream::iter(0..subjects.len()).map(|at| async move {
            let (timeout, node, subject) = subjects[at];
            let observed = if timed_out_nodes().contains(node) {
                None
            } else {
                tokio::time::timeout(timeout, observe_one(source, lists, subject)).await.ok()
            };
            let observed = observed.unwrap_or_else(|| {
                timed_out_nodes().insert(node);
                Err(format!("node {node} does not answer any more"))
            });
            (subject.key, observed)
        });
        let observations: Vec<_> = observations.buffer_unordered(AT_ONCE).collect().await;
        for node in &*timed_out_nodes() {
            self.nodes.config_timed_out(node);
        }
        observations
    }
}

impl homeostat_core::Reader<Guests> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Guests>,
        see: &mut See<'_, Vmid, Guest>,
    ) -> Result<Moment, Failure> {
        let subjects = subjects(view);
        let mut moment = Moment::default();
        if subjects.is_empty() {
            return Ok(moment);
        }
        let lists = self.nodes.lists(&self.source.api).await.map_err(|error| error.failure())?;
        // Later hints are derived from the watch, and from the unknown guests when a node answers again.
        self.missed.retain(|key| !view.focus.covers(key));
        let mut watched = BTreeMap::new();
        for (key, observation) in self.observe_all(&lists, subjects).await {
            match observation {
                Err(why) => {
                    self.missed.insert(key);
                    watched.insert(key, Watched::Unknown);
                    see(Seen::Unknown { key, why });
                    continue;
                }
                Ok(Some(Present { object, owner, facts })) => {
                    moment.guests.insert(key, facts);
                    see(Seen::Present { key, object, owner });
                }
                Ok(None) => {}
            }
            watched.insert(key, Watched::known(lists.found.get(&key).cloned()));
        }
        if let Some(watch) = &mut self.watch {
            watch.observed(view.focus, watched);
        }
        Ok(moment)
    }

    async fn hint(&mut self) -> Result<Hint<Vmid>, Failure> {
        let Reader { source, nodes, watch: Some(watch), missed } = self else {
            return std::future::pending().await;
        };
        loop {
            let keys = tokio::select! {
                () = nodes.recovered(&source.api) => std::mem::take(missed),
                changed = watch.changed(&source.api) => match changed {
                    Some(changed) => changed,
                    // A full look says why.
                    None => return Ok(Hint::Lost),
                },
            };
            if !keys.is_empty() {
                return Ok(Hint::keys(keys));
            }
        }
    }
}

fn subjects<'a>(view: &View<'a, Guests>) -> Vec<Subject<'a>> {
    let declared = view.desired.iter().map(|(key, _)| *key);
    let keys: BTreeSet<Vmid> = declared.chain(view.records.keys().copied()).collect();
    let focused = keys.into_iter().filter(|key| view.focus.covers(key));
    let subjects = focused.map(|key| {
        let record = view.records.get(&key).filter(|record| record.stage == Stage::Done);
        let wrote = record.map(|record| &record.wrote);
        Subject { key, wanted: view.desired.wanted(&key), wrote }
    });
    subjects.collect()
}

impl<'a> Subject<'a> {
    /// The options to observe: the declared ones; or, of a guest that is no longer declared, those that we wrote.
    fn options(&self) -> impl Iterator<Item = &'a String> {
        let declared = self.wanted.map(|wanted| &wanted.options);
        let options = declared.or_else(|| self.wrote.map(|wrote| &wrote.options));
        options.into_iter().flat_map(BTreeMap::keys)
    }

    /// A guest exists without us, so the first owner that writes to it claims it. A guest that we marked, and that
    /// has no mark, is another one with its number, or another client removed the mark. One that is no longer declared is
    /// released, with any owner.
    fn owner(&self, marked: &Marked) -> Owner {
        match marked {
            _ if self.wanted.is_none() => Owner::Nobody,
            Marked::Other(owner) => Owner::Foreign(format!("the owner {owner}").into()),
            Marked::Not if self.wrote.is_some_and(|wrote| wrote.is_marked) => {
                Owner::foreign("a guest without our mark: another one with its number, perhaps")
            }
            Marked::Not | Marked::Ours(_) => Owner::Nobody,
        }
    }

    /// Refuses a guest of this number that is not the declared one.
    fn check_place(&self, place: &Place) -> Result<(), String> {
        let Some(wanted) = self.wanted else { return Ok(()) };
        if wanted.kind != place.kind {
            let (declared, found) = (wanted.kind.word(), place.kind.word());
            return Err(format!(
                "it is declared as {declared}, and there is a {found} of this number"
            ));
        }
        match &wanted.node {
            Some(node) if *node != place.node => Err(format!(
                "it is declared on node {node}, and is on {}: without `node` it may move",
                place.node
            )),
            _ => Ok(()),
        }
    }
}

async fn observe_one(source: &Guests, lists: &Lists, subject: Subject<'_>) -> Observation {
    let Some(listed) = lists.found.get(&subject.key) else {
        return missing(source, lists, subject).await;
    };
    subject.check_place(&listed.place)?;
    match (subject.wanted, read_config(source, listed).await) {
        (None, Err(error)) => Err(error.to_string()),
        (_, config) => Ok(Some(present(source, subject, listed, config))),
    }
}

/// The options of a guest, and which of them take effect with its next start.
async fn read_config(
    source: &Guests,
    listed: &Listed,
) -> Result<(Options, BTreeSet<String>), Error> {
    let options = source.api.options(&listed.place).await?;
    let pending = match listed.run {
        Some(Run::Running) => source.api.pending(&listed.place).await?,
        _ => BTreeSet::new(),
    };
    Ok((options, pending))
}

/// Whether a guest that is in no list is absent, or unknown.
async fn missing(source: &Guests, lists: &Lists, subject: Subject<'_>) -> Observation {
    let declared = subject.wanted.and_then(|wanted| wanted.node.as_ref());
    let unanswered = declared.and_then(|node| lists.unanswered.get_key_value(node));
    if let Some((node, why)) = unanswered.or_else(|| lists.unanswered.iter().next()) {
        return Err(format!("node {node} does not answer: {why}"));
    }
    let (api, vmid) = (&source.api, subject.key);
    if !api.may_see(vmid).await.map_err(|error| error.to_string())? {
        return Err(format!(
            "the token lacks the privilege VM.Audit on /vms/{}: it cannot see whether it is there",
            vmid.0
        ));
    }
    // During a migration a guest can be missing from the lists of both nodes, but not from that of the cluster.
    let resources = api.resources().await.map_err(|error| error.to_string())?;
    if resources.contains_key(&vmid) {
        return Err("it was on no node, and the cluster knows it: it moves".to_owned());
    }
    Ok(None)
}

fn present(
    source: &Guests,
    subject: Subject<'_>,
    listed: &Listed,
    config: Result<(Options, BTreeSet<String>), Error>,
) -> Present {
    let Listed { place, run, name, lock, .. } = listed.clone();
    let tags = config.as_ref().map_or_else(|_| listed.tags.clone(), |(options, _)| options.tags());
    let marked = mark::read(&source.owner, source.claimant.as_ref(), place.vmid, &tags);
    let owner = subject.owner(&marked);
    let mark = if let Marked::Ours(mark) = marked { Some(mark) } else { None };
    let (kind, is_marked) = (place.kind, mark.is_some());
    let mut object = Guest { kind, run, options: BTreeMap::new(), unread: None, is_marked };
    let mut facts = Facts { place, name, digest: None, tags, mark, pending: Vec::new(), lock };
    match config {
        Ok((read, pending)) => {
            let options = subject.options();
            object.options =
                options.map(|option| (option.clone(), seen(kind, option, &read))).collect();
            let is_pending = |option: &&String| pending.contains(*option);
            facts.pending = subject.options().filter(is_pending).cloned().collect();
            facts.digest = Some(read.digest);
        }
        Err(error) => object.unread = Some(error.to_string()),
    }
    Present { object, owner, facts }
}

/// The value of an option, in normal form; without marks among the tags.
fn seen(kind: Kind, option: &str, read: &Options) -> String {
    match option {
        "tags" => normalize::join(mark::without(&read.tags())),
        _ => normalize::seen(kind, option, read.options.get(option).map(String::as_str)),
    }
}
