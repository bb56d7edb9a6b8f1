//! What the encoder writes is byte for byte what `ip` (iproute2 6.1) sends.
//!
//! The bytes were recorded in a fresh namespace with `v0` (index 3) and `v1` (index 2), a veth pair, by
//! `strace -e trace=sendmsg -e write=3 ip ...`; sequence numbers, which `ip` takes from the clock, are left out.

use homeostat_netlink::uapi::{
    IFA_ADDRESS, IFA_BROADCAST, IFA_F_NODAD, IFA_LOCAL, IFLA_BR_FORWARD_DELAY, IFLA_IFNAME,
    IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL,
    RT_SCOPE_UNIVERSE, RTA_DST, RTA_GATEWAY, RTA_METRICS, RTA_OIF, RTA_PRIORITY, RTAX_MTU,
    RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE,
};
use homeostat_netlink::{Batch, MessageWriter};

use crate::requests::{INET, OURS, rtmsg};

const INET6: u8 = 10;
const NEW: u16 = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;

/// Writes one message and compares it with the recorded hex bytes.
fn check(kind: u16, flags: u16, write: impl FnOnce(&mut MessageWriter<'_>), recorded: &str) {
    let mut batch = Batch::new();
    let mut message = batch.message(kind, flags);
    write(&mut message);
    message.finish().unwrap();
    let recorded: Vec<u8> = recorded
        .split_whitespace()
        .map(|byte| if byte == "--" { 0 } else { u8::from_str_radix(byte, 16).unwrap() })
        .collect();
    assert_eq!(batch.bytes(), recorded);
}

#[test]
fn a_new_bridge_is_written_as_ip_writes_it() {
    // ip link add br7 type bridge forward_delay 400
    let write = |message: &mut MessageWriter<'_>| {
        message.fixed(&[0; 16]).attr_str(IFLA_IFNAME, "br7");
        message.nest_unmarked(IFLA_LINKINFO, |info| {
            info.attr(IFLA_INFO_KIND, b"bridge").nest_unmarked(IFLA_INFO_DATA, |options| {
                options.attr_u32(IFLA_BR_FORWARD_DELAY, 400);
            });
        });
    };
    let recorded = "44 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00
        00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  08 00 03 00 62 72 37 00
        1c 00 12 00 0a 00 01 00  62 72 69 64 67 65 00 00  0c 00 02 00 08 00 01 00  90 01 00 00";
    check(RTM_NEWLINK, NEW, write, recorded);
}

#[test]
fn a_link_set_down_is_written_as_ip_writes_it() {
    // ip link set v1 down
    let header = [0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let recorded = "20 00 00 00 10 00 05 00 -- -- -- -- 00 00 00 00
        00 00 00 00 02 00 00 00 00 00 00 00 01 00 00 00";
    check(RTM_NEWLINK, NLM_F_ACK, |message| _ = message.fixed(&header), recorded);
}

#[test]
fn an_address_is_written_as_ip_writes_it() {
    // ip addr add 10.0.0.1/24 dev v0 brd +
    let write = |message: &mut MessageWriter<'_>| {
        message.fixed(&[INET, 24, 0, RT_SCOPE_UNIVERSE]).fixed(&3_u32.to_ne_bytes());
        message.attr(IFA_LOCAL, &[10, 0, 0, 1]).attr(IFA_ADDRESS, &[10, 0, 0, 1]);
        message.attr(IFA_BROADCAST, &[10, 0, 0, 255]);
    };
    let recorded = "30 00 00 00 14 00 05 06 -- -- -- -- 00 00 00 00  02 18 00 00 03 00 00 00
        08 00 02 00 0a 00 00 01  08 00 01 00 0a 00 00 01  08 00 04 00 0a 00 00 ff";
    check(RTM_NEWADDR, NEW, write, recorded);
}

#[test]
fn an_ipv6_address_is_written_as_ip_writes_it() {
    // ip -6 addr add fd00::1/64 dev v0 nodad
    let addr = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let flags = u8::try_from(IFA_F_NODAD).unwrap();
    let write = |message: &mut MessageWriter<'_>| {
        message.fixed(&[INET6, 64, flags, RT_SCOPE_UNIVERSE]).fixed(&3_u32.to_ne_bytes());
        message.attr(IFA_LOCAL, &addr).attr(IFA_ADDRESS, &addr);
    };
    let recorded = "40 00 00 00 14 00 05 06 -- -- -- -- 00 00 00 00  0a 40 02 00 03 00 00 00
        14 00 02 00 fd 00 00 00  00 00 00 00 00 00 00 00  00 00 00 01 14 00 01 00
        fd 00 00 00 00 00 00 00  00 00 00 00 00 00 00 01";
    check(RTM_NEWADDR, NEW, write, recorded);
}

#[test]
fn a_route_with_metrics_is_written_as_ip_writes_it() {
    // ip route add 192.0.2.0/24 via 10.0.0.9 dev v0 proto 76 metric 7 table 100 mtu 1400
    let write = |message: &mut MessageWriter<'_>| {
        message.fixed(&rtmsg(24, 100, OURS)).attr(RTA_DST, &[192, 0, 2, 0]);
        message.attr(RTA_GATEWAY, &[10, 0, 0, 9]).attr_u32(RTA_PRIORITY, 7).attr_u32(RTA_OIF, 3);
        message.nest_unmarked(RTA_METRICS, |metrics| _ = metrics.attr_u32(RTAX_MTU, 1400));
    };
    let recorded = "48 00 00 00 18 00 05 06 -- -- -- -- 00 00 00 00
        02 18 00 00 64 4c 00 01  00 00 00 00 08 00 01 00  c0 00 02 00 08 00 05 00
        0a 00 00 09 08 00 06 00  07 00 00 00 08 00 04 00  03 00 00 00 0c 00 08 00
        08 00 02 00 78 05 00 00";
    check(RTM_NEWROUTE, NEW, write, recorded);
}
