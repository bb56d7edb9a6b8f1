//! Reads the declared and the recorded sides of links, and waits for the kernel's notices. It never writes.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{Desired as _, Failure, Hint, Owner, See, Seen, Snapshot, Taken, View};
use homeostat_netlink::Error;

use crate::hints::Hints;
use crate::kernel::{Kernel, failure};
use crate::key::{Key, LinkName, Side as KeySide};
use crate::model::{Ingress, Object, Root, Side};
use crate::snapshot::Copied;
use crate::source::Qdiscs;
use crate::wire::{AT_INGRESS, PREF, ROOT, Reported};

/// What one observe learned beside the sides.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// The numbers of the links that are there.
    pub(crate) links: BTreeMap<LinkName, u32>,
    /// Filters of others that go with what is ours.
    pub(crate) filters: BTreeMap<Key, Vec<Taken>>,
    /// The links at whose ingress our filter is, wherever it leads.
    pub(crate) redirected: BTreeSet<LinkName>,
    /// Root qdiscs of others that can be made again.
    pub(crate) restorable: BTreeSet<Key>,
}

/// Reads from the kernel.
pub struct Reader {
    source: Qdiscs,
    kernel: Kernel,
    hints: Option<Hints>,
}

impl Reader {
    /// The subscription is open before the first look (law 10).
    pub(crate) fn new(source: Qdiscs) -> Result<Self, Failure> {
        let hints = Some(Hints::open(&source)?);
        Ok(Reader { hints, ..Reader::without_hints(source)? })
    }

    pub(crate) fn without_hints(source: Qdiscs) -> Result<Self, Failure> {
        let kernel = Kernel(source.connect()?);
        Ok(Reader { source, kernel, hints: None })
    }

    /// A connection that has failed is not used again.
    fn reconnect_after(&mut self, error: &Error) -> Failure {
        if let Ok(connection) = self.source.connect() {
            self.kernel = Kernel(connection);
        }
        failure(error)
    }

    fn look(
        &mut self,
        view: &View<'_, Qdiscs>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Error> {
        let known: BTreeSet<&Key> = view.desired.keys().chain(view.records.keys()).collect();
        let targets = view.desired.iter().filter_map(|(_, wanted)| match &wanted.side {
            Side::Ingress(ingress) => ingress.redirect.as_ref(),
            Side::Root(_) => None,
        });
        let names: BTreeSet<&LinkName> = known.iter().map(|key| &key.link).chain(targets).collect();
        let keys: Vec<&Key> = known.into_iter().filter(|key| view.focus.covers(key)).collect();
        let mut moment = Moment::default();
        if names.is_empty() {
            return Ok(moment);
        }
        moment.links = self.kernel.links(&names)?;
        if let Some(hints) = &mut self.hints {
            hints.set_links(names.into_iter().cloned(), &moment.links);
        }
        if keys.is_empty() {
            return Ok(moment);
        }
        let qdiscs = self.kernel.qdiscs()?;
        for key in keys {
            let Some(index) = moment.links.get(&key.link).copied() else { continue };
            let mut here = qdiscs.iter().filter(|one| one.tc.link == index);
            let seen = match key.side {
                KeySide::Root => here.find(|one| one.is_root() && !one.is_default()),
                KeySide::Ingress => here.find(|one| one.is_ingress()),
            };
            let Some(seen) = seen else { continue };
            let (side, has_mark) = match key.side {
                KeySide::Root => self.root(key, seen, &qdiscs, &mut moment)?,
                KeySide::Ingress => self.ingress(key, index, &mut moment)?,
            };
            let record = view.records.get(key);
            let is_recorded = record.is_some_and(|one| one.is_about(Some(&index.to_string())));
            let is_declared =
                view.desired.slot(key, None).is_some() || view.desired.is_default(key);
            let other = self.source.others.get(key).filter(|_| !is_recorded);
            let owner = match (has_mark, other) {
                (_, Some(owner)) => Owner::Foreign(format!("owner {owner}").into()),
                (false, None) if key.side == KeySide::Root => {
                    Owner::Foreign(format!("handle {:x}:", seen.tc.handle >> 16).into())
                }
                (false, None) if !is_recorded => Owner::foreign("another program"),
                // A link that was away, or had another name, comes back with what is ours on it. And what a crash left half
                // recorded is ours by its handle.
                (true, None) if is_declared || is_recorded => Owner::Ours,
                (_, None) => Owner::Unmarked,
            };
            let is_unrecorded = owner == Owner::Ours && !is_recorded;
            let object = Object { side, link: Some(index), is_unrecorded };
            see(Seen::Present { key: key.clone(), object, owner });
        }
        Ok(moment)
    }

