//! Looks at the declared guests: lists first, then configurations, many at a time.
//!
//! A guest that is not in a list is absent only if its node answered and the token could have seen it; else
//! it is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use futures_util::StreamExt as _;
use homeostat_core::{Failure, Focus, Hint, Owner, See, Seen, Stage, View};

use crate::api::{Listed, Options, Place, Resource};
use crate::error::Error;
use crate::hints::Watch;
use crate::mark::{self, Marked};
use crate::model::{Guest, Key, Kind, Run, Wanted};
use crate::nodes::{Habit, Lists, Nodes};
use crate::normalize;
use crate::source::Guests;

/// Configurations that are read side by side.
const AT_ONCE: usize = 16;

/// What an observe learned of each guest beside what is managed of it.
#[derive(Debug, Default)]
pub struct Moment {
    pub(crate) guests: BTreeMap<Key, Facts>,
}

/// What a plan for a guest depends on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) place: Place,
    pub(crate) name: String,
    /// Of the configuration, if it could be read.
    pub(crate) digest: Option<String>,
    pub(crate) tags: BTreeSet<String>,
    pub(crate) mark: Option<String>,
    /// Declared options that wait for a restart.
    pub(crate) waits: Vec<String>,
}

/// The eyes of the source.
#[derive(Debug)]
pub struct Reader {
    source: Guests,
    nodes: Nodes,
    /// Nothing, if nobody asks for hints.
    watch: Option<Watch>,
    /// Guests that could not be seen while a node was silent.
    missed: BTreeSet<Key>,
}

/// A guest to look at.
struct Subject {
    key: Key,
    wanted: Option<Wanted>,
    /// What we wrote, if we did.
    wrote: Option<Guest>,
}

impl Reader {
    /// A reader that is asked for hints.
    pub(crate) fn listening(source: Guests) -> Self {
        let watch = Some(Watch::new(source.patience.poll));
        let nodes = Nodes::new(Habit::Prompt, source.patience.answer);
        Reader { source, nodes, watch, missed: BTreeSet::new() }
    }

    /// A reader for looks alone.
    pub(crate) fn deaf(source: Guests) -> Self {
        let nodes = Nodes::new(Habit::Patient, source.patience.answer);
        Reader { source, nodes, watch: None, missed: BTreeSet::new() }
    }

    /// Looks at every subject; a node that hangs in the middle of it keeps no other waiting.
    async fn looks(&mut self, lists: &Lists, subjects: Vec<Subject>) -> Vec<(Key, Looked)> {
        let (source, hung) = (&self.source, Hung::default());
        let timed = subjects.into_iter().map(|subject| {
            let node = lists.found.get(&subject.key.0).map(|(place, _)| place.node.clone());
            let node = node.unwrap_or_default();
            (self.nodes.glance(&node), node, subject)
        });
        let timed: Vec<_> = timed.collect();
        let looks = futures_util::stream::iter(timed).map(|(most, node, subject)| {
            let (hung, key) = (&hung, subject.key);
            async move {
                let told = || Looked::Unknown(format!("node {node} does not answer any more"));
                if hung.has(&node) {
                    return (key, told());
                }
                let looked = tokio::time::timeout(most, look(source, lists, subject)).await;
                (key, looked.unwrap_or_else(|_| hung.note(&node, told())))
            }
        });
        let looked: Vec<_> = looks.buffer_unordered(AT_ONCE).collect().await;
        for node in hung.into_nodes() {
            self.nodes.hung(&node);
        }
        looked
    }

    /// Remembers what to compare notices with, and what to look at when a node is back.
    fn remember(&mut self, focus: &Focus<Key>, lists: &Lists, looked: &[(Key, Looked)]) {
        let is_unknown = |looked: &Looked| matches!(looked, Looked::Unknown(_));
        self.missed.retain(|key| !focus.covers(key));
        let missed = looked.iter().filter(|(_, looked)| is_unknown(looked));
        self.missed.extend(missed.map(|(key, _)| *key));
        let known = looked.iter().filter(|(_, looked)| !is_unknown(looked)).map(|(key, _)| {
            let row = lists.found.get(&key.0);
            let resource = row.map(|(place, listed)| Resource {
                node: place.node.clone(),
                listed: listed.clone(),
            });
            (*key, resource)
        });
        if let Some(watch) = &mut self.watch {
            watch.saw(focus, known.collect());
        }
    }
}

/// Nodes that hang.
#[derive(Default)]
struct Hung(Mutex<BTreeSet<String>>);

