//! Looks at the declared guests: lists first, then one configuration after the other, many at a time.
//!
//! A guest that is not in a list is absent only if its node answered and the token could have seen it; else
//! it is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use homeostat_core::{Failure, Owner, See, Seen, Stage, View};

use crate::api::{Listed, Options, Place};
use crate::client::Client;
use crate::error::Error;
use crate::mark::{self, Marked};
use crate::model::{Guest, Key, Kind, Run, Vmid, Wanted};
use crate::normalize;
use crate::source::Guests;

/// Requests that run side by side.
const AT_ONCE: usize = 16;
/// What a node gets that did not answer the last time, so that it delays its own guests only. If that was
/// too short, it gets twice as much the next time.
const SHORT: Duration = Duration::from_secs(1);

/// What an observe learned of each guest beside what is managed of it.
#[derive(Debug, Default)]
pub struct Moment {
    pub(crate) guests: BTreeMap<Key, Facts>,
}

/// What a plan for a guest depends on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) place: Place,
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
    /// Nodes that did not answer the last time, and how long they get.
    silent: BTreeMap<String, Duration>,
}

/// What the nodes say.
struct Lists {
    found: BTreeMap<Vmid, (Place, Listed)>,
    /// Nodes that said nothing, and why.
    silent: BTreeMap<String, String>,
}

/// A guest to look at.
struct Subject {
    key: Key,
    wanted: Option<Wanted>,
    /// Whether the ledger says that we marked it.
    was_marked: bool,
}

impl Reader {
    pub(crate) fn new(source: Guests) -> Self {
        Reader { source, silent: BTreeMap::new() }
    }

    async fn lists(&mut self) -> Result<Lists, Error> {
        let client = &self.source.client;
        let nodes = client.nodes().await?;
        let mut lists = Lists { found: BTreeMap::new(), silent: BTreeMap::new() };
        let asks: Vec<(String, Kind, Client)> = nodes
            .iter()
            .filter(|(_, is_online)| **is_online)
            .flat_map(|(node, _)| [Kind::Lxc, Kind::Qemu].map(|kind| (node.clone(), kind)))
            .map(|(node, kind)| {
                let patience = self.silent.get(&node).copied();
                let client = client.within(patience.unwrap_or(self.source.patience.answer));
                (node, kind, client)
            })
            .collect();
        let answers = futures_util::stream::iter(asks).map(|(node, kind, client)| async move {
            let told = client.guests(&node, kind).await;
            (node, kind, told)
        });
        let mut answers = answers.buffer_unordered(AT_ONCE);
        while let Some((node, kind, told)) = answers.next().await {
            match told {
                Ok(guests) => lists.found.extend(guests.into_iter().map(|(vmid, listed)| {
                    (vmid, (Place { node: node.clone(), kind, vmid }, listed))
                })),
                Err(error) => {
                    lists.silent.insert(node, error.to_string());
                }
            }
        }
        let offline = nodes.iter().filter(|(_, is_online)| !**is_online);
        lists.silent.extend(offline.map(|(node, _)| (node.clone(), "it is offline".to_owned())));
        drop(answers);
        let most = self.source.patience.answer;
        let silent = lists.silent.keys().map(|node| {
            let patience = longer(self.silent.get(node).copied(), most);
            (node.clone(), patience)
        });
        self.silent = silent.collect();
        Ok(lists)
    }
}

/// How long a node gets that has just been silent for so long.
fn longer(last: Option<Duration>, most: Duration) -> Duration {
    last.map_or(SHORT, |last| last * 2).min(most)
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
        let lists = self.lists().await.map_err(|error| error.failure())?;
        let (source, lists) = (&self.source, &lists);
        let looks = futures_util::stream::iter(subjects)
            .map(|subject| async move { look(source, lists, subject).await });
        let mut looks = looks.buffer_unordered(AT_ONCE);
        while let Some((key, looked)) = looks.next().await {
            match looked {
                Looked::Absent => {}
                Looked::Unknown(why) => see(Seen::Unknown { key, why }),
                Looked::Present { object, owner, facts } => {
                    moment.guests.insert(key, facts);
                    see(Seen::Present { key, object, owner });
                }
            }
        }
        Ok(moment)
    }
}

