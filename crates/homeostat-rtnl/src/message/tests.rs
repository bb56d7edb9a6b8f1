//! The bytes of requests, against those that `ip` sends.

mod recorded;

use homeostat_netlink::uapi::{
    IFA_ADDRESS, IFA_CACHEINFO, IFA_LOCAL, IFA_PROTO, RT_SCOPE_NOWHERE, RTA_DST, RTA_GATEWAY,
    RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWROUTE,
};
use homeostat_netlink::{Attrs, Messages};

use super::*;
use crate::address::{self, Address, AddressKey, Lifetime};
use crate::key::Key;
use crate::route::{self, Route, RouteKey};

impl<'a> Encoder<'a> {
    /// Under our usual mark, on a kernel that keeps it, and without echoes.
    fn plain(batch: &'a mut Batch, links: &'a Links) -> Self {
        let (protocol, address_marks) = (Protocol::HOMEOSTAT, AddressMarks::Kernel);
        Encoder { batch, links, protocol, address_marks, echo: 0 }
    }
}

/// An attribute's type and bytes.
type Value = (u16, Vec<u8>);

/// The one message that `write` makes: type, flags, fixed part, attributes.
fn encoded<const FIXED: usize>(
    write: impl FnOnce(&mut Encoder<'_>) -> Encoded,
) -> (u16, u16, [u8; FIXED], Vec<Value>) {
    let (mut batch, mut links) = (Batch::new(), Links::default());
    links.insert("va".parse().unwrap(), IfIndex(7));
    let mut encoder = Encoder::plain(&mut batch, &links);
    write(&mut encoder).unwrap().unwrap();
    let message = Messages::new(batch.bytes()).next().unwrap().unwrap();
    let (fixed, attrs): (&[u8; FIXED], Attrs<'_>) = message.split().unwrap();
    let attrs = attrs.map(|attr| attr.map(|attr| (attr.kind, attr.value.to_vec())).unwrap());
    (message.kind, message.flags & !1, *fixed, attrs.collect())
}

fn route_key(text: &str) -> RouteKey {
    match text.parse() {
        Ok(Key::Route(key)) => key,
        other => panic!("{other:?}"),
    }
}

fn address_key(text: &str) -> AddressKey {
    match text.parse() {
        Ok(Key::Address(key)) => key,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_create_never_replaces_and_carries_our_mark() {
    let key = route_key("route 10.5.0.0/16 table 1000 metric 5");
    let route = Route::via([10, 0, 0, 2].into());
    let (kind, flags, fixed, attrs) =
        encoded(|e| route::message::put(e, &key, &route, Put::Create));
    assert_eq!((kind, flags), (RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL));
    assert_eq!(fixed, [2, 16, 0, 0, 252, 76, 0, 1, 0, 0, 0, 0]);
    let expected = [
        (RTA_DST, vec![10, 5, 0, 0]),
        (RTA_TABLE, 1000_u32.to_ne_bytes().to_vec()),
        (RTA_PRIORITY, 5_u32.to_ne_bytes().to_vec()),
        (RTA_GATEWAY, vec![10, 0, 0, 2]),
    ];
    assert_eq!(attrs, expected);
}

#[test]
fn a_delete_asks_for_our_own_route_on_the_way_that_was_seen() {
    let key = route_key("route 0.0.0.0/0");
    let before = Route { dev: Some("va".parse().unwrap()), ..Route::via([10, 0, 0, 2].into()) };
    let (kind, flags, fixed, attrs) = encoded(|e| route::message::delete(e, &key, &before));
    assert_eq!((kind, flags), (RTM_DELROUTE, 0));
    assert_eq!(fixed, [2, 0, 0, 0, 254, 76, RT_SCOPE_NOWHERE, 1, 0, 0, 0, 0]);
    let oif = 7_u32.to_ne_bytes().to_vec();
    assert_eq!(attrs, [(RTA_GATEWAY, vec![10, 0, 0, 2]), (RTA_OIF, oif)]);
}

#[test]
fn an_address_keeps_our_mark_when_it_is_changed() {
    let key = address_key("address 10.0.0.1 peer 10.0.0.2/32 dev va");
    let address = Address { valid: Some(Lifetime::Seconds(60)), ..Address::default() };
    let (kind, flags, fixed, attrs) = encoded(|e| address::put(e, &key, &address, Put::Replace));
    assert_eq!((kind, flags), (RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE));
    let [i0, i1, i2, i3] = 7_u32.to_ne_bytes();
    assert_eq!(fixed, [2, 32, 0, 0, i0, i1, i2, i3]);
    let times = [u32::MAX.to_ne_bytes(), 60_u32.to_ne_bytes(), [0; 4], [0; 4]].concat();
    let expected = [
        (IFA_LOCAL, vec![10, 0, 0, 1]),
        (IFA_ADDRESS, vec![10, 0, 0, 2]),
        (IFA_PROTO, vec![76]),
        (IFA_CACHEINFO, times),
    ];
    assert_eq!(attrs, expected);
}

#[test]
fn a_link_that_is_not_there_is_named() {
    let mut batch = Batch::new();
    let links = Links::default();
    let mut encoder = Encoder::plain(&mut batch, &links);
    let key = address_key("address 10.0.0.1/24 dev va");
    let missing = address::put(&mut encoder, &key, &Address::default(), Put::Create);
    assert!(matches!(missing, Err(NoLink(link)) if link.as_str() == "va"));
    assert!(batch.is_empty());
}
