//! What is inside a namespace that we made, and is neither ours nor the kernel's own.
//!
//! Links first: they explain most of the rest. A few findings are enough to keep a namespace, however
//! many there are. Not looked for: fdb entries, qdiscs, iptables without nftables behind it.

mod links;
mod network;
mod tables;
mod tasks;

use homeostat_core::{Failure, Owner, Retry, Taken};
use homeostat_netlink::{Batch, Connection, Dumped, Error, Family, Malformed, Message};
use homeostat_netns::Netns;

use crate::source::Signs;

/// More than this is not worth the memory.
const ENOUGH: usize = 20;

/// Everything that would be lost to somebody else.
pub(crate) fn foreign(netns: &Netns, signs: Signs<'_>) -> Result<Vec<Taken>, Failure> {
    let mark = signs.mark;
    let mut connection =
        Connection::open_in(netns, Family::Route).map_err(|error| unseen(&error))?;
    let links = links::links(&mut connection, mark).map_err(|error| unseen(&error))?;
    let mut found = links.foreign();
    found.extend(tasks::inside(netns)?);
    found.extend(network::foreign(&mut connection, &links, mark).map_err(|error| unseen(&error))?);
    found.extend(tables::tables(netns, signs).map_err(|error| unseen(&error))?);
    found.truncate(ENOUGH);
    Ok(found)
}

/// What is inside and was not when that was agreed to. A list that was cut short is agreed to whole.
pub(crate) fn news<'a>(foreign: &'a [Taken], agreed: &[Taken]) -> Option<&'a Taken> {
    foreign.iter().find(|taken| agreed.len() < ENOUGH && !agreed.contains(taken))
}

fn unseen(error: &Error) -> Failure {
    let failure = Failure::from_error(error, Retry::Soon);
    Failure { error: format!("cannot look inside: {}", failure.error), ..failure }
}

fn taken(key: String, owner: Owner) -> Option<Taken> {
    let is_foreign = !matches!(owner, Owner::Ours | Owner::Kernel);
    is_foreign.then_some(Taken { key, owner })
}

/// What is listed.
struct List<'a> {
    kind: u16,
    fixed: &'a [u8],
    /// How many findings are kept.
    most: usize,
}

/// What `each` finds in a list.
fn dump<T>(
    connection: &mut Connection,
    list: &List<'_>,
    each: &mut dyn FnMut(&Message<'_>) -> Result<Option<T>, Malformed>,
) -> Result<Vec<T>, Error> {
    let mut request = Batch::new();
    let mut message = request.message(list.kind, 0);
    message.fixed(list.fixed);
    message.finish()?;
    let (mut found, mut bad) = (Vec::new(), None);
    connection.dump(&mut request, &mut |dumped| match dumped {
        Dumped::Restart => found.clear(),
        Dumped::Object(_) if found.len() >= list.most => {}
        Dumped::Object(message) => match each(&message) {
            Ok(one) => found.extend(one),
            Err(error) => bad = Some(error),
        },
    })?;
    bad.map_or(Ok(found), |bad| Err(Error::Malformed(bad)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_after_the_plan_is_news() {
        let link = |name: &str| Taken { key: name.to_owned(), owner: Owner::Unmarked };
        let (old, both) = ([link("old")], [link("old"), link("new")]);
        assert_eq!(news(&old, &old), None);
        assert_eq!(news(&both, &old), both.last());
        assert_eq!(news(&old, &[]), old.first());
        assert_eq!(news(&both, &vec![link("other"); ENOUGH]), None);
    }
}
