//! What a WireGuard link is made of beside the link: its key, its port and its peers, by generic netlink. The kernel
//! announces no change of it, so that drift is found by looks at everything.

pub(crate) mod keys;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use homeostat_core::{Failure, Retry};
use homeostat_netlink::uapi::{
    WG_CMD_GET_DEVICE, WG_CMD_SET_DEVICE, WGALLOWEDIP_A_CIDR_MASK, WGALLOWEDIP_A_FAMILY,
    WGALLOWEDIP_A_IPADDR, WGDEVICE_A_FWMARK, WGDEVICE_A_IFINDEX, WGDEVICE_A_LISTEN_PORT,
    WGDEVICE_A_PEERS, WGDEVICE_A_PRIVATE_KEY, WGPEER_A_ALLOWEDIPS, WGPEER_A_ENDPOINT,
    WGPEER_A_FLAGS, WGPEER_A_LAST_HANDSHAKE_TIME, WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL,
    WGPEER_A_PRESHARED_KEY, WGPEER_A_PUBLIC_KEY, WGPEER_F_REMOVE_ME, WGPEER_F_REPLACE_ALLOWEDIPS,
};
use homeostat_netlink::{
    Attr, Batch, Connection, Dumped, Error, Malformed, Message, MessageWriter, generic,
};

use crate::link::IfIndex;
use crate::link::kinds::wireguard::{Peer, PublicKey, Wireguard};
use crate::link::wireguard::keys::{KeySource, Secret};
use crate::message::{AF_INET, AF_INET6, put_ip, read_ip};
use crate::net::Net;

/// The name of the family.
const FAMILY: &str = "wireguard";
const VERSION: u8 = 1;

/// A device as the kernel reports it.
#[derive(Clone, Default)]
pub(crate) struct Device {
    private_key: Option<Secret>,
    listen_port: Option<u16>,
    fwmark: Option<u32>,
    peers: BTreeMap<PublicKey, SeenPeer>,
}

#[derive(Clone, Default)]
struct SeenPeer {
    preshared_key: Option<Secret>,
    endpoint: Option<SocketAddr>,
    /// Whether it was ever heard of: the kernel then follows it to wherever it speaks from.
    has_spoken: bool,
    keepalive: u16,
    allowed_ips: Vec<Net>,
}

/// Reads a device; none, if the kernel has no WireGuard, or the link is gone.
pub(crate) fn read(connection: &mut Connection, index: IfIndex) -> Result<Option<Device>, Error> {
    let Some(family) = generic::family(connection, FAMILY)? else { return Ok(None) };
    let mut request = Batch::new();
    let mut message = request.message(family, 0);
    message.fixed(&generic::head(WG_CMD_GET_DEVICE, VERSION));
    message.attr_u32(WGDEVICE_A_IFINDEX, index.0);
    message.finish()?;
    let (mut device, mut bad) = (Device::default(), None);
    connection.dump(&mut request, &mut |dumped| match dumped {
        Dumped::Restart => (device, bad) = (Device::default(), None),
        Dumped::Object(message) => {
            if let Err(error) = device.take(&message) {
                bad = Some(error);
            }
        }
    })?;
    bad.map_or(Ok(Some(device)), |bad| Err(Error::Malformed(bad)))
}

