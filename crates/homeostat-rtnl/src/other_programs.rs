//! Which other program keeps an object that exists: declared, it would be brought back against that program.

use std::collections::{BTreeMap, HashMap};

use homeostat_core::Owner;

use crate::address::Lifetime;
use crate::key::Key;
use crate::link::LinkName;
use crate::number::Protocol;
use crate::object::Object;
use crate::observe::{ListedObject, foreign};

/// Takes out what other programs keep, by program.
pub(crate) fn take_kept_by_others(found: &mut Vec<ListedObject>) -> BTreeMap<String, Vec<String>> {
    let links = kept_links(found);
    let mut kept: BTreeMap<String, Vec<String>> = BTreeMap::new();
    found.retain(|one| match program(one, &links) {
        Some(program) => {
            kept.entry(program).or_default().push(one.key.to_string());
            false
        }
        None => true,
    });
    kept
}

/// The program that keeps an object; nothing, if it is static and no other program manages it.
fn program(one: &ListedObject, links: &HashMap<LinkName, &'static str>) -> Option<String> {
    if one.owner == Owner::Kernel {
        return None;
    }
    let on_link = |link: &LinkName| links.get(link).map(|&program| program.to_owned());
    match (&one.key, &one.object) {
        (Key::Link(link), _) => on_link(link),
        (Key::Address(key), Object::Address(address)) => {
            let is_lease = matches!(address.valid, Some(Lifetime::Seconds(_)));
            on_link(&key.link)
                .or_else(|| is_lease.then(|| "a lease or router advertisement".into()))
        }
        (Key::Route(_), Object::Route(route)) => {
            protocol(&one.owner).or_else(|| route.dev.as_ref().and_then(on_link))
        }
        (Key::Rule(_) | Key::Nexthop(_), _) => protocol(&one.owner),
        (Key::Fdb(key), _) => on_link(&key.link),
        _ => None,
    }
}

/// A routing protocol other than those of tools that people use by hand.
fn protocol(owner: &Owner) -> Option<String> {
    let by_hand = Protocol::BY_HAND.map(foreign);
    match owner {
        Owner::Foreign(name) if !by_hand.contains(owner) => Some(name.to_string()),
        _ => None,
    }
}

/// Links of container engines and hypervisors: by their names, and the ports of their bridges.
fn kept_links(found: &[ListedObject]) -> HashMap<LinkName, &'static str> {
    let links = || {
        found.iter().filter_map(|one| match (&one.key, &one.object, &one.owner) {
            (_, _, Owner::Ours) => None,
            (Key::Link(name), Object::Link(link), _) => Some((*name, link)),
            _ => None,
        })
    };
    let mut kept: HashMap<_, _> =
        links().filter_map(|(name, _)| Some((name, engine(name.as_str())?))).collect();
    let ports = links().filter_map(|(name, link)| Some((name, *kept.get(link.master.as_ref()?)?)));
    let ports: Vec<_> = ports.collect();
    kept.extend(ports);
    kept
}

/// The program whose links have such names.
fn engine(link: &str) -> Option<&'static str> {
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_numbered = |prefix: &str| {
        let number = link.strip_prefix(prefix);
        number
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let docker = link.strip_prefix("br-").is_some_and(|id| is_hex(id, 12))
        || is_numbered("docker")
        || link == "docker_gwbridge";
    match link {
        _ if docker => Some("Docker"),
        _ if is_numbered("virbr") || is_numbered("vnet") => Some("libvirt"),
        _ if is_numbered("podman") => Some("Podman"),
        _ if is_numbered("lxcbr") || is_numbered("lxdbr") => Some("LXC"),
        _ if is_numbered("cni") || is_numbered("flannel.") || link.starts_with("cali") => {
            Some("a CNI plugin")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_engines_are_known_by_their_names() {
        for (link, expected) in [
            ("docker0", Some("Docker")),
            ("br-0123456789ab", Some("Docker")),
            ("br-lan", None),
            ("virbr0", Some("libvirt")),
            ("virbr0-nic", None),
            ("vnet12", Some("libvirt")),
            ("vnet", None),
            ("cni0", Some("a CNI plugin")),
            ("eth0", None),
        ] {
            assert_eq!(engine(link), expected, "{link}");
        }
    }
}
