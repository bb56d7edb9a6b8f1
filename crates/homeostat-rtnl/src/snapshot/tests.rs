//! What is sent for an object that another owner had.

use homeostat_netlink::{Batch, Messages};

use super::*;
use crate::address::AddressMarks;
use crate::number::Protocol;

fn link(name: &str) -> LinkName {
    name.parse().unwrap()
}

/// What is sent for a route that the kernel reported with these attributes.
fn sent(
    attrs: &[(u16, Vec<u8>)],
    then: &Links,
    now: &Links,
) -> Result<Vec<(u16, Vec<u8>)>, String> {
    let mut reported = Batch::new();
    let mut message = reported.message(RTM_NEWROUTE, 0);
    message.fixed(&[AF_INET, 16, 0, 0, 254, 16, 0, 1, 0x10, 0, 0, 0]);
    for (kind, value) in attrs {
        message.attr(*kind, value);
    }
    message.finish().unwrap();
    let message = Messages::new(reported.bytes()).next().unwrap().unwrap();
    let copied = Copied::of(&message, then).unwrap();
    let copied = Copied::parse(&copied.snapshot().unwrap()).unwrap();
    let mut batch = Batch::new();
    let mut encoder = Encoder {
        batch: &mut batch,
        links: now,
        protocol: Protocol(76),
        address_marks: AddressMarks::Kernel,
        echo: 0,
    };
    put_back(&mut encoder, &copied, 0).map_err(|NoLink(name)| name.to_string())?.unwrap();
    let message = Messages::new(batch.bytes()).next().unwrap().unwrap();
    let (fixed, attrs) = message.split::<12>().unwrap();
    assert_eq!(fixed[8..], [0; 4], "flags that are only reported are not sent");
    Ok(attrs.map(|attr| attr.unwrap()).map(|attr| (attr.kind, attr.value.to_vec())).collect())
}

fn way(index: u32) -> Vec<u8> {
    let mut way = vec![16, 0, 0x10, 0];
    way.extend(index.to_ne_bytes());
    way.extend([8, 0, 5, 0, 10, 0, 0, 2]);
    way
}

#[test]
fn links_get_their_present_numbers() {
    let then = Links::from_iter([(link("va"), IfIndex(3)), (link("vb"), IfIndex(4))]);
    let now = Links::from_iter([(link("va"), IfIndex(30)), (link("vb"), IfIndex(4))]);
    let ways = [way(3), way(4)].concat();
    let attrs = [(RTA_OIF, 3_u32.to_ne_bytes().to_vec()), (RTA_MULTIPATH, ways)];
    let sent = sent(&attrs, &then, &now).unwrap();
    assert_eq!(sent[0], (RTA_OIF, 30_u32.to_ne_bytes().to_vec()));
    let mut expected = [way(30), way(4)].concat();
    (expected[2], expected[18]) = (0, 0);
    assert_eq!(sent[1], (RTA_MULTIPATH, expected));
}

#[test]
fn a_link_that_is_gone_is_named() {
    let then = Links::from_iter([(link("va"), IfIndex(3))]);
    let attrs = [(RTA_OIF, 3_u32.to_ne_bytes().to_vec())];
    assert_eq!(sent(&attrs, &then, &Links::default()), Err("va".to_owned()));
}

#[test]
fn what_is_only_reported_is_not_sent() {
    let none = Links::default();
    let attrs = [(RTA_CACHEINFO, vec![0; 32]), (RTA_IIF, vec![1, 0, 0, 0])];
    assert_eq!(sent(&attrs, &none, &none).unwrap(), []);
}

#[test]
fn the_ways_of_a_nexthop_object_are_not_sent_with_it() {
    let none = Links::default();
    let (id, gateway) = (vec![7, 0, 0, 0], vec![10, 0, 0, 2]);
    let attrs = [(RTA_GATEWAY, gateway), (RTA_NH_ID, id.clone())];
    assert_eq!(sent(&attrs, &none, &none).unwrap(), [(RTA_NH_ID, id)]);
}

#[test]
fn time_runs_down_and_for_ever_stays() {
    assert_eq!(time_left(600, 10), 590);
    assert_eq!(time_left(600, 601), 0);
    assert_eq!(time_left(u32::MAX, 601), u32::MAX);
}

proptest::proptest! {
    #[test]
    fn no_report_can_panic(payload in proptest::collection::vec(proptest::num::u8::ANY, 0..120)) {
        for kind in [RTM_NEWROUTE, RTM_NEWADDR, RTM_NEWRULE, RTM_NEWNEIGH, RTM_NEWNEXTHOP] {
            let port = homeostat_netlink::Port::KERNEL;
            let message = Message { kind, flags: 0, seq: 0, port, payload: &payload };
            if let Ok(copied) = Copied::of(&message, &Links::default()) {
                let _ = (copied.is_over(), copied.now(&Links::default()));
            }
        }
    }
}
