//! The links inside a namespace: ours, the kernel's own, and others.

use std::collections::BTreeMap;

use homeostat_core::{Owner, Taken};
use homeostat_netlink::uapi::{
    IFLA_GROUP, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, RTM_GETLINK,
};
use homeostat_netlink::{Attrs, Connection, Error, Malformed, Message};

use super::{dump, taken};
use crate::mark::Mark;

/// What the kernel puts into every namespace while the module of a tunnel is loaded, with its kind.
///
/// Quirk `fallback-tunnels` (Linux 6.18): with the module `ip_gre` loaded, `unshare -n ip link` shows
/// `gre0`, `gretap0` and `erspan0`, which no user made and no user can delete.
const FALLBACKS: [(&str, &str); 9] = [
    ("tunl0", "ipip"),
    ("gre0", "gre"),
    ("gretap0", "gretap"),
    ("erspan0", "erspan"),
    ("ip_vti0", "vti"),
    ("ip6_vti0", "vti6"),
    ("sit0", "sit"),
    ("ip6tnl0", "ip6tnl"),
    ("ip6gre0", "ip6gre"),
];

/// The links of a namespace.
pub(super) struct Links(BTreeMap<u32, Link>);

struct Link {
    name: String,
    owner: Owner,
}

impl Links {
    /// Those that another owner put there.
    pub(super) fn foreign(&self) -> Vec<Taken> {
        let links = self.0.values();
        links.filter_map(|link| taken(format!("link {}", link.name), link.owner.clone())).collect()
    }

    /// The name of a link, or its number if it came after the look.
    pub(super) fn name(&self, index: u32) -> String {
        self.0.get(&index).map_or_else(|| index.to_string(), |link| link.name.clone())
    }
}

/// Lists them.
pub(super) fn links(connection: &mut Connection, mark: &Mark) -> Result<Links, Error> {
    let all = dump(connection, RTM_GETLINK, &[0; 16], usize::MAX, |message| link(message, mark))?;
    Ok(Links(all.into_iter().collect()))
}

fn link(message: &Message<'_>, mark: &Mark) -> Result<Option<(u32, Link)>, Malformed> {
    let (fixed, attrs) = message.split::<16>()?;
    let [_, _, _, _, i0, i1, i2, i3, ..] = *fixed;
    let index = u32::from_ne_bytes([i0, i1, i2, i3]);
    let text = |kind| -> Result<Option<String>, Malformed> {
        let attr = attrs.clone().first(kind)?;
        // An alias is any bytes, and none of ours has bytes that are no text.
        Ok(attr.map(|attr| attr.str().unwrap_or_default().to_owned()))
    };
    let name = text(IFLA_IFNAME)?.ok_or(Malformed::Payload)?;
    let group = attrs.clone().first(IFLA_GROUP)?.map_or(Ok(0), |group| group.u32())?;
    let owner = match () {
        () if is_kernels_own(&name, kind(attrs.clone())?) => Owner::Kernel,
        () if mark.is_on_link(group, text(IFLA_IFALIAS)?.as_deref()) => Owner::Ours,
        () => Owner::foreign("another owner"),
    };
    Ok(Some((index, Link { name, owner })))
}

fn kind(attrs: Attrs<'_>) -> Result<Option<&str>, Malformed> {
    let Some(about) = attrs.first(IFLA_LINKINFO)? else { return Ok(None) };
    about.attrs().first(IFLA_INFO_KIND)?.map(|kind| kind.str()).transpose()
}

fn is_kernels_own(name: &str, kind: Option<&str>) -> bool {
    match kind {
        None => name == "lo",
        Some(kind) => FALLBACKS.contains(&(name, kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quirk_fallback_tunnels() {
        assert!(is_kernels_own("lo", None));
        assert!(is_kernels_own("gre0", Some("gre")));
        for (name, kind) in [("gre1", Some("gre")), ("gre0", Some("veth")), ("eth0", None)] {
            assert!(!is_kernels_own(name, kind), "{name}");
        }
    }
}
