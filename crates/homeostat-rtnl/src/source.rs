//! The source: whose network it is, under which mark, and what ties its parts to the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{
    ChangeList, Coverage, Draft, Fails, Failure, Focus, Owner, Records, Retry, ScopeLock, Seen,
    Snapshot, Source, View,
};
use homeostat_netlink::{Connection, Family, Filter, Group, Listener, Options};
use homeostat_netns::Netns;

use crate::address::AddressMarks;
use crate::apply::Writer;
use crate::desired::DesiredState;
use crate::fdb::{self, SeenFdb};
use crate::key::Key;
use crate::link::kinds::LinkKind;
use crate::link::model::{Field, Link, Setting};
use crate::link::namespaces::NamedNamespaces;
use crate::link::sysctls::Sysctls;
use crate::link::{self, LinkName};
use crate::moment::Moment;
use crate::number::Protocol;
use crate::object::Object;
use crate::observe::{ListedObject, Reader};
use crate::plan;
use crate::snapshot::{FormerLink, FormerLinks};
use crate::step::Step;
use crate::subscription::{OwnWrites, Subscription};

/// The links, addresses, routes, nexthops, rules, neighbours and forwarding entries of one network namespace.
#[derive(Clone, Debug)]
pub struct Rtnl {
    netns: Option<Arc<Netns>>,
    pub(crate) protocol: Protocol,
    pub(crate) address_marks: AddressMarks,
    /// What its writers did, for its readers.
    pub(crate) own_writes: Arc<OwnWrites>,
    owner: Arc<str>,
    pub(crate) namespaces: NamedNamespaces,
    /// Fields of links that other owners keep, by the owner: they are foreign to us.
    pub(crate) others: Arc<BTreeMap<Key, String>>,
    /// Protocols that the owner has used before: what carries one of them has no other owner to return to.
    pub(crate) former: Arc<BTreeSet<Protocol>>,
    /// The links that a rollback makes again, as they were.
    pub(crate) former_links: Arc<FormerLinks>,
    /// Room for events, in bytes; as much as is usual, if nothing is said.
    event_buffer: Option<usize>,
    /// Whether nothing is written while a named link is absent.
    requires_links: bool,
}

impl Rtnl {
    /// Those of the calling thread's namespace, under our usual mark.
    #[must_use]
    pub fn here() -> Self {
        let (protocol, address_marks) = (Protocol::HOMEOSTAT, AddressMarks::of_this_kernel());
        let (owner, namespaces) = (Arc::from("default"), NamedNamespaces::default());
        let (own_writes, others, event_buffer) = (Arc::default(), Arc::default(), None);
        let (former, former_links) = (Arc::default(), Arc::default());
        let (netns, requires_links) = (None, false);
        Rtnl {
            netns,
            protocol,
            address_marks,
            own_writes,
            owner,
            namespaces,
            others,
            former,
            former_links,
            event_buffer,
            requires_links,
        }
    }

    /// Those of another namespace, which is kept alive by this.
    #[must_use]
    pub fn of(netns: Arc<Netns>) -> Self {
        Rtnl { netns: Some(netns), ..Self::here() }
    }

    /// The same owner in another namespace, which knows of no others.
    pub(crate) fn beside(&self, netns: Arc<Netns>) -> Self {
        let (protocol, address_marks) = (self.protocol, self.address_marks);
        let owner = Arc::clone(&self.owner);
        Rtnl { netns: Some(netns), protocol, address_marks, owner, ..Self::here() }
    }

    /// Marks what is ours with another protocol. Two owners need two.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Says where addresses carry their mark, whatever the kernel's version is.
    #[must_use]
    pub fn with_address_marks(mut self, address_marks: AddressMarks) -> Self {
        self.address_marks = address_marks;
        self
    }

    /// Marks links that are ours with the name of another owner.
    #[must_use]
    pub fn with_owner(mut self, owner: &str) -> Self {
        self.owner = owner.into();
        self
    }

    /// Adds other namespaces that links refer to, by the names that desired states use. They are kept
    /// alive by this.
    #[must_use]
    pub fn with_namespaces(mut self, namespaces: BTreeMap<String, Arc<Netns>>) -> Self {
        self.namespaces = Arc::new(namespaces);
        self
    }

    /// Says which protocols the owner has used before: what carries one of them has no other owner to return to.
    #[must_use]
    pub fn with_former_protocols(mut self, former: impl IntoIterator<Item = Protocol>) -> Self {
        self.former = Arc::new(former.into_iter().collect());
        self
    }

