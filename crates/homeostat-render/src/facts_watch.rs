//! Follows the facts: links and addresses by the kernel's events, namespaces by their directory, the host's name by its
//! sysctl.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use homeostat_netlink::uapi::{
    IFA_ADDRESS, IFA_F_DADFAILED, IFA_F_TENTATIVE, IFA_FLAGS, IFA_LOCAL, IFF_UP, IFLA_ADDRESS,
    IFLA_IFNAME, IFLA_MTU, RTM_GETADDR, RTM_GETLINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR,
    RTNLGRP_LINK, ifaddrmsg, ifinfomsg,
};
use homeostat_netlink::{
    AsyncListener, Attr, Batch, Connection, Dumped, Event, Family, Group, Listener, Malformed,
    Message, Options,
};
use homeostat_netns::Netns;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::Error;
use crate::facts::{Facts, Host, Link};
use crate::sys::register_for_priority;
use crate::watch::Watch;

/// The kernel announces its changes to a poll for priority data.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// Where namespaces have their names.
const NAMESPACES: &str = "/run/netns";

/// Facts that are kept up to date. All of the host is read again with every change.
pub struct FactsWatch {
    listener: AsyncListener,
    connection: Connection,
    namespaces: Watch,
    /// Nothing where it cannot be polled.
    host_name: Option<AsyncFd<File>>,
    facts: Arc<Facts>,
}

impl FactsWatch {
    /// Reads the facts, with the links of this network namespace.
    pub fn open(netns: &Netns) -> Result<Self, Error> {
        let groups = [RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR].map(Group);
        // The subscriptions are open before the first look.
        let listener = Listener::open_in(netns, Family::Route, &groups, &Options::default())?;
        let mut watch = FactsWatch {
            listener: AsyncListener::new(listener),
            connection: Connection::open_in(netns, Family::Route)?,
            namespaces: Watch::directory(Path::new(NAMESPACES)),
            host_name: File::open(HOST_NAME).and_then(register_for_priority).ok(),
            facts: Arc::default(),
        };
        watch.namespaces.add();
        watch.facts = Arc::new(watch.read()?);
        Ok(watch)
    }

    /// The facts as they were last read.
    #[must_use]
    pub fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.facts)
    }

    /// Waits until the facts are others. Dropping the future loses nothing.
    pub async fn changed(&mut self) -> Result<Arc<Facts>, Error> {
        loop {
            let mut ignore = |_: Event<'_>| {};
            tokio::select! {
                received = self.listener.receive(&mut ignore) => received?,
                () = self.namespaces.changed(None) => self.namespaces.add(),
                () = renamed(self.host_name.as_ref()) => {}
            }
            // Events come in bursts, and one look sees what all of them announce.
            while self.listener.receive_now(&mut |_| {})? {}
            let facts = self.read()?;
            if facts != *self.facts {
                self.facts = Arc::new(facts);
                return Ok(self.facts());
            }
        }
    }

    fn read(&mut self) -> Result<Facts, Error> {
        let mut facts = Facts { host: Host::read(), ..Facts::default() };
        // A directory that cannot be read has no names for us.
        let names = homeostat_netns::names().unwrap_or_default();
        facts.namespaces = names.iter().map(|name| name.as_str().to_owned()).collect();
        let mut links = BTreeMap::new();
        dump(&mut self.connection, RTM_GETLINK, size_of::<ifinfomsg>(), &mut |dumped| {
            match dumped.map(|message| link(&message)) {
                // A link that cannot be understood has no facts.
                Some(link) => links.extend(link.unwrap_or_default()),
                None => links.clear(),
            }
        })?;
        let mut addresses = Vec::new();
        dump(
            &mut self.connection,
            RTM_GETADDR,
            size_of::<ifaddrmsg>(),
            &mut |dumped| match dumped.map(|message| address(&message)) {
                Some(address) => addresses.extend(address.unwrap_or_default()),
                None => addresses.clear(),
            },
        )?;
        for (index, address) in addresses {
            if let Some(NamedLink { link, .. }) = links.get_mut(&index) {
                link.addresses.insert(address);
            }
        }
        facts.links = links.into_values().map(|NamedLink { name, link }| (name, link)).collect();
        Ok(facts)
    }
}

impl std::fmt::Debug for FactsWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FactsWatch").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Waits until the host has another name.
async fn renamed(host_name: Option<&AsyncFd<File>>) {
    let Some(host_name) = host_name else { return std::future::pending().await };
    match host_name.ready(Interest::PRIORITY).await {
        Ok(mut ready) => ready.clear_ready(),
        Err(_) => std::future::pending().await,
    }
}

/// Calls `each` with every object of a kind; with nothing when the dump begins anew.
fn dump(
    connection: &mut Connection,
    kind: u16,
    fixed: usize,
    each: &mut dyn FnMut(Option<Message<'_>>),
) -> Result<(), Error> {
    let mut request = Batch::new();
    let mut message = request.message(kind, 0);
    message.fixed(&vec![0; fixed]);
    message.finish()?;
    connection.dump(&mut request, &mut |dumped| match dumped {
        Dumped::Restart => each(None),
        Dumped::Object(message) => each(Some(message)),
    })?;
    Ok(())
}

/// The number of a link in its namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct IfIndex(u32);

struct NamedLink {
    name: String,
    link: Link,
}

fn link(message: &Message<'_>) -> Result<Option<(IfIndex, NamedLink)>, Malformed> {
    let (fixed, attrs) = message.split::<{ size_of::<ifinfomsg>() }>()?;
    let [_, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *fixed;
    let is_up = u32::from_ne_bytes([f0, f1, f2, f3]) & IFF_UP != 0;
    let (mut name, mut link) = (None, Link { up: is_up, ..Link::default() });
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            IFLA_IFNAME => name = Some(attr.str()?.to_owned()),
            IFLA_MTU => link.mtu = attr.u32()?,
            IFLA_ADDRESS => link.mac = attr.array::<6>().ok().map(mac),
            _ => {}
        }
    }
    let index = IfIndex(u32::from_ne_bytes([i0, i1, i2, i3]));
    Ok(name.map(|name| (index, NamedLink { name, link })))
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// An address that is in use, with its link.
fn address(message: &Message<'_>) -> Result<Option<(IfIndex, String)>, Malformed> {
    let (fixed, attrs) = message.split::<{ size_of::<ifaddrmsg>() }>()?;
    let [_, length, flags, _, i0, i1, i2, i3] = *fixed;
    let (mut local, mut peer, mut flags) = (None, None, u32::from(flags));
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            IFA_LOCAL => local = ip(&attr),
            IFA_ADDRESS => peer = ip(&attr),
            IFA_FLAGS => flags = attr.u32()?,
            _ => {}
        }
    }
    let is_used = flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) == 0;
    let address = local.or(peer).filter(|_| is_used);
    let index = IfIndex(u32::from_ne_bytes([i0, i1, i2, i3]));
    Ok(address.map(|ip| (index, format!("{ip}/{length}"))))
}

fn ip(attr: &Attr<'_>) -> Option<IpAddr> {
    let v4 = attr.array::<4>().ok().map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    v4.or_else(|| attr.array::<16>().ok().map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes))))
}
