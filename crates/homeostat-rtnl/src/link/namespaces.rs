//! Other namespaces that links refer to: what our namespace calls them, and which links they have.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;

use homeostat_netlink::uapi::{NETNSA_FD, NETNSA_NSID, NLM_F_ECHO, RTM_GETLINK, RTM_GETNSID};
use homeostat_netlink::{Batch, Connection, Family, Message, Result};
use homeostat_netns::Netns;

use crate::link::message::index_and_name;
use crate::link::model::LinkRef;
use crate::link::observe::Lower;
use crate::link::{IfIndex, LinkName, Links};
use crate::observe::collect;

/// The namespaces that a source can refer to, by the names that desired states use.
pub(crate) type NamedNamespaces = Arc<BTreeMap<String, Arc<Netns>>>;

/// The other namespaces of one moment; one that is not there has no entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherNamespaces {
    namespaces: BTreeMap<String, OtherNamespace>,
}

/// Another namespace.
#[derive(Clone, Debug)]
pub(crate) struct OtherNamespace {
    pub(crate) netns: Arc<Netns>,
    /// Whether it is the source's own under another name.
    pub(crate) is_here: bool,
    nsid: Option<i32>,
    links: Links,
}

impl OtherNamespaces {
    /// Looks at the namespaces of these names. One that cannot be looked at is not there.
    pub(crate) fn look(
        names: &BTreeSet<&str>,
        namespaces: &NamedNamespaces,
        here: &Netns,
        connection: &mut Connection,
    ) -> Self {
        let known = names.iter().filter_map(|name| Some((*name, namespaces.get(*name)?)));
        let seen = known.filter_map(|(name, netns)| {
            let space = OtherNamespace::look(netns, here, connection)?;
            Some((name.to_owned(), space))
        });
        OtherNamespaces { namespaces: seen.collect() }
    }

    /// The namespaces that ours calls by some of these numbers, by them.
    pub(crate) fn numbered(
        nsids: &BTreeSet<i32>,
        namespaces: &NamedNamespaces,
        connection: &mut Connection,
    ) -> BTreeMap<i32, (String, Arc<Netns>)> {
        let all = namespaces.iter().filter(|_| !nsids.is_empty());
        let numbered = all.filter_map(|(name, netns)| {
            let nsid = nsid(netns, connection).ok()??;
            nsids.contains(&nsid).then(|| (nsid, (name.clone(), Arc::clone(netns))))
        });
        numbered.collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OtherNamespace> {
        self.namespaces.get(name)
    }

    /// The same, unless it is the source's own namespace.
    pub(crate) fn elsewhere(&self, name: &str) -> Option<&OtherNamespace> {
        self.get(name).filter(|space| !space.is_here)
    }

    /// Whether a name means the source's own namespace.
    pub(crate) fn is_here(&self, namespace: Option<&str>) -> bool {
        namespace.is_none_or(|name| self.get(name).is_some_and(|space| space.is_here))
    }

    /// The number of a link that is elsewhere.
    pub(crate) fn index(&self, link: &LinkRef) -> Option<IfIndex> {
        self.get(link.namespace.as_deref()?)?.links.index(link.name)
    }

    /// A link by number, in the words of the desired state if that means the same place.
    pub(crate) fn name(&self, lower: Lower, links: &Links, declared: Option<&LinkRef>) -> LinkRef {
        let declared = declared.and_then(|declared| declared.namespace.as_deref());
        let Some(nsid) = lower.nsid else {
            let namespace = declared.filter(|_| self.is_here(declared)).map(str::to_owned);
            return LinkRef { name: links.name(lower.index), namespace };
        };
        let is_there = |space: &OtherNamespace| !space.is_here && space.nsid == Some(nsid);
        let declared = declared.and_then(|name| self.namespaces.get_key_value(name));
        let found = declared.filter(|(_, space)| is_there(space));
        let found = found.or_else(|| self.namespaces.iter().find(|(_, space)| is_there(space)));
        if let Some((name, space)) = found {
            return LinkRef::in_namespace(space.links.name(lower.index), name.clone());
        }
        let unknown = Links::default().name(lower.index);
        LinkRef::in_namespace(unknown, format!("number {nsid}"))
    }
}

impl OtherNamespace {
    fn look(netns: &Arc<Netns>, here: &Netns, connection: &mut Connection) -> Option<Self> {
        let is_here = netns.same_as(here).ok()?;
        let nsid = nsid(netns, connection).ok()?;
        let mut there = Connection::open_in(netns, Family::Route).ok()?;
        let read = |message: &Message<'_>| {
            Ok(index_and_name(message).ok().map(|(index, name)| (name, index)))
        };
        let links = collect(&mut there, RTM_GETLINK, &[0; 16], read).ok()?.into_iter().collect();
        Some(OtherNamespace { netns: Arc::clone(netns), is_here, nsid, links })
    }

    /// Whether a link of this name is there.
    pub(crate) fn has(&self, name: LinkName) -> bool {
        self.links.index(name).is_some()
    }
}

/// What our namespace calls another one, if it has a number for it yet.
fn nsid(netns: &Netns, connection: &mut Connection) -> Result<Option<i32>> {
    let mut request = Batch::new();
    let mut message = request.message(RTM_GETNSID, NLM_F_ECHO);
    message.fixed(&[0]).attr_u32(NETNSA_FD, fd(netns));
    message.finish()?;
    let mut nsid = None;
    connection.ask(&mut request, &mut |reply| {
        let attr = reply.split::<1>().ok().and_then(|(_, attrs)| attrs.first(NETNSA_NSID).ok()?);
        nsid = attr.and_then(|attr| attr.array().ok()).map(i32::from_ne_bytes).or(nsid);
    })?;
    Ok(nsid.filter(|nsid| *nsid >= 0))
}

/// A namespace as requests name it.
pub(crate) fn fd(netns: &Netns) -> u32 {
    u32::try_from(netns.as_fd().as_raw_fd()).unwrap_or(u32::MAX)
}
