//! A dump is whole or an error.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use homeostat_netlink::uapi::{IFLA_IFNAME, RTA_DST};
use homeostat_netlink::{Attrs, Batch, Connection, Dumped, Errno, Error, Family, Limits, Options};

use crate::requests::{
    INET, OURS, add_address, add_device_route, add_route, all_addresses, all_links, connect, dump,
    entered, routes, wired,
};

fn fill(connection: &mut Connection, count: u32) {
    let mut batch = Batch::new();
    (0..count).for_each(|number| add_route(&mut batch, number, [10, 0, 0, 9], 0));
    (0..10).for_each(|number| add_device_route(&mut batch, number, 3, 100));
    connection.ask(&mut batch, &mut |_| {}).unwrap();
}

/// The destinations among dumped routes that are the tests' own.
fn destinations(routes: &[Vec<u8>]) -> BTreeSet<[u8; 4]> {
    let ours = routes.iter().filter(|payload| payload[5] == OURS);
    ours.filter_map(|payload| Attrs::new(&payload[12..]).first(RTA_DST).unwrap())
        .map(|to| to.array().unwrap())
        .collect()
}

#[test]
fn a_large_dump_arrives_whole() {
    let _namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    fill(&mut connection, 5_000);
    let found = dump(&mut connection, &mut routes(INET, 0, 0)).unwrap();
    let expected: BTreeSet<_> = (0..5_000).map(crate::requests::prefix).collect();
    assert_eq!(destinations(&found), expected);
}

#[test]
fn k_a_strict_dump_holds_only_the_table_or_protocol_that_was_asked_for() {
    let namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    fill(&mut connection, 100);
    let of_table = dump(&mut connection, &mut routes(INET, 100, 0)).unwrap();
    assert_eq!(of_table.len(), 10);
    assert!(of_table.iter().all(|payload| payload[4] == 100));
    let of_protocol = dump(&mut connection, &mut routes(INET, 0, OURS)).unwrap();
    assert_eq!(of_protocol.len(), 100);
    let judged = namespace.ip_json(&["route", "show", "table", "100"]).unwrap();
    assert_eq!(judged.as_array().unwrap().len(), 10);
}

#[test]
fn a_refused_dump_is_an_error_with_the_kernels_words_and_the_connection_goes_on() {
    let _namespace = entered();
    let mut connection = Connection::open(Family::Route).unwrap();
    // Strict checking knows no such flags in the header.
    let mut request = Batch::new();
    let mut message = request.message(homeostat_netlink::uapi::RTM_GETLINK, 0);
    message.fixed(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    message.finish().unwrap();
    let error = dump(&mut connection, &mut request).unwrap_err();
    let Error::Refused(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.errno, Errno::INVAL);
    assert!(refusal.text.is_some(), "{refusal}");
    assert_eq!(dump(&mut connection, &mut all_links()).unwrap().len(), 1);
}

#[test]
fn s_a_dump_that_ends_with_an_error_is_that_error_and_not_an_empty_list() {
    let _namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    // Only addresses of a link that does not exist: the kernel says so in the dump's last message.
    let mut request = Batch::new();
    let mut message = request.message(homeostat_netlink::uapi::RTM_GETADDR, 0);
    message.fixed(&[INET, 0, 0, 0]).fixed(&4_000_u32.to_ne_bytes());
    message.finish().unwrap();
    let error = dump(&mut connection, &mut request).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NODEV), "{error}");
    assert!(dump(&mut connection, &mut all_addresses(INET)).unwrap().len() == 1);
}

#[test]
fn s_a_truncated_dump_is_an_error_and_never_taken_for_the_truth() {
    let _namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    fill(&mut connection, 1_000);
    let tiny = Limits { receive_bytes: 512, most_receive_bytes: 512, ..Limits::default() };
    let mut narrow = connect(&Options::default(), tiny);
    let error = dump(&mut narrow, &mut routes(INET, 0, 0)).unwrap_err();
    assert!(matches!(error, Error::Truncated { needed, room: 512 } if needed > 512), "{error}");
    // It was drained, so the next dump is not refused as busy.
    let error = dump(&mut narrow, &mut routes(INET, 0, 0)).unwrap_err();
    assert!(matches!(error, Error::Truncated { .. }), "{error}");
}

#[test]
fn a_dump_that_does_not_fit_is_asked_for_again_with_more_room() {
    let _namespace = wired();
    let growing = Limits { receive_bytes: 512, ..Limits::default() };
    let mut connection = connect(&Options::default(), growing);
    fill(&mut connection, 1_000);
    let mut restarts = 0;
    let mut found = Vec::new();
    connection
        .dump(&mut routes(INET, 0, OURS), &mut |dumped| match dumped {
            Dumped::Object(message) => found.push(message.payload.to_vec()),
            Dumped::Restart => {
                restarts += 1;
                found.clear();
            }
        })
        .unwrap();
    assert!(restarts > 0);
    assert_eq!(destinations(&found).len(), 1_000);
}

