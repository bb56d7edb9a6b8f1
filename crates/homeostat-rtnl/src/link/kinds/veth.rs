//! Two ends of one wire, the other perhaps in another namespace.

use homeostat_netlink::MessageWriter;
use homeostat_netlink::uapi::{
    IFLA_ADDRESS, IFLA_GROUP, IFLA_IFNAME, IFLA_NET_NS_FD, VETH_INFO_PEER,
};

use crate::link::kinds::Refs;
use crate::link::kinds::options::{Options, options};
use crate::link::model::LinkRef;
use crate::message::put_link_name;
use crate::neighbour::Mac;

options! {
    /// Options of a veth pair. The kernel reports the other end by its number, beside the options.
    Veth [
        peer: LinkRef = "peer", "The other end";
    ] {}
}

impl Options for Veth {
    fn peer(&self) -> Option<&LinkRef> {
        Some(&self.peer)
    }

    fn peer_mut(&mut self) -> Option<&mut LinkRef> {
        Some(&mut self.peer)
    }

    /// The other end carries the group of ours too, so that it is not taken for a foreign link; the
    /// alias, by which a link is deleted, is on our end alone.
    fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        data.nest_unmarked(VETH_INFO_PEER, |peer| {
            let [i0, i1, i2, i3] = refs.peer_number.map_or(0, |number| number.0).to_ne_bytes();
            peer.fixed(&[0, 0, 0, 0, i0, i1, i2, i3, 0, 0, 0, 0, 0, 0, 0, 0]);
            peer.attr_u32(IFLA_GROUP, refs.group);
            put_link_name(peer, IFLA_IFNAME, self.peer.name);
            refs.peer_mac.map(|Mac(mac)| peer.attr(IFLA_ADDRESS, &mac));
            refs.peer_netns.map(|fd| peer.attr_u32(IFLA_NET_NS_FD, fd));
        });
    }
}
