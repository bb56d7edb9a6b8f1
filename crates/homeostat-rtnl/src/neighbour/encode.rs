//! Writes requests for neighbours. Sends nothing.

use homeostat_netlink::uapi::{
    NDA_DST, NDA_LLADDR, NDA_PROTOCOL, NTF_PROXY, NUD_PERMANENT, RTM_DELNEIGH, RTM_NEWNEIGH,
};
use homeostat_netlink::{MessageWriter, Result};

use crate::encode::{Encoded, Encoder, NoLink, Put, ip};
use crate::family::Family;
use crate::neighbour::{Neighbour, NeighbourKey};

impl Encoder<'_> {
    /// Puts a neighbour there, for good.
    pub(crate) fn put_neighbour(
        &mut self,
        key: &NeighbourKey,
        neighbour: Neighbour,
        put: Put,
    ) -> Encoded {
        let protocol = self.protocol;
        self.neighbour((RTM_NEWNEIGH, put.flags()), key, |message| {
            message.attr_u8(NDA_PROTOCOL, protocol.0);
            ip(message, NDA_DST, key.ip());
            if let Some(mac) = neighbour.mac {
                message.attr(NDA_LLADDR, &mac.0);
            }
        })
    }

    /// Takes a neighbour away.
    pub(crate) fn delete_neighbour(&mut self, key: &NeighbourKey) -> Encoded {
        self.neighbour((RTM_DELNEIGH, 0), key, |message| ip(message, NDA_DST, key.ip()))
    }

    fn neighbour(
        &mut self,
        (kind, flags): (u16, u16),
        key: &NeighbourKey,
        rest: impl FnOnce(&mut MessageWriter<'_>),
    ) -> std::result::Result<Result<()>, NoLink> {
        let [i0, i1, i2, i3] = self.index(key.link())?.0.to_ne_bytes();
        let [s0, s1] = NUD_PERMANENT.to_ne_bytes();
        let proxy = if key.is_proxy() { NTF_PROXY } else { 0 };
        let family = Family::of(key.ip()).to_kernel();
        let mut message = self.batch.message(kind, flags);
        message.fixed(&[family, 0, 0, 0, i0, i1, i2, i3, s0, s1, proxy, 0]);
        rest(&mut message);
        Ok(message.finish())
    }
}