#[test]
fn asking_anew_before_the_end_is_refused_as_busy_which_is_why_dumps_are_drained() {
    let _namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    fill(&mut connection, 5_000);
    // A socket by hand, which does not read its first dump.
    let socket = homeostat_netlink::Socket::open(Family::Route, &Options::default()).unwrap();
    let mut request = routes(INET, 0, 0).bytes().to_vec();
    request[6..8].copy_from_slice(&0x301_u16.to_ne_bytes());
    socket.send(&request).unwrap();
    socket.send(&request).unwrap();
    let mut room = vec![0; 1 << 16];
    let busy = std::iter::from_fn(|| {
        rustix::net::recv(&socket, &mut room[..], rustix::net::RecvFlags::empty()).ok()?;
        let status = [room[16], room[17], room[18], room[19]];
        let is_error = room[4..6] == homeostat_netlink::uapi::NLMSG_ERROR.to_ne_bytes();
        Some((is_error, i32::from_ne_bytes(status)))
    });
    let busy: Vec<_> = busy.filter(|(is_error, _)| *is_error).collect();
    assert_eq!(busy, [(true, -Errno::BUSY.raw_os_error())]);
}

/// Dumps while another thread changes what is dumped; every dump that goes well must hold `steady`.
fn every_dump_under_churn_is_whole_or_torn(
    request: &mut Batch,
    churn: &mut Batch,
    steady: impl Fn(&[Vec<u8>]) -> usize,
    expected: usize,
) {
    let mut churner = Connection::open(Family::Route).unwrap();
    let stop = AtomicBool::new(false);
    let mut restarts = 0;
    let (mut whole, mut torn) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                churner.ask(churn, &mut |_| {}).unwrap();
            }
        });
        // A small first buffer makes one dump many receives, and so easy to tear.
        let limits = Limits { receive_bytes: 4 << 10, dump_tries: 3, ..Limits::default() };
        let mut connection = connect(&Options::default(), limits);
        for _ in 0..400 {
            let mut found = Vec::new();
            let outcome = connection.dump(request, &mut |dumped| match dumped {
                Dumped::Object(message) => found.push(message.payload.to_vec()),
                Dumped::Restart => {
                    restarts += 1;
                    found.clear();
                }
            });
            match outcome {
                Ok(()) => {
                    assert_eq!(steady(&found), expected, "a partial dump was taken for whole");
                    whole += 1;
                }
                Err(Error::Torn { tries: 3 }) => torn += 1,
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(whole + torn, 400);
    assert!(restarts > 0, "the churn tore no dump: the test shows nothing");
}

#[test]
fn s_a_dump_of_links_torn_by_changes_is_restarted_or_a_typed_error() {
    let namespace = wired();
    for number in 0..60 {
        let name = format!("b{number}");
        namespace.ip(&["link", "add", &name, "type", "bridge"]).unwrap();
    }
    let steady = |found: &[Vec<u8>]| {
        let names = found.iter().filter_map(|payload| {
            let name = Attrs::new(&payload[16..]).first(IFLA_IFNAME).unwrap()?;
            Some(name.str().unwrap().to_owned())
        });
        names.filter(|name| name.starts_with('b')).collect::<BTreeSet<_>>().len()
    };
    let mut churn = Batch::new();
    crate::requests::add_link(&mut churn, "x0", b"ifb");
    crate::requests::del_link(&mut churn, "x0");
    every_dump_under_churn_is_whole_or_torn(&mut all_links(), &mut churn, steady, 60);
}

#[test]
fn s_a_dump_of_addresses_torn_by_changes_is_restarted_or_a_typed_error() {
    let _namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    (0..1_000).for_each(|number| add_address(&mut batch, number, 3));
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    let steady = |found: &[Vec<u8>]| {
        let local = |payload: &Vec<u8>| {
            let attr = Attrs::new(&payload[8..]).first(homeostat_netlink::uapi::IFA_LOCAL);
            attr.unwrap().unwrap().array::<4>().unwrap()
        };
        found
            .iter()
            .map(local)
            .filter(|addr| addr[..2] == [10, 1] && addr[2] < 7)
            .collect::<BTreeSet<_>>()
            .len()
    };
    let mut churn = Batch::new();
    add_address(&mut churn, 2_000, 3);
    crate::requests::del_address(&mut churn, 2_000, 3);
    every_dump_under_churn_is_whole_or_torn(&mut all_addresses(INET), &mut churn, steady, 1_000);
}