impl Hung {
    fn has(&self, node: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    fn note(&self, node: &str, looked: Looked) -> Looked {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned());
        looked
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
        let lists = self.nodes.ask(&self.source.client).await.map_err(|error| error.failure())?;
        let looked = self.looks(&lists, subjects).await;
        self.remember(view.focus, &lists, &looked);
        for (key, looked) in looked {
            match looked {
                Looked::Absent => {}
                Looked::Unknown(why) => see(Seen::Unknown { key, why }),
                Looked::Present(present) => {
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
                () = nodes.back(&source.client) => std::mem::take(missed),
                changed = watch.changed(&source.client) => changed,
            };
            if !keys.is_empty() {
                return Ok(Hint::Keys(keys.into_iter().collect()));
            }
        }
    }
}

fn subjects(view: &View<'_, Guests>) -> Vec<Subject> {
    let wished = view.wish.iter().map(|(key, _)| *key);
    let keys: BTreeSet<Key> = wished.chain(view.records.keys().copied()).collect();
    let focused = keys.into_iter().filter(|key| view.focus.covers(key));
    focused
        .map(|key| {
            let record = view.records.get(&key).filter(|record| record.stage == Stage::Done);
            let wrote = record.map(|record| record.wrote.clone());
            Subject { key, wanted: view.wish.wanted(&key).cloned(), wrote }
        })
        .collect()
}

impl Subject {
    /// The options that matter: the declared ones, and of a guest that left the document those that we wrote.
    fn options(&self) -> impl Iterator<Item = &String> {
        let declared = self.wanted.as_ref().map(|wanted| &wanted.options);
        let options = declared.or_else(|| self.wrote.as_ref().map(|wrote| &wrote.options));
        options.into_iter().flat_map(BTreeMap::keys)
    }

    /// A guest is a thing that exists without us: whoever writes it first claims it. One that we marked,
    /// and that carries no mark, is another guest with its number, or somebody took the mark off. One that
    /// left the document is given up, whoever has it.
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

enum Looked {
    Absent,
    Unknown(String),
    Present(Box<Present>),
}

struct Present {
    object: Guest,
    owner: Owner,
    facts: Facts,
}

type Read = (Options, BTreeSet<String>);

async fn look(source: &Guests, lists: &Lists, subject: Subject) -> Looked {
    let Some((place, listed)) = lists.found.get(&subject.key.0) else {
        return missing(source, lists, &subject).await;
    };
    if let Some(why) = misplaced(subject.wanted.as_ref(), place) {
        return Looked::Unknown(why);
    }
    let read = read(source, place, listed).await;
    match (&subject.wanted, read) {
        (None, Err(error)) => Looked::Unknown(error.to_string()),
        (_, read) => present(source, &subject, Looks { place, listed, read }),
    }
}

/// The configuration of a guest, and what of it waits for a restart.
async fn read(source: &Guests, place: &Place, listed: &Listed) -> Result<Read, Error> {
    let options = source.client.options(place).await?;
    let waiting = match listed.run {
        Some(Run::Running) => source.client.pending(place).await?,
        _ => BTreeSet::new(),
    };
    Ok((options, waiting))
}

/// Why a guest that is in no list may be there all the same.
async fn missing(source: &Guests, lists: &Lists, subject: &Subject) -> Looked {
    let node = subject.wanted.as_ref().and_then(|wanted| wanted.node.as_ref());
    let silent = match node {
        Some(node) => lists.silent.get_key_value(node).or_else(|| lists.silent.iter().next()),
        None => lists.silent.iter().next(),
    };
    if let Some((node, why)) = silent {
        return Looked::Unknown(format!("node {node} does not answer: {why}"));
    }
    match source.client.may_see(subject.key.0).await {
        Ok(true) => moving(source, subject.key).await,
        Ok(false) => Looked::Unknown(format!(
            "the token lacks the privilege VM.Audit on /vms/{}: it cannot see whether it is there",
            subject.key.0
        )),
        Err(error) => Looked::Unknown(error.to_string()),
    }
}

/// A guest that moves can be missed by the lists of both nodes, but not by that of the cluster.
async fn moving(source: &Guests, key: Key) -> Looked {
    match source.client.resources().await {
        Ok(told) if !told.contains_key(&key) => Looked::Absent,
        Ok(_) => {
            Looked::Unknown("it was on no node, and the cluster knows it: it moves".to_owned())
        }
        Err(error) => Looked::Unknown(error.to_string()),
    }
}

/// Why a guest that is there is not the one that was declared.
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

struct Looks<'a> {
    place: &'a Place,
    listed: &'a Listed,
    read: Result<Read, Error>,
}

fn present(source: &Guests, subject: &Subject, looks: Looks<'_>) -> Looked {
    let Looks { place, listed, read } = looks;
    let (read, unread) = match read {
        Ok(read) => (Some(read), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let tags = match &read {
        Some((read, _)) => normalize::tags(read.options.get("tags").map_or("", String::as_str)),
        None => listed.tags.clone(),
    };
    let marked = mark::read(&source.owner, place.vmid, &tags);
    let owner = subject.owner(&marked);
    let mark = match marked {
        Marked::Ours(mark) => Some(mark),
        _ => None,
    };
    let (mut options, mut waits, mut digest) = (BTreeMap::new(), Vec::new(), None);
    if let Some((read, waiting)) = read {
        options = seen(place.kind, &read, (subject, &tags));
        waits = subject.options().filter(|option| waiting.contains(*option)).cloned().collect();
        digest = Some(read.digest);
    }
    let (kind, run, is_marked) = (place.kind, listed.run, mark.is_some());
    let object = Guest { kind, run, options, unread, is_marked };
    let (place, name) = (place.clone(), listed.name.clone());
    let facts = Facts { place, name, digest, tags, mark, waits };
    Looked::Present(Box::new(Present { object, owner, facts }))
}

/// The options that matter, in normal form; our mark is none of the tags.
fn seen(
    kind: Kind,
    read: &Options,
    (subject, tags): (&Subject, &BTreeSet<String>),
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