fn subjects(view: &View<'_, Guests>) -> Vec<Subject> {
    let wished = view.wish.iter().map(|(key, _)| *key);
    let keys: BTreeSet<Key> = wished.chain(view.records.keys().copied()).collect();
    let focused = keys.into_iter().filter(|key| view.focus.covers(key));
    focused
        .map(|key| {
            let record = view.records.get(&key);
            let was_marked =
                record.is_some_and(|record| record.stage == Stage::Done && record.wrote.is_marked);
            Subject { key, wanted: view.wish.wanted(&key).cloned(), was_marked }
        })
        .collect()
}

enum Looked {
    Absent,
    Unknown(String),
    Present { object: Guest, owner: Owner, facts: Facts },
}

async fn look(source: &Guests, lists: &Lists, subject: Subject) -> (Key, Looked) {
    let key = subject.key;
    let Some((place, listed)) = lists.found.get(&key.0) else {
        return (key, missing(source, lists, &subject).await);
    };
    if let Some(why) = misplaced(subject.wanted.as_ref(), place) {
        return (key, Looked::Unknown(why));
    }
    let read = source.client.options(place).await;
    if let (None, Err(error)) = (&subject.wanted, &read) {
        return (key, Looked::Unknown(error.to_string()));
    }
    let waiting = match (&read, listed.run) {
        (Ok(_), Some(Run::Running)) => source.client.pending(place).await.unwrap_or_default(),
        _ => BTreeSet::new(),
    };
    (key, present(source, &subject, Looks { place, listed, read, waiting }))
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
        Ok(true) => Looked::Absent,
        Ok(false) => Looked::Unknown(format!(
            "the token lacks the privilege VM.Audit on /vms/{}: it cannot see whether it is there",
            subject.key.0
        )),
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
    read: Result<Options, Error>,
    waiting: BTreeSet<String>,
}

fn present(source: &Guests, subject: &Subject, looks: Looks<'_>) -> Looked {
    let Looks { place, listed, read, waiting } = looks;
    let (options, digest, unread) = match read {
        Ok(Options { options, digest }) => (Some(options), Some(digest), None),
        Err(error) => (None, None, Some(error.to_string())),
    };
    let tags = match &options {
        Some(options) => normalize::tags(options.get("tags").map_or("", String::as_str)),
        None => listed.tags.clone(),
    };
    let marked = mark::read(&source.owner, place.vmid, &tags);
    let owner = owner(&marked, subject.was_marked);
    let mark = match marked {
        Marked::Ours(mark) => Some(mark),
        _ => None,
    };
    let declared = subject.wanted.as_ref().map(|wanted| &wanted.options).into_iter().flatten();
    let options = options.unwrap_or_default();
    let seen = declared.clone().map(|(option, _)| {
        let value = match option.as_str() {
            "tags" => mark::without(&tags).into_iter().collect::<Vec<_>>().join(";"),
            _ => normalize::seen(place.kind, option, options.get(option).map(String::as_str)),
        };
        (option.clone(), value)
    });
    let seen = if unread.is_none() { seen.collect() } else { BTreeMap::new() };
    let waits = declared.map(|(option, _)| option).filter(|option| waiting.contains(*option));
    let waits = waits.cloned().collect();
    let is_marked = mark.is_some();
    let object = Guest { kind: place.kind, run: listed.run, options: seen, unread, is_marked };
    let facts = Facts { place: place.clone(), digest, tags, mark, waits };
    Looked::Present { object, owner, facts }
}

/// A guest is a thing that exists without us: whoever writes it first claims it. One that we marked, and
/// that carries no mark, is another guest with its number, or somebody took the mark off.
fn owner(marked: &Marked, was_marked: bool) -> Owner {
    match marked {
        Marked::Other(owner) => Owner::Foreign(format!("the owner {owner}").into()),
        Marked::Not if was_marked => {
            Owner::foreign("a guest without our mark: another one with its number, perhaps")
        }
        Marked::Not | Marked::Ours(_) => Owner::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_node_gets_little_time_at_first_and_then_more() {
        let most = Duration::from_secs(10);
        let mut last = None;
        let given: Vec<u64> = std::iter::repeat_with(|| {
            let next = longer(last, most);
            last = Some(next);
            next.as_secs()
        })
        .take(6)
        .collect();
        assert_eq!(given, [1, 2, 4, 8, 10, 10]);
    }
}
