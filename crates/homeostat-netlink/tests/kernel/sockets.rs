//! Where a socket lives and what it gets.

use std::thread;

use homeostat_netlink::{
    Connection, Errno, Error, Family, Filter, Instruction, Options, Port, Socket,
};
use homeostat_netns::Netns;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::requests::{all_links, dump, entered};

fn elsewhere() -> Netns {
    Netns::anonymous().unwrap_or_else(|error| panic!("no namespace for this test: {error}"))
}

#[test]
fn a_socket_is_opened_in_another_namespace_and_sees_its_links() {
    let here = entered();
    here.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]).unwrap();
    let links = |netns: &Netns| {
        let mut connection = Connection::open_in(netns, Family::Route).unwrap();
        dump(&mut connection, &mut all_links()).unwrap().len()
    };
    assert_eq!(links(&elsewhere()), 1, "its loopback");
    assert_eq!(links(here.netns()), 3);
}

#[test]
fn k_an_open_socket_keeps_a_deleted_namespace_alive() {
    let there = elsewhere();
    let mut connection = Connection::open_in(&there, Family::Route).unwrap();
    drop(there);
    let links = dump(&mut connection, &mut all_links()).unwrap();
    assert_eq!(links.len(), 1, "its loopback");
}

#[test]
fn each_socket_has_a_port_of_its_own() {
    let _namespace = entered();
    let sockets = [(); 2].map(|()| Socket::open(Family::Route, &Options::default()).unwrap());
    let ports = sockets.each_ref().map(Socket::port);
    assert!(ports[0] != ports[1] && !ports.contains(&Port::KERNEL), "{ports:?}");
}

#[test]
fn the_receive_buffer_is_forced_where_allowed_and_says_so() {
    let _namespace = entered();
    let large = Options { receive_buffer: Some(8 << 20), ..Options::default() };
    let forced = Socket::open(Family::Route, &large).unwrap().receive_buffer();
    assert!(forced.is_forced && forced.bytes >= 16 << 20, "{forced:?}: are you root on the host?");
}

#[test]
fn k_without_net_admin_over_the_host_the_buffer_stays_within_the_limit() {
    let namespace = entered();
    let netns = namespace.netns();
    // Capabilities belong to a thread, like namespaces.
    let got = thread::scope(|scope| {
        let without = scope.spawn(|| {
            netns.enter().unwrap();
            let mut own = capabilities(None).unwrap();
            own.effective.remove(CapabilitySet::NET_ADMIN);
            set_capabilities(None, own).unwrap();
            Socket::open(Family::Route, &Options::default()).map(|socket| socket.receive_buffer())
        });
        without.join().unwrap().unwrap()
    });
    assert!(!got.is_forced, "{got:?}");
}

#[test]
fn a_filter_that_the_kernel_does_not_accept_is_an_error_that_names_the_option() {
    let _namespace = entered();
    // It jumps past its own end.
    let endless = Filter::new([Instruction::if_equal(0, 9, 9), Instruction::keep()]);
    let options = Options { filter: Some(endless), ..Options::default() };
    let error = Socket::open(Family::Route, &options).unwrap_err();
    assert!(matches!(error, Error::Option { option: "SO_ATTACH_FILTER", .. }), "{error}");
    assert_eq!(error.errno(), Some(Errno::INVAL));
}

#[test]
fn a_send_larger_than_the_send_buffer_fails_and_a_larger_buffer_takes_it() {
    let _namespace = entered();
    // No message has this length, so the kernel looks at none of it.
    let bytes = vec![0; 1 << 20];
    let socket = Socket::open(Family::Route, &Options::default()).unwrap();
    assert_eq!(socket.send(&bytes).unwrap_err().errno(), Some(Errno::MSGSIZE));
    socket.make_send_room(bytes.len());
    socket.send(&bytes).unwrap();
}
