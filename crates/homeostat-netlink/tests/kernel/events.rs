//! What a listener receives, what its filter keeps out, and what it says when it missed something.

use std::time::Duration;

use homeostat_netlink::uapi::{
    NLM_F_REPLACE, RTM_DELADDR, RTM_DELNEXTHOP, RTM_DELROUTE, RTM_NEWLINK, RTM_NEWROUTE,
    RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_LINK, RTNLGRP_NEXTHOP,
};
use homeostat_netlink::{
    AsyncListener, Batch, Connection, Event, Family, Filter, Group, Instruction, Listener, Options,
    Port,
};
use rustix::net::SendFlags;
use rustix::net::netlink::SocketAddrNetlink;

use crate::requests::{OURS, add_device_route, add_route, del_route, wired};

/// Long enough for a kernel that is busy, and never waited for when all is well.
const PATIENCE: Duration = Duration::from_secs(10);

fn listen(groups: &[u32], options: &Options) -> Listener {
    let groups: Vec<_> = groups.iter().copied().map(Group).collect();
    Listener::open(Family::Route, &groups, options).unwrap()
}

/// Type, flags, port and the route's protocol of everything in the queue; `None` is a loss.
fn received(listener: &mut Listener) -> Vec<Option<(u16, u16, Port, u8)>> {
    let mut events = Vec::new();
    let mut note = |event: Event<'_>| {
        events.push(match event {
            Event::Message(message) => {
                Some((message.kind, message.flags, message.port, message.payload[5]))
            }
            Event::Lost => None,
        });
    };
    while listener.receive(&mut note).unwrap() {}
    events
}

#[test]
fn k_our_own_writes_come_back_with_our_port() {
    let namespace = wired();
    let mut listener = listen(&[RTNLGRP_IPV4_ROUTE], &Options::for_events());
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    add_route(&mut batch, 0, [10, 0, 0, 9], 0);
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    namespace.ip(&["route", "add", "192.0.2.0/24", "dev", "v0"]).unwrap();
    let events = received(&mut listener);
    let ports: Vec<_> = events.iter().map(|event| event.unwrap().2).collect();
    assert_eq!(ports.len(), 2);
    assert_eq!(ports[0], connection.socket().port());
    assert!(ports[1] != ports[0] && ports[1] != Port::KERNEL, "{ports:?}");
}

#[test]
fn k_what_the_kernel_takes_along_carries_our_port_too() {
    let namespace = wired();
    namespace.ip(&["addr", "add", "10.0.0.2/24", "dev", "v0"]).unwrap();
    let mut listener = listen(&[RTNLGRP_IPV4_IFADDR], &Options::for_events());
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    let mut message = batch.message(RTM_DELADDR, 0);
    message.fixed(&[2, 24, 0, 0, 3, 0, 0, 0]);
    message.attr(homeostat_netlink::uapi::IFA_LOCAL, &[10, 0, 0, 1]);
    message.finish().unwrap();
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    let ours = connection.socket().port();
    let events = received(&mut listener);
    assert_eq!(events.len(), 2, "the primary and the secondary that went with it: {events:?}");
    assert!(
        events
            .iter()
            .all(|event| matches!(event, Some((RTM_DELADDR, _, port, _)) if *port == ours))
    );
}

