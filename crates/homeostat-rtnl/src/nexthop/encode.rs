//! Writes requests for nexthops. Sends nothing.

use homeostat_netlink::Result;
use homeostat_netlink::uapi::{
    NHA_BLACKHOLE, NHA_GATEWAY, NHA_GROUP, NHA_ID, NHA_OIF, RTM_DELNEXTHOP, RTM_NEWNEXTHOP,
    RTNH_F_ONLINK,
};

use crate::encode::{Encoded, Encoder, Put, ip};
use crate::family::Family;
use crate::nexthop::{Member, Nexthop, NexthopId};

impl Encoder<'_> {
    /// Puts a nexthop there.
    pub(crate) fn put_nexthop(&mut self, id: NexthopId, desired: &Nexthop, put: Put) -> Encoded {
        let dev = desired.dev.map(|dev| self.index(dev)).transpose()?;
        let flags = if desired.onlink == Some(true) { RTNH_F_ONLINK } else { 0 };
        let [f0, f1, f2, f3] = flags.to_ne_bytes();
        let family = desired.family.map_or(0, Family::to_kernel);
        let mut message = self.batch.message(RTM_NEWNEXTHOP, put.flags());
        message.fixed(&[family, 0, self.protocol.0, 0, f0, f1, f2, f3]);
        message.attr_u32(NHA_ID, id.0);
        if let Some(gateway) = desired.via {
            ip(&mut message, NHA_GATEWAY, gateway);
        }
        if let Some(dev) = dev {
            message.attr_u32(NHA_OIF, dev.0);
        }
        if desired.blackhole {
            message.attr_flag(NHA_BLACKHOLE);
        }
        if desired.is_group() {
            message.attr(
                NHA_GROUP,
                desired.group.iter().copied().map(entry).collect::<Vec<_>>().as_flattened(),
            );
        }
        Ok(message.finish())
    }

    /// Takes a nexthop away.
    ///
    /// Quirk `nexthop-delete-asks-for-no-protocol` (Linux 6.18): the kernel refuses a delete that
    /// names a protocol, so that only what was seen to be ours just before may be asked for.
    pub(crate) fn delete_nexthop(&mut self, id: NexthopId) -> Result<()> {
        let mut message = self.batch.message(RTM_DELNEXTHOP, 0);
        message.fixed(&[0; 8]).attr_u32(NHA_ID, id.0);
        message.finish()
    }
}

/// A member as `struct nexthop_grp`: its number and its weight, counted from zero.
fn entry(member: Member) -> [u8; 8] {
    let [i0, i1, i2, i3] = member.id.0.to_ne_bytes();
    let [weight, ..] = member.weight.saturating_sub(1).to_le_bytes();
    [i0, i1, i2, i3, weight, 0, 0, 0]
}
