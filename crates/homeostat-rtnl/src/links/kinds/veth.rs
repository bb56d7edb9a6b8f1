//! Two ends of one wire, the other perhaps in another namespace.

#[cfg(feature = "document")]
use homeostat_document::Fields;
use homeostat_netlink::MessageWriter;
use homeostat_netlink::uapi::{IFLA_GROUP, IFLA_IFNAME, IFLA_NET_NS_FD, VETH_INFO_PEER};
use serde::{Deserialize, Serialize};

use crate::link::{IfIndex, Links};
use crate::links::kinds::Refs;
use crate::links::model::LinkRef;

/// Options of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Veth {
    /// The other end.
    pub peer: LinkRef,
}

impl Veth {
    #[cfg(feature = "document")]
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Veth { peer: fields.required("peer", "The other end")? })
    }

    /// One whose other end nobody has looked for yet.
    pub(crate) fn unknown() -> Self {
        Veth { peer: LinkRef::here(Links::default().name(IfIndex(0))) }
    }

    /// The other end carries the group of ours too, so that nobody takes it for somebody else's; the
    /// alias, by which a link is deleted, is on our end alone.
    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        let name = [self.peer.name.as_str().as_bytes(), &[0]].concat();
        data.nest_unmarked(VETH_INFO_PEER, |peer| {
            peer.fixed(&[0; 16]).attr_u32(IFLA_GROUP, refs.group).attr(IFLA_IFNAME, &name);
            refs.peer_netns.map(|fd| peer.attr_u32(IFLA_NET_NS_FD, fd));
        });
    }
}
