//! Observes the declared guests: lists first, then configurations, many at a time.
//!
//! A guest that is in no list is absent only if all nodes answered and the token could have seen it; else it is
//! unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use futures_util::StreamExt as _;
use homeostat_core::{Failure, Focus, Hint, Owner, See, Seen, Stage, View};

use crate::api::{Listed, Options, Place, Resource};
use crate::error::Error;
use crate::hints::Watch;
use crate::mark::{self, Marked};
use crate::model::{Guest, Key, Kind, Run, Wanted};
use crate::nodes::{Lists, Nodes, Wait};
use crate::normalize;
use crate::source::Guests;

/// How many configurations are read at once.
const AT_ONCE: usize = 16;

/// What an observe learned of each guest besides its managed part.
#[derive(Debug, Default)]
pub struct Moment {
    pub(crate) guests: BTreeMap<Key, Facts>,
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
}

/// Observes guests, and polls the cluster for hints.
#[derive(Debug)]
pub struct Reader {
    source: Guests,
    nodes: Nodes,
    /// None in a reader without hints.
    watch: Option<Watch>,
    /// Guests that were unknown at the last observe: a hint names them when a node answers again.
    missed: BTreeSet<Key>,
}

/// A guest to observe.
struct Subject {
    key: Key,
    wanted: Option<Wanted>,
    /// What we wrote, by the ledger.
    wrote: Option<Guest>,
}

impl Reader {
    pub(crate) fn with_hints(source: Guests) -> Self {
        let watch = Some(Watch::new(source.patience.poll));
        let nodes = Nodes::new(Wait::Usual, source.patience.answer);
        Reader { source, nodes, watch, missed: BTreeSet::new() }
    }

    pub(crate) fn without_hints(source: Guests) -> Self {
        let nodes = Nodes::new(Wait::Longest, source.patience.answer);
        Reader { source, nodes, watch: None, missed: BTreeSet::new() }
    }

    /// Observes all subjects. After a node has timed out once, its other guests are not waited for.
    async fn observe_all(
        &mut self,
        lists: &Lists,
        subjects: Vec<Subject>,
    ) -> Vec<(Key, Observation)> {
        let (source, timed_out) = (&self.source, TimedOut::default());
        let timed = subjects.into_iter().map(|subject| {
            let node = lists.found.get(&subject.key.0).map(|(place, _)| place.node.clone());
            let node = node.unwrap_or_default();
            (self.nodes.config_timeout(&node), node, subject)
        });
        let timed: Vec<_> = timed.collect();
        let observations = futures_util::stream::iter(timed).map(|(timeout, node, subject)| {
            let (timed_out, key) = (&timed_out, subject.key);
            async move {
                let unknown =
                    || Observation::Unknown(format!("node {node} does not answer any more"));
                if timed_out.contains(&node) {
                    return (key, unknown());
                }
                let observed = observe_one(source, lists, subject);
                let observed = tokio::time::timeout(timeout, observed).await.unwrap_or_else(|_| {
                    timed_out.insert(&node);
                    unknown()
                });
                (key, observed)
            }
        });
        let observations: Vec<_> = observations.buffer_unordered(AT_ONCE).collect().await;
        for node in timed_out.into_nodes() {
            self.nodes.config_timed_out(&node);
        }
        observations
    }

    /// Keeps what later hints are derived from: the known guests for the watch, the unknown ones for the moment
    /// when a node answers again.
    fn remember(&mut self, focus: &Focus<Key>, lists: &Lists, observations: &[(Key, Observation)]) {
        let (unknown, known): (Vec<_>, Vec<_>) =
            observations.iter().partition(|(_, one)| matches!(one, Observation::Unknown(_)));
        self.missed.retain(|key| !focus.covers(key));
        self.missed.extend(unknown.iter().map(|(key, _)| *key));
        let known = known.iter().map(|(key, _)| {
            let row = lists.found.get(&key.0);
            let resource = row.map(|(place, listed)| Resource {
                node: place.node.clone(),
                listed: listed.clone(),
            });
            (*key, resource)
        });
        if let Some(watch) = &mut self.watch {
            watch.observed(focus, known.collect());
        }
    }
}

