//! Two ends of one wire, the other perhaps in another namespace.

#[cfg(feature = "document")]
use homeostat_document::Fields;
use homeostat_netlink::uapi::{IFLA_GROUP, IFLA_IFNAME, IFLA_NET_NS_FD, VETH_INFO_PEER};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::link::kinds::Refs;
use crate::link::kinds::options::Options;
use crate::link::model::LinkRef;
use crate::link::{IfIndex, Links};
use crate::message::put_link_name;

/// Options of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Veth {
    /// The other end.
    pub peer: LinkRef,
}

impl Options for Veth {
    /// The other end carries the group of ours too, so that nobody takes it for somebody else's; the
    /// alias, by which a link is deleted, is on our end alone.
    fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        data.nest_unmarked(VETH_INFO_PEER, |peer| {
            peer.fixed(&[0; 16]).attr_u32(IFLA_GROUP, refs.group);
            put_link_name(peer, IFLA_IFNAME, self.peer.name);
            refs.peer_netns.map(|fd| peer.attr_u32(IFLA_NET_NS_FD, fd));
        });
    }

    /// The message of a link has its other end in `IFLA_LINK`: until all links are known, it has no name.
    fn decode(_data: Attrs<'_>, _refs: &mut Refs) -> Result<Self, Malformed> {
        Ok(Veth { peer: LinkRef::here(Links::default().name(IfIndex(0))) })
    }

    #[cfg(feature = "document")]
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Veth { peer: fields.required("peer", "The other end")? })
    }
}
