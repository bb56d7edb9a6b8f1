//! The document and the source read keys of knobs in one way, although neither knows the other.

use homeostat_document::{knob_path, link_knob_path};
use homeostat_knobs::Key;

const KEYS: [&str; 34] = [
    "",
    ".",
    "/",
    "net",
    "net.",
    ".net",
    "/net/ipv4",
    "net/ipv4/",
    "net..x",
    "net//x",
    "net.ipv4.ip_forward",
    "net/ipv4/ip_forward",
    "net.ipv4.conf.enp3s0/200.forwarding",
    "net/ipv4/conf/enp3s0.200/forwarding",
    "net/../kernel/hostname",
    "net/./x",
    "net./.x",
    "net.//.x",
    "net.ipv4\0.x",
    "net.ipv4\n.x",
    "net/\u{7f}",
    "net.ipv4.conf.a b.forwarding",
    "net.ipv4.\ttab",
    "net.\u{a0}.x",
    "net.ü.x",
    "ipv4/rp_filter",
    "ipv6.accept_ra",
    "ipv4/conf/rp_filter",
    "ipv4/neigh/app_solicit",
    "mpls/input",
    "mpls/conf/input",
    "ipv4/conf/eth0/rp_filter",
    "ipv4/rp filter",
    "core/x",
];

/// The path that the source makes of a key.
fn of_source(key: Result<Key, homeostat_knobs::KeyError>) -> Option<String> {
    key.ok().map(|key| key.path())
}

/// The path that the document makes of it.
fn of_document(path: Result<Vec<String>, homeostat_document::KeyError>) -> Option<String> {
    path.ok().map(|parts| parts.join("/"))
}

#[test]
fn the_document_and_the_source_agree_on_every_key() {
    for key in KEYS {
        assert_eq!(of_document(knob_path(key)), of_source(Key::sysctl(key)), "{key:?}");
    }
}

#[test]
fn the_document_and_the_source_agree_on_every_key_of_a_link() {
    for link in ["eth0", "enp3s0.200"] {
        for key in KEYS {
            let document = of_document(link_knob_path(link, key));
            assert_eq!(document, of_source(Key::link_sysctl(link, key)), "{link} {key:?}");
        }
    }
}