/// Nodes that timed out during an observe.
#[derive(Default)]
struct TimedOut(Mutex<BTreeSet<String>>);

impl TimedOut {
    fn contains(&self, node: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    fn insert(&self, node: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned());
    }

    fn into_nodes(self) -> BTreeSet<String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl homeostat_core::Reader<Guests> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Guests>,
        see: &mut See<'_, Key, Guest>,
    ) -> Result<Moment, Failure> {
        let subjects = subjects(view);
        let mut moment = Moment::default();
        if subjects.is_empty() {
            return Ok(moment);
        }
        let lists = self.nodes.lists(&self.source.client).await.map_err(|error| error.failure())?;
        let observations = self.observe_all(&lists, subjects).await;
        self.remember(view.focus, &lists, &observations);
        for (key, observation) in observations {
            match observation {
                Observation::Absent => {}
                Observation::Unknown(why) => see(Seen::Unknown { key, why }),
                Observation::Present(present) => {
                    let Present { object, owner, facts } = *present;
                    moment.guests.insert(key, facts);
                    see(Seen::Present { key, object, owner });
                }
            }
        }
        Ok(moment)
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        let Reader { source, nodes, watch: Some(watch), missed } = self else {
            return std::future::pending().await;
        };
        loop {
            let keys = tokio::select! {
                () = nodes.recovered(&source.client) => std::mem::take(missed),
                changed = watch.changed(&source.client) => changed,
            };
            if !keys.is_empty() {
                return Ok(Hint::Keys(keys.into_iter().collect()));
            }
        }
    }
}

fn subjects(view: &View<'_, Guests>) -> Vec<Subject> {
    let declared = view.desired.iter().map(|(key, _)| *key);
    let keys: BTreeSet<Key> = declared.chain(view.records.keys().copied()).collect();
    let focused = keys.into_iter().filter(|key| view.focus.covers(key));
    focused
        .map(|key| {
            let record = view.records.get(&key).filter(|record| record.stage == Stage::Done);
            let wrote = record.map(|record| record.wrote.clone());
            Subject { key, wanted: view.desired.wanted(&key).cloned(), wrote }
        })
        .collect()
}

impl Subject {
    /// The options to observe: the declared ones; or, of a guest that is no longer declared, those that we wrote.
    fn options(&self) -> impl Iterator<Item = &String> {
        let declared = self.wanted.as_ref().map(|wanted| &wanted.options);
        let options = declared.or_else(|| self.wrote.as_ref().map(|wrote| &wrote.options));
        options.into_iter().flat_map(BTreeMap::keys)
    }

    /// A guest exists without us, so the first owner that writes to it claims it. A guest that we marked, and that
    /// has no mark, is another one with its number, or somebody removed the mark. One that is no longer declared is
    /// released, whoever owns it.
    fn owner(&self, marked: &Marked) -> Owner {
        let was_marked = self.wrote.as_ref().is_some_and(|wrote| wrote.is_marked);
        match marked {
            _ if self.wanted.is_none() => Owner::Nobody,
            Marked::Other(owner) => Owner::Foreign(format!("the owner {owner}").into()),
            Marked::Not if was_marked => {
                Owner::foreign("a guest without our mark: another one with its number, perhaps")
            }
            Marked::Not | Marked::Ours(_) => Owner::Nobody,
        }
    }
}

enum Observation {
    Absent,
    Unknown(String),
    Present(Box<Present>),
}

struct Present {
    object: Guest,
    owner: Owner,
    facts: Facts,
}

/// The configuration of a guest.
struct Config {
    options: Options,
    /// Options that take effect with the next start.
    pending: BTreeSet<String>,
}

async fn observe_one(source: &Guests, lists: &Lists, subject: Subject) -> Observation {
    let Some((place, listed)) = lists.found.get(&subject.key.0) else {
        return missing(source, lists, &subject).await;
    };
    if let Some(why) = misplaced(subject.wanted.as_ref(), place) {
        return Observation::Unknown(why);
    }
    let config = read_config(source, place, listed).await;
    match (&subject.wanted, config) {
        (None, Err(error)) => Observation::Unknown(error.to_string()),
        (_, config) => present(source, &subject, place, listed, config),
    }
}