    /// Says which fields of links other owners keep, with the owner of each: such a field carries no mark.
    #[must_use]
    pub fn with_others(mut self, others: BTreeMap<Key, String>) -> Self {
        self.others = Arc::new(others);
        self
    }

    /// Says what links were that are to be made again as they were, by what was recorded of them.
    #[must_use]
    pub fn with_former_links<'a>(
        mut self,
        recorded: impl IntoIterator<Item = (&'a str, &'a Snapshot)>,
    ) -> Self {
        let links = recorded.into_iter().filter_map(|(key, snapshot)| match key.parse().ok()? {
            Key::Link(name) => Some((name, FormerLink::parse(snapshot)?)),
            _ => None,
        });
        self.former_links = Arc::new(links.collect());
        self
    }

    /// Writes nothing at all while a link is absent that the desired state names and does not create. Otherwise only
    /// what needs the link waits for it.
    #[must_use]
    pub fn requiring_links(mut self) -> Self {
        self.requires_links = true;
        self
    }

    /// Gives events so much room, in bytes. What does not fit is lost, and makes readers ask for a
    /// look at everything.
    #[must_use]
    pub fn with_event_buffer(mut self, bytes: usize) -> Self {
        self.event_buffer = Some(bytes);
        self
    }

    /// The owner's name in the alias of links.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// The group of links that are ours.
    pub(crate) fn group(&self) -> u32 {
        self.protocol.0.into()
    }

    /// The namespace itself.
    pub(crate) fn netns(&self) -> Result<Arc<Netns>, Failure> {
        match &self.netns {
            Some(netns) => Ok(Arc::clone(netns)),
            None => Netns::current()
                .map(Arc::new)
                .map_err(|error| Failure::from_error(&error, Retry::Soon)),
        }
    }

    /// Runs `work` in the namespace.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        let Some(netns) = &self.netns else { return Ok(work()) };
        netns.run(work).map_err(|error| Failure::from_error(&error, Retry::Soon))
    }

    /// What the named sysctls of links hold.
    pub(crate) fn sysctls(&self, keys: &BTreeSet<Key>) -> Result<Vec<(Key, Snapshot)>, Failure> {
        let sets = keys.iter().filter_map(|key| match key {
            Key::LinkSysctls(link, set) => Some((*link, *set)),
            _ => None,
        });
        let sets: Vec<_> = sets.collect();
        if sets.is_empty() {
            return Ok(Vec::new());
        }
        self.run(|| {
            let read = sets.into_iter().filter_map(|(link, set)| {
                let text = serde_json::to_string(&Sysctls::read(link, set)).ok()?;
                Some((Key::LinkSysctls(link, set), Snapshot(text)))
            });
            read.collect()
        })
    }

    pub(crate) fn connect(&self) -> Result<Connection, Failure> {
        self.connect_to(Family::Route)
    }

    pub(crate) fn connect_to(&self, family: Family) -> Result<Connection, Failure> {
        let opened = match &self.netns {
            Some(netns) => Connection::open_in(netns, family),
            None => Connection::open(family),
        };
        opened.map_err(|error| Failure::from_error(&error, Retry::Soon))
    }

    pub(crate) fn listen(&self, groups: &[Group], filter: Filter) -> Result<Listener, Failure> {
        let usual = Options::for_events();
        let receive_buffer = self.event_buffer.or(usual.receive_buffer);
        let options = Options { filter: Some(filter), receive_buffer };
        let opened = match &self.netns {
            Some(netns) => Listener::open_in(netns, Family::Route, groups, &options),
            None => Listener::open(Family::Route, groups, &options),
        };
        opened.map_err(|error| Failure::from_error(&error, Retry::Soon))
    }

    /// All objects, declared or not; what the kernel makes by itself has it as the owner.
    pub fn list(&self) -> Result<Vec<ListedObject>, Failure> {
        let mut found = Vec::new();
        let (desired, records) = (Arc::new(DesiredState::default()), Records::new());
        let view = View::new(&Focus::All, &desired, &records);
        let moment = Reader::open(self.clone(), None)?.look(&view, &mut |seen| {
            if let Seen::Present { key, object, owner } = seen {
                found.push(ListedObject { key, object, owner });
            }
        })?;
        found.extend(self.list_vlans(&found)?);
        found.extend(self.list_fdb(&moment)?);
        let ports = moment
            .table
            .values()
            .flat_map(|seen| seen.port.keys().map(|option| (seen.name, Field::Port(*option))));
        let ports = ports.filter_map(|(name, field)| {
            let object = Object::Setting(moment.setting(name, field)?.into());
            Some(ListedObject { key: Key::LinkField(name, field), object, owner: Owner::Nobody })
        });
        found.extend(ports);
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// The static entries of bridges and VXLANs.
    fn list_fdb(&self, moment: &Moment) -> Result<Vec<ListedObject>, Failure> {
        let read = fdb::read(&mut self.connect()?, None, moment.links());
        let read = read.map_err(|error| Failure::from_error(&error, Retry::Soon))?;
        let is_made = |seen: &SeenFdb| seen.nature == fdb::Nature::Static && !seen.entry.local;
        let made = read.into_iter().filter(is_made).map(|seen| ListedObject {
            key: Key::from(seen.key),
            object: Object::Fdb(seen.entry),
            owner: Owner::Unmarked,
        });
        Ok(made.collect())
    }

    /// The VLANs of bridges that filter by them, and of their ports.
    fn list_vlans(&self, found: &[ListedObject]) -> Result<Vec<ListedObject>, Failure> {
        let links = || {
            found.iter().filter_map(|one| match (&one.key, &one.object) {
                (Key::Link(name), Object::Link(link)) => Some((*name, link)),
                _ => None,
            })
        };
        let filters = |link: &Link| matches!(&link.kind, LinkKind::Bridge(bridge) if bridge.vlan_filtering == Some(true));
        let bridges = links().filter(|(_, link)| filters(link)).map(|(name, _)| name);
        let bridges: BTreeSet<LinkName> = bridges.collect();
        if bridges.is_empty() {
            return Ok(Vec::new());
        }
        let read = link::vlans::read(&mut self.connect()?, None);
        let mut read = read.map_err(|error| Failure::from_error(&error, Retry::Soon))?;
        let is_part = |name: LinkName, link: &Link| {
            bridges.contains(&name) || link.master.is_some_and(|master| bridges.contains(&master))
        };
        let parts = links().filter(|(name, link)| is_part(*name, link));
        let parts = parts.map(|(name, link)| {
            let vlans = link.incarnation.0.and_then(|index| read.remove(&index));
            let object = Object::Setting(Setting::Vlans(vlans.unwrap_or_default()).into());
            let key = Key::LinkField(name, Field::Vlans);
            ListedObject { key, object, owner: Owner::Nobody }
        });
        Ok(parts.collect())
    }
}

