//! Generic netlink: families that are known by name, such as "wireguard", and have a number only while the kernel has
//! them.

use crate::uapi::{
    CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_ATTR_MCAST_GROUPS, CTRL_ATTR_MCAST_GRP_ID,
    CTRL_ATTR_MCAST_GRP_NAME, CTRL_CMD_GETFAMILY, GENL_ID_CTRL, NLM_F_ECHO,
};
use crate::{Attrs, Batch, Connection, Errno, Error, Group, Malformed, Result};

/// The number of a family, which is the type of its messages; none, if the kernel does not have it. Asking for it loads
/// its module, if the kernel may.
pub fn family(connection: &mut Connection, name: &str) -> Result<Option<u16>> {
    describe(connection, name, &mut |attrs| {
        attrs.first(CTRL_ATTR_FAMILY_ID)?.map(|attr| attr.u16()).transpose()
    })
}

/// A multicast group of a family by its name; none, if the kernel does not have either.
pub fn multicast_group(
    connection: &mut Connection,
    family: &str,
    name: &str,
) -> Result<Option<Group>> {
    describe(connection, family, &mut |attrs| {
        let Some(groups) = attrs.first(CTRL_ATTR_MCAST_GROUPS)? else { return Ok(None) };
        for group in groups.attrs() {
            let attrs = group?.attrs();
            let is_meant = match attrs.clone().first(CTRL_ATTR_MCAST_GRP_NAME)? {
                Some(found) => found.str()? == name,
                None => false,
            };
            if let (true, Some(number)) = (is_meant, attrs.first(CTRL_ATTR_MCAST_GRP_ID)?) {
                return Ok(Some(Group(number.u32()?)));
            }
        }
        Ok(None)
    })
}

/// Reads something in what the kernel says of a family; none, if it does not have that.
fn describe<T>(
    connection: &mut Connection,
    name: &str,
    read: &mut dyn FnMut(Attrs<'_>) -> Result<Option<T>, Malformed>,
) -> Result<Option<T>> {
    let mut batch = Batch::new();
    let mut message = batch.message(GENL_ID_CTRL, NLM_F_ECHO);
    message.fixed(&head(CTRL_CMD_GETFAMILY, 1)).attr_str(CTRL_ATTR_FAMILY_NAME, name);
    message.finish()?;
    let (mut found, mut bad) = (None, None);
    let asked = connection.ask(&mut batch, &mut |message| match message
        .split::<4>()
        .and_then(|(_, attrs)| read(attrs))
    {
        Ok(value) => found = value,
        Err(error) => bad = Some(error),
    });
    match (asked, bad) {
        (Err(Error::Refused(refusal)), _) if refusal.errno == Errno::NOENT => Ok(None),
        (Err(error), _) => Err(error),
        (Ok(()), Some(bad)) => Err(Error::Malformed(bad)),
        (Ok(()), None) => Ok(found),
    }
}

/// `struct genlmsghdr`, the fixed part of every message of a family.
#[must_use]
pub fn head(command: u8, version: u8) -> [u8; 4] {
    [command, version, 0, 0]
}