async fn read_config(source: &Guests, place: &Place, listed: &Listed) -> Result<Config, Error> {
    let options = source.client.options(place).await?;
    let pending = match listed.run {
        Some(Run::Running) => source.client.pending(place).await?,
        _ => BTreeSet::new(),
    };
    Ok(Config { options, pending })
}

/// Whether a guest that is in no list is absent, or unknown.
async fn missing(source: &Guests, lists: &Lists, subject: &Subject) -> Observation {
    let node = subject.wanted.as_ref().and_then(|wanted| wanted.node.as_ref());
    let unanswered = match node {
        Some(node) => lists.unanswered.get_key_value(node),
        None => None,
    };
    let unanswered = unanswered.or_else(|| lists.unanswered.iter().next());
    if let Some((node, why)) = unanswered {
        return Observation::Unknown(format!("node {node} does not answer: {why}"));
    }
    match source.client.may_see(subject.key.0).await {
        Ok(true) => missing_from_nodes(source, subject.key).await,
        Ok(false) => Observation::Unknown(format!(
            "the token lacks the privilege VM.Audit on /vms/{}: it cannot see whether it is there",
            subject.key.0
        )),
        Err(error) => Observation::Unknown(error.to_string()),
    }
}

/// During a migration a guest can be missing from the lists of both nodes, but not from that of the cluster.
async fn missing_from_nodes(source: &Guests, key: Key) -> Observation {
    match source.client.resources().await {
        Ok(resources) if !resources.contains_key(&key) => Observation::Absent,
        Ok(_) => {
            Observation::Unknown("it was on no node, and the cluster knows it: it moves".to_owned())
        }
        Err(error) => Observation::Unknown(error.to_string()),
    }
}

/// Why the guest of this number is not the declared one.
fn misplaced(wanted: Option<&Wanted>, place: &Place) -> Option<String> {
    let wanted = wanted?;
    if wanted.kind != place.kind {
        let (declared, found) = (wanted.kind.word(), place.kind.word());
        return Some(format!(
            "it is declared as {declared}, and there is a {found} of this number"
        ));
    }
    let node = wanted.node.as_ref().filter(|node| **node != place.node)?;
    Some(format!(
        "it is declared on node {node}, and is on {}: without `node` it may move",
        place.node
    ))
}

fn present(
    source: &Guests,
    subject: &Subject,
    place: &Place,
    listed: &Listed,
    config: Result<Config, Error>,
) -> Observation {
    let tags = match &config {
        Ok(Config { options, .. }) => {
            normalize::tags(options.options.get("tags").map_or("", String::as_str))
        }
        Err(_) => listed.tags.clone(),
    };
    let marked = mark::read(&source.owner, place.vmid, &tags);
    let owner = subject.owner(&marked);
    let mark = match marked {
        Marked::Ours(mark) => Some(mark),
        _ => None,
    };
    let (mut options, mut pending, mut digest, mut unread) =
        (BTreeMap::new(), Vec::new(), None, None);
    match config {
        Ok(config) => {
            options = observed_options(subject, place.kind, &config.options, &tags);
            let is_pending = |option: &&String| config.pending.contains(*option);
            pending = subject.options().filter(is_pending).cloned().collect();
            digest = Some(config.options.digest);
        }
        Err(error) => unread = Some(error.to_string()),
    }
    let (kind, run, is_marked) = (place.kind, listed.run, mark.is_some());
    let object = Guest { kind, run, options, unread, is_marked };
    let (place, name) = (place.clone(), listed.name.clone());
    let facts = Facts { place, name, digest, tags, mark, pending };
    Observation::Present(Box::new(Present { object, owner, facts }))
}

/// The options of a subject, in normal form; without our mark among the tags.
fn observed_options(
    subject: &Subject,
    kind: Kind,
    read: &Options,
    tags: &BTreeSet<String>,
) -> BTreeMap<String, String> {
    let seen = subject.options().map(|option| {
        let value = match option.as_str() {
            "tags" => mark::without(tags).into_iter().collect::<Vec<_>>().join(";"),
            _ => normalize::seen(kind, option, read.options.get(option).map(String::as_str)),
        };
        (option.clone(), value)
    });
    seen.collect()
}
