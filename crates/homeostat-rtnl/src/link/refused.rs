//! Which option of a link the kernel has refused: the one that its answer points at, or else those that were set. Pure.

use homeostat_core::Failure;
use homeostat_netlink::uapi::{
    IFLA_ADDRESS, IFLA_INFO_DATA, IFLA_LINK, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_TXQLEN,
};
use homeostat_netlink::{Batch, Errno, Error, Refusal, Result};
use serde_json::Value;

use crate::link::kinds::LinkKind;

/// Adds to a failure which options the kernel may mean. `write` writes the refused request again.
pub(crate) fn name_options(
    mut failure: Failure,
    error: &Error,
    kind: &LinkKind,
    write: impl FnOnce(&mut Batch) -> Result<()>,
) -> Failure {
    let Error::Refused(refusal) = error else { return failure };
    if !matches!(refusal.errno, Errno::OPNOTSUPP | Errno::INVAL | Errno::RANGE) {
        return failure;
    }
    let mut batch = Batch::new();
    let written = write(&mut batch);
    let at = || option_at(batch.bytes(), usize::try_from(refusal.offset?).ok()?, kind);
    if let Some(option) = written.ok().and_then(|()| at()) {
        failure.error = format!("{}, at the option `{option}`", failure.error);
        return failure;
    }
    let options = suspects(refusal, kind);
    if options.is_empty() {
        return failure;
    }
    let words = options.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let (noun, one) =
        if options.len() == 1 { ("option", "it") } else { ("options", "one of them") };
    failure.error = format!("{}, with the {noun} {words}", failure.error);
    if failure.help.is_some() {
        return failure;
    }
    failure.with_help(match refusal.errno {
        Errno::OPNOTSUPP => format!("the kernel may be built without {one}: leave it out"),
        _ => format!("the kernel may not take {one}, or not beside another one"),
    })
}

/// The options that were set. Of a bridge, VLANs are what kernels are built without, and else groups.
fn suspects(refusal: &Refusal, kind: &LinkKind) -> Vec<String> {
    let set = match serde_json::to_value(kind) {
        Ok(Value::Object(fields)) => fields.into_iter().map(|(word, _)| word),
        _ => return Vec::new(),
    };
    let all: Vec<String> = set.filter(|word| word != "kind" && word != "peer").collect();
    let is_lacking = kind.is_bridge() && refusal.errno == Errno::OPNOTSUPP;
    let part = |start: &&str| is_lacking && all.iter().any(|word| word.starts_with(start));
    match ["vlan-", "mcast-"].iter().find(|start| part(start)) {
        Some(start) => all.into_iter().filter(|word| word.starts_with(start)).collect(),
        None => all,
    }
}

/// Where the attributes of a link's message begin: behind the header and `struct ifinfomsg`.
const ATTRS_AT: usize = 16 + 16;

/// The option of the attribute that begins at an offset of a message.
fn option_at(message: &[u8], offset: usize, kind: &LinkKind) -> Option<&'static str> {
    let path = path_to(message, ATTRS_AT, message.len(), offset)?;
    match path.as_slice() {
        [IFLA_LINKINFO, IFLA_INFO_DATA, attr, ..] => kind.word_of(*attr),
        [IFLA_ADDRESS] => Some("mac"),
        [IFLA_MTU] => Some("mtu"),
        [IFLA_TXQLEN] => Some("txqueuelen"),
        [IFLA_LINK] => Some("parent"),
        [IFLA_MASTER] => Some("master"),
        _ => None,
    }
}

/// The types of the attributes around and at an offset.
fn path_to(message: &[u8], from: usize, to: usize, offset: usize) -> Option<Vec<u16>> {
    let mut at = from;
    while let Some([l0, l1, k0, k1]) =
        message.get(at..to).and_then(<[u8]>::first_chunk::<4>).copied()
    {
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        // Two bits say what is inside.
        let kind = u16::from_ne_bytes([k0, k1]) & 0x3fff;
        let end = at.checked_add(len).filter(|end| len >= 4 && *end <= to)?;
        if at == offset {
            return Some(vec![kind]);
        }
        if (at..end).contains(&offset) {
            let inside = path_to(message, at + 4, end, offset)?;
            return Some([vec![kind], inside].concat());
        }
        at = end.next_multiple_of(4);
    }
    None
}

#[cfg(test)]
mod tests {
    use homeostat_core::Retry;

    use super::*;
    use crate::link::IfIndex;
    use crate::link::kinds::{Bridge, Geneve, Refs};
    use crate::link::message;
    use crate::link::model::Link;

    fn refused(errno: Errno, offset: Option<u32>, link: &Link) -> Failure {
        let error = Error::Refused(Refusal { errno, text: None, offset });
        let write = |batch: &mut Batch| {
            let refs = Refs { parent: Some(IfIndex(7)), ..Refs::default() };
            message::create(batch, "x0".parse().unwrap(), link, &refs, None)
        };
        let failure = Failure::new("refused", Retry::OnChange);
        name_options(failure, &error, &link.kind, write)
    }

    fn geneve() -> Link {
        let remote = Some([10, 0, 0, 1].into());
        let geneve = Geneve { id: 7, remote, ttl: Some(9), ..Geneve::default() };
        Link { mtu: Some(1400), ..Link::new(LinkKind::Geneve(geneve)) }
    }

    #[test]
    fn the_attribute_that_the_kernel_points_at_is_named() {
        let link = geneve();
        let mut named = Vec::new();
        for offset in 0..200 {
            let failure = refused(Errno::INVAL, Some(offset), &link);
            let option = failure.error.strip_prefix("refused, at the option ");
            named.extend(option.map(str::to_owned));
        }
        assert_eq!(named, ["`mtu`", "`parent`", "`id`", "`ttl`"]);
    }

    #[test]
    fn without_a_hint_the_options_that_were_set_are_named() {
        let bridge = |bridge| Link::new(LinkKind::Bridge(bridge));
        let plain = bridge(Bridge::default());
        let both =
            bridge(Bridge { vlan_filtering: Some(true), priority: Some(7), ..Bridge::default() });
        for (errno, link, text) in [
            (Errno::OPNOTSUPP, &plain, "refused"),
            (Errno::OPNOTSUPP, &both, "refused, with the option `vlan-filtering`"),
            (Errno::INVAL, &both, "refused, with the options `vlan-filtering`, `priority`"),
            (Errno::EXIST, &both, "refused"),
            (Errno::INVAL, &geneve(), "refused, with the options `id`, `remote`, `ttl`"),
        ] {
            assert_eq!(refused(errno, None, link).error, text);
        }
        assert!(refused(Errno::OPNOTSUPP, None, &both).help.is_some());
    }
}
