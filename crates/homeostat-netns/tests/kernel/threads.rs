//! What belongs to the thread that entered a namespace, and what does not.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;

use homeostat_netns::{Error, Netns, forget_hosts};

use crate::setting::sandbox;

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

pub(crate) fn a_thread_inside_sees_its_own_network_knobs() {
    let sandbox = sandbox();
    let other = Netns::anonymous().unwrap();
    let read = || fs::read_to_string(FORWARD).unwrap();
    let before = read();
    let wanted = if before == "0\n" { "1\n" } else { "0\n" };
    other.run(|| fs::write(FORWARD, wanted).unwrap()).unwrap();
    assert_eq!(other.run(read).unwrap(), wanted);
    assert_eq!(read(), before);
    assert_eq!(sandbox.netns().run(read).unwrap(), before);
}

pub(crate) fn a_panic_inside_leaves_the_caller_where_it_was() {
    let sandbox = sandbox();
    let other = Netns::anonymous().unwrap();
    let is_home = || Netns::current().unwrap().same_as(sandbox.netns()).unwrap();
    assert!(other.run(|| !is_home()).unwrap());
    assert!(is_home());
    let error = other.run::<()>(|| panic!("inside")).unwrap_err();
    assert!(matches!(&error, Error::Panicked { message } if message == "inside"), "{error}");
    assert!(is_home());
}

pub(crate) fn an_entered_thread_stays_inside_and_the_others_outside() {
    let sandbox = sandbox();
    let other = Netns::anonymous().unwrap();
    let inside = thread::spawn(move || {
        other.enter().unwrap();
        Netns::current().unwrap().same_as(&other).unwrap()
    });
    assert!(inside.join().unwrap());
    assert!(Netns::current().unwrap().same_as(sandbox.netns()).unwrap());
}

pub(crate) fn abstract_socket_names_are_per_network_namespace() {
    sandbox();
    let bind = || UnixDatagram::bind_addr(&SocketAddr::from_abstract_name("homeostat").unwrap());
    let held = bind().unwrap();
    assert_eq!(bind().unwrap_err().kind(), io::ErrorKind::AddrInUse);
    let other = Netns::anonymous().unwrap();
    let held_elsewhere = other.run(bind).unwrap().unwrap();
    drop((held, held_elsewhere));
}

pub(crate) fn a_thread_that_forgets_hosts_changes_nothing_for_others() {
    sandbox();
    let read =
        || ["/etc/hosts", "/etc/nsswitch.conf"].map(|file| fs::read_to_string(file).unwrap());
    let before = read();
    let inside = thread::spawn(move || {
        forget_hosts().unwrap();
        assert!(fs::exists("/proc/self/status").unwrap());
        read()
    });
    let [hosts, switch] = inside.join().unwrap();
    assert_eq!(hosts, "");
    assert_eq!(switch.matches("hosts:").count(), 1);
    assert!(switch.ends_with("\nhosts: files\n"), "{switch}");
    assert_eq!(read(), before);
}