    /// A root qdisc, and whether its handle is ours.
    fn root(
        &mut self,
        key: &Key,
        seen: &Reported,
        qdiscs: &[Reported],
        moment: &mut Moment,
    ) -> Result<(Side, bool), Error> {
        if seen.tc.handle != ROOT {
            if Copied::of(&mut self.kernel, seen, qdiscs)?.is_some() {
                moment.restorable.insert(key.clone());
            }
            let root = Root { qdisc: seen.qdisc()?, classes: BTreeMap::new() };
            return Ok((Side::Root(root), false));
        }
        let filters = self.kernel.filters(seen.tc.link, ROOT)?;
        note_filters(key, &filters, moment);
        Ok((Side::Root(whole(&mut self.kernel, seen, qdiscs)?), true))
    }

    /// An ingress qdisc has always the same handle, so our filter is the mark.
    fn ingress(
        &mut self,
        key: &Key,
        index: u32,
        moment: &mut Moment,
    ) -> Result<(Side, bool), Error> {
        let filters = self.kernel.filters(index, AT_INGRESS)?;
        let mut redirect = None;
        for filter in &filters {
            if let Some(to) = filter.redirects_to()? {
                moment.redirected.insert(key.link.clone());
                redirect = self.kernel.name(to)?;
            }
        }
        note_filters(key, &filters, moment);
        let has_mark = moment.redirected.contains(&key.link);
        Ok((Side::Ingress(Ingress { redirect }), has_mark))
    }

    fn copies(&mut self, keys: &BTreeSet<Key>) -> Result<BTreeMap<Key, Snapshot>, Error> {
        let names: BTreeSet<&LinkName> = keys.iter().map(|key| &key.link).collect();
        let links = self.kernel.links(&names)?;
        let qdiscs = self.kernel.qdiscs()?;
        let mut snapshots = BTreeMap::new();
        for key in keys {
            let Some(index) = links.get(&key.link) else { continue };
            let mut here = qdiscs.iter().filter(|one| one.tc.link == *index);
            let copied = match key.side {
                KeySide::Root => match here.find(|one| one.is_root() && !one.is_default()) {
                    Some(root) => Copied::of(&mut self.kernel, root, &qdiscs)?,
                    None => None,
                },
                // It stays as it is: only our filter comes and goes.
                KeySide::Ingress => {
                    snapshots.insert(key.clone(), Snapshot(String::new()));
                    continue;
                }
            };
            let snapshot = copied.and_then(|copied| copied.snapshot());
            snapshots.extend(snapshot.map(|snapshot| (key.clone(), snapshot)));
        }
        Ok(snapshots)
    }
}

/// A root with its classes and their qdiscs.
pub(crate) fn whole(
    kernel: &mut Kernel,
    seen: &Reported,
    qdiscs: &[Reported],
) -> Result<Root, Error> {
    let mut root = Root { qdisc: seen.qdisc()?, classes: BTreeMap::new() };
    if !root.qdisc.spec().is_some_and(crate::kinds::Spec::has_classes) {
        return Ok(root);
    }
    for reported in kernel.classes(seen.tc.link)? {
        if reported.tc.handle >> 16 != seen.tc.handle >> 16 {
            continue;
        }
        let Some((id, mut class)) = reported.class()? else { continue };
        let is_leaf = |one: &&Reported| {
            one.tc.link == seen.tc.link && one.tc.parent == reported.tc.handle && !one.is_default()
        };
        let leaf = qdiscs.iter().find(is_leaf);
        // In the tree of another program any qdisc of a class is a part of it; in ours those with our handles are.
        let leaf = leaf.filter(|leaf| leaf.is_ours() || seen.tc.handle != ROOT);
        class.leaf = leaf.map(Reported::qdisc).transpose()?;
        root.classes.insert(id, class);
    }
    Ok(root)
}

/// Names the filters of others.
fn note_filters(key: &Key, filters: &[Reported], moment: &mut Moment) {
    let prefs: BTreeSet<u32> = filters.iter().map(|filter| filter.tc.info >> 16).collect();
    let others = prefs.into_iter().filter(|pref| *pref != PREF || key.side == KeySide::Root);
    let taken = others.map(|pref| {
        Taken::new(format!("filter {pref} of {key}"), Owner::foreign("another program"))
    });
    let taken: Vec<Taken> = taken.collect();
    if !taken.is_empty() {
        moment.filters.insert(key.clone(), taken);
    }
}

impl homeostat_core::Reader<Qdiscs> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Qdiscs>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        self.look(view, see).map_err(|error| self.reconnect_after(&error))
    }

    async fn snapshots(
        &mut self,
        keys: &BTreeSet<Key>,
    ) -> Result<BTreeMap<Key, Snapshot>, Failure> {
        self.copies(keys).map_err(|error| self.reconnect_after(&error))
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        match &mut self.hints {
            Some(hints) => hints.next().await,
            None => std::future::pending().await,
        }
    }
}
