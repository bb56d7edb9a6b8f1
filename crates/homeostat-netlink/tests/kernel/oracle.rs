//! Real dumps, read by our decoder and by `netlink-packet-route`, must say the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use homeostat_netlink::uapi::{
    IFA_ADDRESS, IFA_LABEL, IFA_LOCAL, IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO,
    IFLA_MTU, RTA_DST, RTA_GATEWAY, RTA_METRICS, RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTAX_MTU,
};
use homeostat_netlink::{Attr, Attrs, Connection, Dumped, Family, Message, Port};
use homeostat_testkit::namespace::Namespace;
use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{LinkAttribute, LinkInfo};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMetric};

use crate::requests::{all_addresses, all_links, routes, wired};

const FAMILIES: [u8; 2] = [2, 10];

fn furnished() -> Namespace {
    let namespace = wired();
    for line in [
        "link add br0 type bridge",
        "link add vx0 mtu 1400 type vxlan id 42 dstport 4789",
        "link set v0 master br0",
        "link set v1 down",
        "link set v1 address 02:00:00:00:00:77",
        "link set v1 up",
        "addr add fd00::1/64 dev v0 nodad",
        "addr add 10.7.0.1 peer 10.7.0.2/32 dev v1",
        "route add 192.0.2.0/24 via 10.0.0.9 metric 7 proto 76 mtu 1300",
        "route add 198.51.100.0/24 dev v0 table 1000",
        "route add blackhole 203.0.113.0/24",
        "-6 route add 2001:db8::/32 via fd00::9 proto 76",
    ] {
        namespace.ip(&line.split(' ').collect::<Vec<_>>()).unwrap();
    }
    namespace
}

/// Each object of a dump, as we read it and as the oracle reads it.
fn both(
    request: &mut homeostat_netlink::Batch,
    mut each: impl FnMut(Message<'_>, RouteNetlinkMessage),
) {
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut found = Vec::new();
    connection
        .dump(request, &mut |dumped| match dumped {
            Dumped::Object(message) => found.push((message.kind, message.payload.to_vec())),
            // Duplicate address detection ends whenever it likes.
            Dumped::Restart => found.clear(),
        })
        .unwrap();
    assert!(!found.is_empty(), "an empty dump shows nothing");
    for (kind, payload) in &found {
        let message = Message { kind: *kind, flags: 0, seq: 0, port: Port::KERNEL, payload };
        each(message, oracle(&message));
    }
}

/// The oracle wants the whole message, so its header is put back in front.
fn oracle(message: &Message<'_>) -> RouteNetlinkMessage {
    let mut bytes = u32::try_from(16 + message.payload.len()).unwrap().to_ne_bytes().to_vec();
    bytes.extend(message.kind.to_ne_bytes());
    bytes.extend(message.flags.to_ne_bytes());
    bytes.extend(message.seq.to_ne_bytes());
    bytes.extend(message.port.0.to_ne_bytes());
    bytes.extend(message.payload);
    let read = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes).unwrap();
    let NetlinkPayload::InnerMessage(inner) = read.payload else { panic!("{:?}", read.header) };
    inner
}

fn ip(attr: &Attr<'_>) -> IpAddr {
    match attr.array::<4>() {
        Ok(four) => Ipv4Addr::from(four).into(),
        Err(_) => Ipv6Addr::from(attr.array::<16>().unwrap()).into(),
    }
}

fn find<'a>(attrs: &Attrs<'a>, kind: u16) -> Option<Attr<'a>> {
    attrs.clone().first(kind).unwrap()
}

#[test]
fn links_are_read_as_the_oracle_reads_them() {
    let _namespace = furnished();
    let mut kinds = Vec::new();
    both(&mut all_links(), |message, theirs| {
        let RouteNetlinkMessage::NewLink(theirs) = theirs else { panic!("{theirs:?}") };
        let (header, attrs) = message.split::<16>().unwrap();
        let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        assert_eq!(index, theirs.header.index);
        let mut compared = 0;
        for theirs in &theirs.attributes {
            match theirs {
                LinkAttribute::IfName(name) => {
                    assert_eq!(find(&attrs, IFLA_IFNAME).unwrap().str(), Ok(name.as_str()));
                }
                LinkAttribute::Mtu(mtu) => {
                    assert_eq!(find(&attrs, IFLA_MTU).unwrap().u32(), Ok(*mtu));
                }
                LinkAttribute::Address(mac) => {
                    assert_eq!(find(&attrs, IFLA_ADDRESS).unwrap().value, mac);
                }
                LinkAttribute::LinkInfo(infos) => {
                    let ours = find(&attrs, IFLA_LINKINFO).unwrap().attrs();
                    let kind = find(&ours, IFLA_INFO_KIND).unwrap();
                    let is_kind = |info: &&LinkInfo| matches!(info, LinkInfo::Kind(_));
                    let Some(LinkInfo::Kind(theirs)) = infos.iter().find(is_kind) else { panic!() };
                    assert_eq!(kind.str(), Ok(theirs.to_string().as_str()));
                    kinds.push(theirs.to_string());
                }
                _ => continue,
            }
            compared += 1;
        }
        assert!(compared >= 3, "{compared}");
        let ours = attrs.inspect(|attr| assert!(attr.is_ok())).count();
        assert!(ours >= theirs.attributes.len(), "{ours}");
    });
    kinds.sort();
    assert_eq!(kinds, ["bridge", "veth", "veth", "vxlan"]);
}

