//! Requests that the tests send, and the namespace that they are sent in.

use homeostat_netlink::uapi::{
    IFA_ADDRESS, IFA_LOCAL, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, NLM_F_CREATE, NLM_F_EXCL,
    RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTA_DST, RTA_GATEWAY, RTA_OIF, RTM_DELADDR, RTM_DELLINK,
    RTM_DELROUTE, RTM_GETADDR, RTM_GETLINK, RTM_GETROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE,
    RTN_UNICAST, RTPROT_STATIC,
};
use homeostat_netlink::{Batch, Connection, Dumped, Family, Limits, Options, Result, Socket};
use homeostat_testkit::namespace::Namespace;

pub(crate) const INET: u8 = 2;
/// A protocol that only the tests use.
pub(crate) const OURS: u8 = 76;

/// How many small messages a default receive buffer holds: 256 on Linux 6.18, 277 on Linux 6.1, which
/// counts less memory for each.
pub(crate) const ROOM: std::ops::RangeInclusive<usize> = 256..=277;

/// A namespace of the test's own thread, with `v0` up and `10.0.0.1/24` on it.
pub(crate) fn wired() -> Namespace {
    let namespace = entered();
    for args in [
        &["link", "add", "v0", "type", "veth", "peer", "name", "v1"][..],
        &["link", "set", "v0", "up"],
        &["link", "set", "v1", "up"],
        &["addr", "add", "10.0.0.1/24", "dev", "v0"],
    ] {
        namespace.ip(args).unwrap();
    }
    namespace
}

/// An empty namespace of the test's own thread.
pub(crate) fn entered() -> Namespace {
    Namespace::enter().unwrap_or_else(|error| panic!("{error}"))
}

/// A connection with options of its own.
pub(crate) fn connect(options: &Options, limits: Limits) -> Connection {
    Connection::new(Socket::open(Family::Route, options).unwrap(), limits)
}

/// `struct rtmsg` for a unicast route to a prefix of this length.
pub(crate) fn rtmsg(prefix_len: u8, table: u32, protocol: u8) -> [u8; 12] {
    let table = u8::try_from(table).unwrap();
    [INET, prefix_len, 0, 0, table, protocol, RT_SCOPE_UNIVERSE, RTN_UNICAST, 0, 0, 0, 0]
}

/// The `number`th /24 above 20.0.0.0.
pub(crate) fn prefix(number: u32) -> [u8; 4] {
    ((20 << 24) + (number << 8)).to_be_bytes()
}

/// `ip route add PREFIX via GATEWAY protocol 76`, with more flags.
pub(crate) fn add_route(batch: &mut Batch, number: u32, gateway: [u8; 4], flags: u16) {
    let mut message = batch.message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | flags);
    message.fixed(&rtmsg(24, RT_TABLE_MAIN, OURS)).attr(RTA_DST, &prefix(number));
    message.attr(RTA_GATEWAY, &gateway);
    message.finish().unwrap();
}

/// `ip route del PREFIX protocol 76`.
pub(crate) fn del_route(batch: &mut Batch, number: u32) {
    let mut message = batch.message(RTM_DELROUTE, 0);
    message.fixed(&rtmsg(24, RT_TABLE_MAIN, OURS)).attr(RTA_DST, &prefix(number));
    message.finish().unwrap();
}

/// `ip route add PREFIX dev INDEX table TABLE`.
pub(crate) fn add_device_route(batch: &mut Batch, number: u32, index: u32, table: u32) {
    let mut message = batch.message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
    let mut header = rtmsg(24, table, RTPROT_STATIC);
    header[6] = homeostat_netlink::uapi::RT_SCOPE_LINK;
    message.fixed(&header).attr(RTA_DST, &prefix(number)).attr_u32(RTA_OIF, index);
    message.finish().unwrap();
}

/// `ip addr add 10.1.X.Y/32 dev INDEX`.
pub(crate) fn add_address(batch: &mut Batch, number: u16, index: u32) {
    let [high, low] = number.to_be_bytes();
    let mut message = batch.message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
    message.fixed(&[INET, 32, 0, RT_SCOPE_UNIVERSE]).fixed(&index.to_ne_bytes());
    message.attr(IFA_LOCAL, &[10, 1, high, low]).attr(IFA_ADDRESS, &[10, 1, high, low]);
    message.finish().unwrap();
}

/// `ip addr del 10.1.X.Y/32 dev INDEX`.
pub(crate) fn del_address(batch: &mut Batch, number: u16, index: u32) {
    let [high, low] = number.to_be_bytes();
    let mut message = batch.message(RTM_DELADDR, 0);
    message.fixed(&[INET, 32, 0, RT_SCOPE_UNIVERSE]).fixed(&index.to_ne_bytes());
    message.attr(IFA_LOCAL, &[10, 1, high, low]);
    message.finish().unwrap();
}

/// `ip link add NAME type KIND`.
pub(crate) fn add_link(batch: &mut Batch, name: &str, kind: &[u8]) {
    let mut message = batch.message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    message.fixed(&[0; 16]).attr_str(IFLA_IFNAME, name);
    message.nest(IFLA_LINKINFO, |info| _ = info.attr(IFLA_INFO_KIND, kind));
    message.finish().unwrap();
}

/// `ip link del NAME`.
pub(crate) fn del_link(batch: &mut Batch, name: &str) {
    let mut message = batch.message(RTM_DELLINK, 0);
    message.fixed(&[0; 16]).attr_str(IFLA_IFNAME, name);
    message.finish().unwrap();
}

/// A request for all links.
pub(crate) fn all_links() -> Batch {
    one(RTM_GETLINK, &[0; 16])
}

/// A request for all addresses of one family.
pub(crate) fn all_addresses(family: u8) -> Batch {
    one(RTM_GETADDR, &[family, 0, 0, 0, 0, 0, 0, 0])
}

/// A request for the routes of one family, all or only those that the header names.
pub(crate) fn routes(family: u8, table: u32, protocol: u8) -> Batch {
    let mut header = [0; 12];
    (header[0], header[4], header[5]) = (family, u8::try_from(table).unwrap(), protocol);
    one(RTM_GETROUTE, &header)
}

fn one(kind: u16, header: &[u8]) -> Batch {
    let mut batch = Batch::new();
    let mut message = batch.message(kind, 0);
    message.fixed(header);
    message.finish().unwrap();
    batch
}

/// The payloads of a whole dump.
pub(crate) fn dump(connection: &mut Connection, request: &mut Batch) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    connection.dump(request, &mut |dumped| match dumped {
        Dumped::Object(message) => found.push(message.payload.to_vec()),
        Dumped::Restart => found.clear(),
    })?;
    Ok(found)
}

/// How many routes of the tests' protocol `ip` sees.
pub(crate) fn routes_seen(namespace: &Namespace) -> usize {
    let listed = namespace.ip_json(&["route", "show", "protocol", "76"]).unwrap();
    listed.as_array().map_or(0, Vec::len)
}