#[test]
fn k_setting_our_own_link_down_comes_back_with_the_kernels_port() {
    let _namespace = wired();
    let mut listener = listen(&[RTNLGRP_LINK], &Options::for_events());
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    let mut message = batch.message(RTM_NEWLINK, 0);
    // Index 3, no flags of those that the mask names: IFF_UP.
    message.fixed(&[0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    message.finish().unwrap();
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    let events = received(&mut listener);
    assert!(events.iter().any(|event| matches!(event, Some((RTM_NEWLINK, _, Port::KERNEL, _)))));
}

#[test]
fn only_the_kernel_is_believed() {
    let namespace = wired();
    let mut listener = listen(&[RTNLGRP_IPV4_ROUTE], &Options::for_events());
    let mut forged = Batch::new();
    add_route(&mut forged, 0, [10, 0, 0, 9], 0);
    let liar = homeostat_netlink::Socket::open(Family::Route, &Options::default()).unwrap();
    let to = SocketAddrNetlink::new(listener.socket().port().0, 0);
    rustix::net::sendto(&liar, forged.bytes(), SendFlags::empty(), &to).unwrap();
    namespace.ip(&["route", "add", "192.0.2.0/24", "dev", "v0", "proto", "9"]).unwrap();
    let protocols: Vec<_> = received(&mut listener).iter().map(|event| event.unwrap().3).collect();
    assert_eq!(protocols, [9], "the forged event came first and is passed over");
}

#[test]
fn groups_beyond_the_thirty_first_are_received() {
    let namespace = wired();
    let mut listener = listen(&[RTNLGRP_NEXTHOP], &Options::for_events());
    namespace.ip(&["nexthop", "add", "id", "10", "dev", "v0"]).unwrap();
    let kinds: Vec<_> = received(&mut listener).iter().map(|event| event.unwrap().0).collect();
    assert_eq!(kinds, [homeostat_netlink::uapi::RTM_NEWNEXTHOP]);
}

#[test]
fn k_a_default_buffer_holds_256_route_events_and_the_overflow_is_said_as_lost() {
    let _namespace = wired();
    let small = Options { receive_buffer: None, ..Options::default() };
    let mut listener = listen(&[RTNLGRP_IPV4_ROUTE], &small);
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut add = |numbers: std::ops::Range<u32>| {
        let mut batch = Batch::new();
        numbers.for_each(|number| add_route(&mut batch, number, [10, 0, 0, 9], 0));
        connection.ask(&mut batch, &mut |_| {}).unwrap();
    };
    add(0..256);
    let events = received(&mut listener);
    assert!(events.len() == 256 && events.iter().all(Option::is_some), "{}", events.len());
    add(256..600);
    assert_eq!(received(&mut listener), [None], "one loss, said once, and nothing from before it");
    // After that it receives again.
    let mut batch = Batch::new();
    del_route(&mut batch, 0);
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    assert!(matches!(received(&mut listener)[..], [Some((RTM_DELROUTE, ..))]));
}

#[test]
fn after_a_loss_nothing_else_is_lost_unsaid() {
    let _namespace = wired();
    let small = Options { receive_buffer: None, ..Options::default() };
    let mut listener = listen(&[RTNLGRP_IPV4_ROUTE], &small);
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    (0..300).for_each(|number| add_route(&mut batch, number, [10, 0, 0, 9], 0));
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    let mut losses = 0;
    listener.receive(&mut |event| losses += u32::from(matches!(event, Event::Lost))).unwrap();
    assert_eq!(losses, 1);
    // This change comes after the resync that follows the loss.
    let mut batch = Batch::new();
    del_route(&mut batch, 0);
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    let events = received(&mut listener);
    let is_of_the_deletion =
        |event: &Option<(u16, u16, Port, u8)>| event.is_none_or(|(kind, ..)| kind == RTM_DELROUTE);
    assert!(
        events.iter().any(is_of_the_deletion),
        "{} events, none of them of the deleted route",
        events.len()
    );
}

#[test]
fn a_large_buffer_loses_nothing_of_ten_thousand_events() {
    let _namespace = wired();
    let mut listener = listen(&[RTNLGRP_IPV4_ROUTE], &Options::for_events());
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    (0..10_000).for_each(|number| add_route(&mut batch, number, [10, 0, 0, 9], 0));
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    let events = received(&mut listener);
    assert!(events.iter().all(Option::is_some));
    assert_eq!(events.len(), 10_000);
}

/// "Not a route message, or our protocol, or a replacement": offsets of `nlmsg_type`, `nlmsg_flags`
/// and, after the header of 16 bytes, `rtm_protocol`.
fn only_ours_and_thefts() -> Filter {
    let (new, del) = (Filter::host_u16(RTM_NEWROUTE), Filter::host_u16(RTM_DELROUTE));
    Filter::new([
        Instruction::load_u16(4),
        Instruction::if_equal(new, 1, 0),
        Instruction::if_equal(del, 0, 4),
        Instruction::load_u8(16 + 5),
        Instruction::if_equal(u32::from(OURS), 2, 0),
        Instruction::load_u16(6),
        Instruction::if_any_bit(Filter::host_u16(NLM_F_REPLACE), 0, 1),
        Instruction::keep(),
        Instruction::discard(),
    ])
}

#[test]
fn k_a_filter_keeps_foreign_churn_out_but_not_the_theft_of_our_route() {
    let namespace = wired();
    let options = Options { filter: Some(only_ours_and_thefts()), ..Options::for_events() };
    let mut listener = listen(&[RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_IFADDR], &options);
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    add_route(&mut batch, 0, [10, 0, 0, 9], 0);
    (0..100).for_each(|number| add_device_route(&mut batch, number, 3, 100));
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    namespace.ip(&["route", "replace", "20.0.0.0/24", "via", "10.0.0.8", "proto", "9"]).unwrap();
    namespace.ip(&["addr", "add", "10.5.0.1/32", "dev", "v0"]).unwrap();
    let events: Vec<_> = received(&mut listener).into_iter().map(Option::unwrap).collect();
    let seen: Vec<_> =
        events.iter().map(|(kind, flags, ..)| (*kind, flags & NLM_F_REPLACE != 0)).collect();
    let new_address = homeostat_netlink::uapi::RTM_NEWADDR;
    assert_eq!(seen, [(RTM_NEWROUTE, false), (RTM_NEWROUTE, true), (new_address, false)]);
    assert_eq!((events[0].3, events[1].3), (OURS, 9));
}

#[test]
fn a_listener_in_another_namespace_receives_its_events() {
    let namespace = wired();
    let groups = [Group(RTNLGRP_LINK)];
    let there = homeostat_netns::Netns::anonymous().unwrap();
    let mut listener =
        Listener::open_in(&there, Family::Route, &groups, &Options::for_events()).unwrap();
    namespace.ip(&["link", "set", "v1", "down"]).unwrap();
    assert!(received(&mut listener).is_empty(), "that was here");
    let mut inside = Connection::open_in(&there, Family::Route).unwrap();
    let mut batch = Batch::new();
    crate::requests::add_link(&mut batch, "x0", b"bridge");
    inside.ask(&mut batch, &mut |_| {}).unwrap();
    let mut count = 0;
    assert!(listener.receive_within(PATIENCE, &mut |_| count += 1).unwrap());
    assert!(count > 0);
}

#[test]
fn a_task_waits_for_events_without_a_thread_of_its_own() {
    let _namespace = wired();
    let listener = listen(&[RTNLGRP_IPV4_ROUTE], &Options::for_events());
    let mut connection = Connection::open(Family::Route).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut listener = AsyncListener::new(listener);
        for number in 0..3 {
            let mut surprise = |_: Event<'_>| panic!("nothing happened");
            let nothing = listener.receive(&mut surprise);
            tokio::time::timeout(Duration::ZERO, nothing).await.unwrap_err();
            let mut batch = Batch::new();
            add_route(&mut batch, number, [10, 0, 0, 9], 0);
            connection.ask(&mut batch, &mut |_| {}).unwrap();
            let mut kinds = Vec::new();
            let mut note = |event: Event<'_>| match event {
                Event::Message(message) => kinds.push(message.kind),
                Event::Lost => panic!("nothing was lost"),
            };
            let receive = listener.receive(&mut note);
            tokio::time::timeout(PATIENCE, receive).await.unwrap().unwrap();
            assert_eq!(kinds, [RTM_NEWROUTE]);
        }
    });
}

#[test]
fn a_group_that_is_joined_later_is_received_from_then_on() {
    let namespace = wired();
    let mut listener = listen(&[RTNLGRP_IPV4_ROUTE], &Options::for_events());
    namespace.ip(&["nexthop", "add", "id", "7", "via", "10.0.0.9", "dev", "v0"]).unwrap();
    listener.join(Group(RTNLGRP_NEXTHOP)).unwrap();
    namespace.ip(&["nexthop", "del", "id", "7"]).unwrap();
    let kinds: Vec<u16> = received(&mut listener).iter().map(|event| event.unwrap().0).collect();
    assert_eq!(kinds, [RTM_DELNEXTHOP]);
}