#[test]
fn addresses_are_read_as_the_oracle_reads_them() {
    let _namespace = furnished();
    for family in FAMILIES {
        both(&mut all_addresses(family), |message, theirs| {
            let RouteNetlinkMessage::NewAddress(theirs) = theirs else { panic!("{theirs:?}") };
            let (header, attrs) = message.split::<8>().unwrap();
            assert_eq!(header[1], theirs.header.prefix_len);
            let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
            assert_eq!(index, theirs.header.index);
            let mut compared = 0;
            for theirs in &theirs.attributes {
                match theirs {
                    AddressAttribute::Address(addr) => {
                        assert_eq!(ip(&find(&attrs, IFA_ADDRESS).unwrap()), *addr);
                    }
                    AddressAttribute::Local(addr) => {
                        assert_eq!(ip(&find(&attrs, IFA_LOCAL).unwrap()), *addr);
                    }
                    AddressAttribute::Label(label) => {
                        assert_eq!(find(&attrs, IFA_LABEL).unwrap().str(), Ok(label.as_str()));
                    }
                    _ => continue,
                }
                compared += 1;
            }
            assert!(compared > 0);
        });
    }
}

#[test]
fn routes_are_read_as_the_oracle_reads_them() {
    let _namespace = furnished();
    let mut compared = 0;
    for family in FAMILIES {
        both(&mut routes(family, 0, 0), |message, theirs| {
            let RouteNetlinkMessage::NewRoute(theirs) = theirs else { panic!("{theirs:?}") };
            let (header, attrs) = message.split::<12>().unwrap();
            assert_eq!(header[1], theirs.header.destination_prefix_length);
            assert_eq!(header[5], u8::from(theirs.header.protocol));
            assert_eq!(header[7], u8::from(theirs.header.kind));
            for theirs in &theirs.attributes {
                compare_route(&attrs, theirs, &mut compared);
            }
        });
    }
    assert!(compared > 30, "{compared}");
}

fn compare_route(attrs: &Attrs<'_>, theirs: &RouteAttribute, compared: &mut usize) {
    let ours = |kind| find(attrs, kind).unwrap();
    let plain = |addr: &RouteAddress| match addr {
        RouteAddress::Inet(addr) => IpAddr::from(*addr),
        RouteAddress::Inet6(addr) => IpAddr::from(*addr),
        other => panic!("{other:?}"),
    };
    match theirs {
        RouteAttribute::Destination(addr) => assert_eq!(ip(&ours(RTA_DST)), plain(addr)),
        RouteAttribute::Gateway(addr) => assert_eq!(ip(&ours(RTA_GATEWAY)), plain(addr)),
        RouteAttribute::Oif(index) => assert_eq!(ours(RTA_OIF).u32(), Ok(*index)),
        RouteAttribute::Priority(metric) => assert_eq!(ours(RTA_PRIORITY).u32(), Ok(*metric)),
        RouteAttribute::Table(table) => assert_eq!(ours(RTA_TABLE).u32(), Ok(*table)),
        RouteAttribute::Metrics(metrics) => {
            for metric in metrics {
                let RouteMetric::Mtu(mtu) = metric else { continue };
                let found = find(&ours(RTA_METRICS).attrs(), RTAX_MTU).unwrap();
                assert_eq!(found.u32(), Ok(*mtu));
            }
        }
        _ => return,
    }
    *compared += 1;
}

/// The oracle's own bytes, read by us: the other direction.
#[test]
fn what_the_oracle_writes_we_read() {
    let _namespace = furnished();
    both(&mut routes(2, 0, 0), |message, theirs| {
        let mut bytes = vec![0; theirs.buffer_len()];
        theirs.serialize(&mut bytes);
        let ours: Vec<_> =
            message.split::<12>().unwrap().1.map(|attr| attr.unwrap().kind).collect();
        let header = NetlinkHeader::default();
        let again = Message {
            kind: message.kind,
            flags: header.flags,
            seq: 0,
            port: message.port,
            payload: &bytes,
        };
        let mut back: Vec<_> =
            again.split::<12>().unwrap().1.map(|attr| attr.unwrap().kind).collect();
        back.dedup();
        assert_eq!(back, ours);
    });
}