impl Device {
    /// Takes one message: a device with many peers has several, and a peer may go on in the next one.
    fn take(&mut self, message: &Message<'_>) -> Result<(), Malformed> {
        let (_, attrs) = message.split::<4>()?;
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                WGDEVICE_A_PRIVATE_KEY => self.private_key = Secret::of(attr.array()?),
                WGDEVICE_A_LISTEN_PORT => self.listen_port = Some(attr.u16()?),
                WGDEVICE_A_FWMARK => self.fwmark = Some(attr.u32()?),
                WGDEVICE_A_PEERS => {
                    for peer in attr.attrs() {
                        self.take_peer(&peer?)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take_peer(&mut self, peer: &Attr<'_>) -> Result<(), Malformed> {
        let Some(key) = peer.attrs().first(WGPEER_A_PUBLIC_KEY)? else { return Ok(()) };
        let seen = self.peers.entry(PublicKey(key.array()?)).or_default();
        for attr in peer.attrs() {
            let attr = attr?;
            match attr.kind {
                WGPEER_A_PRESHARED_KEY => seen.preshared_key = Secret::of(attr.array()?),
                WGPEER_A_ENDPOINT => seen.endpoint = endpoint(&attr),
                WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL => seen.keepalive = attr.u16()?,
                WGPEER_A_LAST_HANDSHAKE_TIME => {
                    seen.has_spoken = attr.array::<16>()?.iter().any(|byte| *byte != 0);
                }
                WGPEER_A_ALLOWEDIPS => {
                    for one in attr.attrs() {
                        seen.allowed_ips.extend(allowed_ip(&one?)?);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The device in the words of what is declared of it. `wrote` is what was written when it was last changed.
    ///
    /// A key is as declared if it is the one in the declared place, and is not shown. The endpoint of a peer that has
    /// spoken is where it spoke from: that is as declared, as long as the declaration is the one that was written.
    pub(crate) fn in_words_of(
        &self,
        declared: Option<&Wireguard>,
        wrote: Option<&Wireguard>,
    ) -> Wireguard {
        let is_in = |place: Option<KeySource<'_>>, key: Option<&Secret>| {
            let wanted = place.and_then(|place| place.read().ok());
            wanted.is_some() && wanted.as_ref() == key
        };
        let has_key = is_in(declared.and_then(Wireguard::private_key), self.private_key.as_ref());
        let own = declared.filter(|_| has_key);
        let peers = self.peers.iter().map(|(key, seen)| {
            let of = |wireguard: Option<&Wireguard>| wireguard?.peers.as_ref()?.get(key).cloned();
            let (declared, wrote) = (of(declared), of(wrote));
            let place = declared.as_ref().and_then(Peer::preshared_key);
            let has_key = is_in(place, seen.preshared_key.as_ref());
            let wanted = declared.as_ref().and_then(|declared| declared.endpoint);
            let is_written =
                wanted.is_some() && wrote.is_some_and(|wrote| wrote.endpoint == wanted);
            let roams = seen.has_spoken && is_written;
            let own = declared.filter(|_| has_key);
            let peer = Peer {
                preshared_key_file: own.as_ref().and_then(|own| own.preshared_key_file.clone()),
                preshared_key_credential: own.and_then(|own| own.preshared_key_credential),
                endpoint: if roams { wanted } else { seen.endpoint },
                keepalive: Some(seen.keepalive),
                allowed_ips: seen.allowed_ips.iter().copied().collect(),
            };
            (*key, peer)
        });
        Wireguard {
            private_key_file: own.and_then(|own| own.private_key_file.clone()),
            private_key_credential: own.and_then(|own| own.private_key_credential.clone()),
            listen_port: self.listen_port,
            fwmark: self.fwmark,
            peers: Some(peers.collect()),
        }
    }
}

fn endpoint(attr: &Attr<'_>) -> Option<SocketAddr> {
    if let Ok([_, _, p0, p1, a, b, c, d, ..]) = attr.array::<16>() {
        let port = u16::from_be_bytes([p0, p1]);
        return Some(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port));
    }
    let bytes = attr.array::<28>().ok()?;
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let flow = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
    let ip = Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?);
    let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
    Some(SocketAddrV6::new(ip, port, flow, scope).into())
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
fn socket_address(endpoint: SocketAddr) -> Vec<u8> {
    let port = endpoint.port().to_be_bytes();
    match endpoint {
        SocketAddr::V4(v4) => {
            let family = u16::from(AF_INET).to_ne_bytes();
            [&family[..], &port, &v4.ip().octets(), &[0; 8]].concat()
        }
        SocketAddr::V6(v6) => {
            let family = u16::from(AF_INET6).to_ne_bytes();
            let (flow, scope) = (v6.flowinfo().to_be_bytes(), v6.scope_id().to_ne_bytes());
            [&family[..], &port, &flow, &v6.ip().octets(), &scope].concat()
        }
    }
}

fn allowed_ip(attr: &Attr<'_>) -> Result<Option<Net>, Malformed> {
    let ip = attr.attrs().first(WGALLOWEDIP_A_IPADDR)?.map(|ip| read_ip(&ip)).transpose()?;
    let len = attr.attrs().first(WGALLOWEDIP_A_CIDR_MASK)?.map(|len| len.u8()).transpose()?;
    Ok(ip.zip(len).map(|(ip, len)| Net::masked(ip, len)))
}

/// Makes the device what is declared; what differs is written, and nothing else. Fails before the first write if a key
/// cannot be read.
pub(crate) fn configure(
    connection: &mut Connection,
    index: IfIndex,
    desired: &Wireguard,
    seen: &Wireguard,
) -> Result<(), Failure> {
    let failed = |error: &Error| crate::apply::failure(error);
    let mut batch = Batch::new();
    let family = generic::family(connection, FAMILY).map_err(|error| failed(&error))?;
    let family = family.ok_or_else(|| {
        Failure::new("the kernel has no WireGuard", Retry::OnChange).with_help("modprobe wireguard")
    })?;
    let change = Change::between(desired, seen)?;
    change.encode(&mut batch, family, index).map_err(|error| failed(&error))?;
    connection.ask(&mut batch, &mut |_| {}).map_err(|error| failed(&error))
}

/// What is written.
struct Change {
    private_key: Option<Secret>,
    listen_port: Option<u16>,
    fwmark: Option<u32>,
    peers: Vec<PeerPart>,
}

/// A peer, or a part of one with more networks than fit into a message.
struct PeerPart {
    key: PublicKey,
    flags: u32,
    preshared_key: Option<Secret>,
    endpoint: Option<SocketAddr>,
    keepalive: Option<u16>,
    allowed_ips: Vec<Net>,
}

/// A message has no more than this, in bytes: an attribute ends at 64 KiB, and all peers are one attribute.
const MOST_BYTES: usize = 32 << 10;
/// What a peer without networks takes at most, and one of its networks.
const PEER_BYTES: usize = 160;
const NET_BYTES: usize = 48;
const MOST_NETS: usize = (MOST_BYTES - PEER_BYTES) / NET_BYTES;

impl Change {
    fn between(desired: &Wireguard, seen: &Wireguard) -> Result<Self, Failure> {
        let place = desired.private_key().filter(|place| Some(*place) != seen.private_key());
        let private_key = place.map(KeySource::read).transpose()?;
        let (none, nothing) = (BTreeMap::new(), Peer::default());
        let seen_peers = seen.peers.as_ref().unwrap_or(&none);
        let declared = desired.peers.as_ref();
        let is_gone = |key: &PublicKey| declared.is_some_and(|all| !all.contains_key(key));
        let gone = seen_peers.keys().filter(|key| is_gone(key));
        let mut peers: Vec<PeerPart> = gone.map(|key| PeerPart::removal(*key)).collect();
        for (key, peer) in declared.into_iter().flatten() {
            let was = seen_peers.get(key);
            if was.is_none_or(|was| !peer.is_alike(was)) {
                let is_new = was.is_none();
                PeerPart::of(*key, peer, was.unwrap_or(&nothing), is_new, &mut peers)?;
            }
        }
        Ok(Change {
            private_key,
            listen_port: desired.listen_port.filter(|_| desired.listen_port != seen.listen_port),
            fwmark: desired.fwmark.filter(|_| desired.fwmark != seen.fwmark),
            peers,
        })
    }

    fn encode(&self, batch: &mut Batch, family: u16, index: IfIndex) -> Result<(), Error> {
        let mut message = set_device(batch, family, index);
        if let Some(key) = &self.private_key {
            message.attr(WGDEVICE_A_PRIVATE_KEY, key.bytes());
        }
        self.listen_port.map(|port| message.attr_u16(WGDEVICE_A_LISTEN_PORT, port));
        self.fwmark.map(|mark| message.attr_u32(WGDEVICE_A_FWMARK, mark));
        message.finish()?;
        let mut rest = &*self.peers;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|part| {
                bytes += part.bytes();
                bytes <= MOST_BYTES
            });
            let count = fits.count().max(1);
            let (now, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            let mut message = set_device(batch, family, index);
            message.nest(WGDEVICE_A_PEERS, |all| {
                for part in now {
                    all.nest(0, |to| part.encode(to));
                }
            });
            message.finish()?;
            rest = later;
        }
        Ok(())
    }
}

fn set_device(batch: &mut Batch, family: u16, index: IfIndex) -> MessageWriter<'_> {
    let mut message = batch.message(family, 0);
    message.fixed(&generic::head(WG_CMD_SET_DEVICE, VERSION));
    message.attr_u32(WGDEVICE_A_IFINDEX, index.0);
    message
}

impl PeerPart {
    fn removal(key: PublicKey) -> Self {
        let (preshared_key, endpoint, keepalive) = (None, None, None);
        let (flags, allowed_ips) = (WGPEER_F_REMOVE_ME, Vec::new());
        PeerPart { key, flags, preshared_key, endpoint, keepalive, allowed_ips }
    }

    /// What makes a peer what is declared; the first part replaces all networks that it had.
    fn of(
        key: PublicKey,
        peer: &Peer,
        was: &Peer,
        is_new: bool,
        parts: &mut Vec<Self>,
    ) -> Result<(), Failure> {
        let place = peer.preshared_key().filter(|place| Some(*place) != was.preshared_key());
        let replaces = is_new || peer.allowed_ips != was.allowed_ips;
        let nets: Vec<Net> = peer.allowed_ips.iter().copied().filter(|_| replaces).collect();
        let mut nets = nets.chunks(MOST_NETS);
        parts.push(PeerPart {
            key,
            flags: if replaces { WGPEER_F_REPLACE_ALLOWEDIPS } else { 0 },
            preshared_key: place.map(KeySource::read).transpose()?,
            endpoint: peer.endpoint.filter(|_| peer.endpoint != was.endpoint),
            keepalive: peer.keepalive.filter(|_| peer.keepalive != was.keepalive),
            allowed_ips: nets.next().unwrap_or_default().to_vec(),
        });
        parts.extend(nets.map(|nets| PeerPart {
            key,
            flags: 0,
            preshared_key: None,
            endpoint: None,
            keepalive: None,
            allowed_ips: nets.to_vec(),
        }));
        Ok(())
    }

    fn bytes(&self) -> usize {
        PEER_BYTES + self.allowed_ips.len() * NET_BYTES
    }

    fn encode(&self, to: &mut MessageWriter<'_>) {
        to.attr(WGPEER_A_PUBLIC_KEY, &self.key.0);
        if self.flags != 0 {
            to.attr_u32(WGPEER_A_FLAGS, self.flags);
        }
        if let Some(key) = &self.preshared_key {
            to.attr(WGPEER_A_PRESHARED_KEY, key.bytes());
        }
        self.endpoint.map(|endpoint| to.attr(WGPEER_A_ENDPOINT, &socket_address(endpoint)));
        self.keepalive.map(|time| to.attr_u16(WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL, time));
        if self.allowed_ips.is_empty() {
            return;
        }
        to.nest(WGPEER_A_ALLOWEDIPS, |all| {
            for net in &self.allowed_ips {
                all.nest(0, |one| {
                    let family = if net.addr().is_ipv4() { AF_INET } else { AF_INET6 };
                    one.attr_u16(WGALLOWEDIP_A_FAMILY, family.into());
                    put_ip(one, WGALLOWEDIP_A_IPADDR, net.addr());
                    one.attr_u8(WGALLOWEDIP_A_CIDR_MASK, net.prefix_len());
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::Messages;
    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey([number; 32])
    }

    fn with(peers: impl IntoIterator<Item = (PublicKey, Peer)>) -> Wireguard {
        Wireguard { peers: Some(peers.into_iter().collect()), ..Wireguard::default() }
    }

    fn nets(count: u32) -> Peer {
        let nets = (0..count).map(|net| Net::masked(Ipv4Addr::from(net).into(), 32));
        Peer { allowed_ips: nets.collect(), ..Peer::default() }
    }

    /// What the kernel would have after the messages of a change, if it had nothing.
    fn written(desired: &Wireguard) -> (usize, Wireguard) {
        let mut batch = Batch::new();
        let change = Change::between(desired, &Wireguard::default()).unwrap();
        change.encode(&mut batch, 40, IfIndex(7)).unwrap();
        let mut device = Device::default();
        for message in Messages::new(batch.bytes()) {
            device.take(&message.unwrap()).unwrap();
        }
        (batch.count(), device.in_words_of(Some(desired), None))
    }

    #[test]
    fn what_is_written_reads_back_whole_however_large_it_is() {
        let small = Peer {
            endpoint: Some("[2001:db8::1%7]:51820".parse().unwrap()),
            keepalive: Some(25),
            ..nets(3)
        };
        for (desired, most) in [
            (with([(key(1), small.clone())]), 2),
            (with([(key(1), nets(5000)), (key(2), small)]), 12),
            (with((0..200).map(|number| (key(number), nets(1)))), 4),
        ] {
            let (messages, seen) = written(&desired);
            let [desired, seen] = [&desired, &seen].map(|one| one.peers.clone().unwrap());
            assert!(messages <= most, "{messages} messages");
            assert_eq!(desired.len(), seen.len());
            for (key, peer) in &desired {
                assert!(peer.is_alike(&seen[key]), "{peer:?} {:?}", seen[key]);
            }
        }
    }

    #[test]
    fn a_peer_that_spoke_may_be_anywhere_until_its_endpoint_is_declared_anew() {
        let at = |text: &str| {
            let endpoint = Some(text.parse().unwrap());
            with([(key(1), Peer { endpoint, ..Peer::default() })])
        };
        let (here, there) = (at("192.0.2.1:1"), at("192.0.2.2:2"));
        let seen = |has_spoken| {
            let endpoint = Some("198.51.100.7:9".parse().unwrap());
            let peer = SeenPeer { endpoint, has_spoken, ..SeenPeer::default() };
            Device { peers: BTreeMap::from([(key(1), peer)]), ..Device::default() }
        };
        for (has_spoken, wrote, is_alike) in [
            (true, Some(&here), true),
            (false, Some(&here), false),
            (true, Some(&there), false),
            (true, None, false),
        ] {
            let shown = seen(has_spoken).in_words_of(Some(&here), wrote);
            let peer = |of: &Wireguard| of.peers.as_ref().unwrap()[&key(1)].clone();
            assert_eq!(peer(&here).is_alike(&peer(&shown)), is_alike, "{has_spoken} {wrote:?}");
        }
    }

    proptest! {
        #[test]
        fn no_message_about_a_device_can_panic(
            attrs in proptest::collection::vec((0u16..12, proptest::collection::vec(any::<u8>(), 0..40)), 0..8),
        ) {
            let mut batch = Batch::new();
            let mut message = batch.message(40, 0);
            message.fixed(&[0; 4]);
            let put = |to: &mut MessageWriter<'_>| {
                for (kind, value) in &attrs {
                    to.attr(*kind, value);
                }
            };
            put(&mut message);
            message.nest(WGDEVICE_A_PEERS, |all| {
                all.nest(0, |peer| {
                    put(peer);
                    peer.nest(WGPEER_A_ALLOWEDIPS, |all| _ = all.nest(0, put));
                });
            });
            message.finish().unwrap();
            let message = Messages::new(batch.bytes()).next().unwrap().unwrap();
            let mut device = Device::default();
            let _ = device.take(&message);
        }
    }
}
