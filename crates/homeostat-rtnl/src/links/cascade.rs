//! What goes with a link that goes or goes down. Pure.
//!
//! Quirk `links-take-along` (Linux 6.18): deleting a link deletes what stands on it, its other end,
//! and every address and route on those; setting it down deletes its routes and IPv6 addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use homeostat_core::{Owner, Taken};

use crate::link::LinkName;
use crate::links::table::{LinkTable, SeenLink};
use crate::moment::{Moment, Standing};

/// What becomes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It goes down, for a moment at least.
    Down,
    /// It goes, and is perhaps made again.
    Gone,
}

/// A link, what stands on it, and its other end.
pub(crate) fn going_with(table: &LinkTable, name: LinkName) -> BTreeSet<LinkName> {
    let (mut going, mut next) = (BTreeSet::new(), vec![name]);
    while let Some(name) = next.pop() {
        let Some(seen) = table.get(name).filter(|_| going.insert(name)) else { continue };
        let goes = |other: &&SeenLink| {
            other.parent() == Some(seen.index) || seen.peer() == Some(other.index)
        };
        next.extend(table.iter().filter(goes).map(|other| other.name));
    }
    going.insert(name);
    going
}

/// What somebody loses.
pub(crate) fn takes(moment: &Moment, name: LinkName, loss: Loss) -> Vec<Taken> {
    let going = match loss {
        Loss::Down => BTreeSet::from([name]),
        Loss::Gone => going_with(&moment.table, name),
    };
    let ends: BTreeSet<_> = moment.table.get(name).and_then(SeenLink::peer).into_iter().collect();
    let mut takes = Vec::new();
    for link in &going {
        let seen = moment.table.get(*link);
        if let Some(seen) = seen.filter(|seen| seen.name != name) {
            // Who made one end made both.
            let is_ours = ends.contains(&seen.index) && matches!(seen.owner, Owner::Unmarked);
            let owner = if is_ours { Owner::Ours } else { seen.owner.clone() };
            takes.push(Taken { key: format!("link {link}"), owner });
        }
        if let Some(seen) = seen.filter(|_| loss == Loss::Gone) {
            takes.extend(moment.table.iter().filter(|other| is_slave(other, seen)).map(taken));
        }
        let addresses = moment.addresses.iter();
        let addresses = addresses.filter(|standing| is_lost(standing, *link, loss));
        takes.extend(addresses.map(|standing| Taken {
            key: standing.key.to_string(),
            owner: standing.owner.clone(),
        }));
        takes.extend(moment.taken_when_down(*link).cloned());
    }
    takes
}

/// What is ours and wished is put back; what is ours and unwished is nobody's loss.
fn is_slave(other: &SeenLink, master: &SeenLink) -> bool {
    other.master == Some(master.index) && matches!(other.owner, Owner::Foreign(_))
}

fn taken(seen: &SeenLink) -> Taken {
    Taken { key: format!("link {} in its master", seen.name), owner: seen.owner.clone() }
}

/// Link-local addresses come back with the link, whoever the kernel says has made them.
fn is_lost(standing: &Standing, link: LinkName, loss: Loss) -> bool {
    let is_kept = match standing.key.ip() {
        IpAddr::V4(_) => loss == Loss::Down,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    standing.key.link() == link && !is_kept && matches!(standing.owner, Owner::Foreign(_))
}

/// Whether anything of it is somebody else's, so that a guard holds the step.
pub(crate) fn takes_foreign(takes: &[Taken]) -> bool {
    takes.iter().any(|taken| !matches!(taken.owner, Owner::Ours | Owner::Kernel))
}