impl Source for Rtnl {
    const NAME: &'static str = "rtnl";
    const FAILS: Fails = Fails::Ordered;
    /// The kernel announces nothing of proxy neighbours, nor of the aliases of links that are down:
    /// these heal at the resync only. That is no reason to look at a million routes every few seconds.
    const COVERAGE: Coverage = Coverage::All;

    type Key = Key;
    type Object = Object;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Reader::open(self.clone(), Some(Subscription::open(self)?))
    }

    fn reader_without_hints(&self) -> Result<Reader, Failure> {
        Reader::open(self.clone(), None)
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Writer::open(self.clone())
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_same = |netns: &Netns, other: &Netns| netns.same_as(other).unwrap_or(false);
        let netns = match (&self.netns, &other.netns) {
            (Some(netns), Some(other)) => is_same(netns, other),
            (None, None) => true,
            _ => false,
        };
        let mut namespaces = self.namespaces.iter().zip(other.namespaces.iter());
        netns
            && self.protocol == other.protocol
            && self.address_marks == other.address_marks
            && self.owner == other.owner
            && self.others == other.others
            && self.former == other.former
            && self.former_links == other.former_links
            && self.event_buffer == other.event_buffer
            && self.requires_links == other.requires_links
            && self.namespaces.len() == other.namespaces.len()
            && namespaces.all(|(one, another)| one.0 == another.0 && is_same(one.1, another.1))
    }

    fn plan(
        &self,
        desired: &DesiredState,
        moment: &Moment,
        changes: ChangeList<Key, Object>,
    ) -> Draft<Self> {
        let mut draft = plan::draft(desired, moment, &self.former_links, changes);
        link::optional::mark_waits(&mut draft, desired);
        if self.requires_links {
            plan::wait_for_all_links(&mut draft, desired, moment);
        }
        draft
    }
}
