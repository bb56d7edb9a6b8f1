//! A link for the packets of IPsec policies with its number.

use homeostat_netlink::uapi::{IFLA_XFRM_IF_ID, IFLA_XFRM_LINK};
use homeostat_netlink::{Attr, Malformed, MessageWriter};

use crate::link::IfIndex;
use crate::link::kinds::Refs;
use crate::link::kinds::behaviour::{Behaviour, Occupies, OwnMac, Parent};
use crate::link::kinds::options::{OptionTable as _, Options, options};

options! {
    /// Options of an IPsec link.
    Xfrm [
        if_id: u32 = "if-id", "The number by which policies know it", ("a number of an IPsec link", 1..=u32::MAX) => IFLA_XFRM_IF_ID;
    ] {}
}

pub(crate) const BEHAVIOUR: Behaviour = Behaviour {
    parent: Parent::Required,
    mac: OwnMac::None,
    occupies: Occupies::Namespace,
    ..Behaviour::PLAIN
};

impl Options for Xfrm {
    fn check(&mut self) -> Result<(), &'static str> {
        if self.if_id == 0 { Err("an IPsec link has a number above zero") } else { Ok(()) }
    }

    fn excludes(&self, other: &Self) -> bool {
        self.if_id == other.if_id
    }

    fn module(&self) -> Option<&'static str> {
        Some("xfrm_interface")
    }

    fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        self.put_attrs(data);
        refs.parent.map(|IfIndex(index)| data.attr_u32(IFLA_XFRM_LINK, index));
    }

    fn decode_attr(&mut self, attr: &Attr<'_>, refs: &mut Refs) -> Result<(), Malformed> {
        if attr.kind == IFLA_XFRM_LINK {
            refs.parent = Some(IfIndex(attr.u32()?));
        }
        self.read_attr(attr)
    }
}
