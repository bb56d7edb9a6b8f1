//! What is inside a namespace that we made, and is neither ours nor the kernel's own.
//!
//! Links first: they explain most of the rest. A few findings are enough to keep a namespace, however
//! many there are. Not looked for: fdb entries, qdiscs, iptables without nftables behind it.

mod links;
mod network;
mod tables;
mod tasks;

use homeostat_core::{Failure, Owner, Taken};
use homeostat_netlink::{Batch, Connection, Dumped, Error, Family, Malformed, Message};
use homeostat_netns::Netns;

use crate::key::Key;
use crate::source::Namespaces;

/// More than this is not worth the memory.
const ENOUGH: usize = 20;

/// Everything inside of the namespace `key` that another owner would lose.
pub(crate) fn foreign(
    netns: &Netns,
    source: &Namespaces,
    key: &Key,
) -> Result<Vec<Taken>, Failure> {
    let mut found = Vec::new();
    let listed = Connection::open_in(netns, Family::Route).and_then(|mut connection| {
        let links = links::links(&mut connection, &source.mark)?;
        found.extend(links.foreign());
        network::foreign(&mut connection, &links, &source.mark)
    });
    let network = listed.map_err(|error| unseen(&error))?;
    found.extend(tasks::inside(netns)?);
    found.extend(network);
    found.extend(tables::foreign(netns, source, key).map_err(|error| unseen(&error))?);
    found.truncate(ENOUGH);
    Ok(found)
}

/// The first foreign object that was not in the agreed list. A truncated list counts as agreement to everything.
pub(crate) fn first_new<'a>(foreign: &'a [Taken], agreed: &[Taken]) -> Option<&'a Taken> {
    foreign.iter().find(|taken| agreed.len() < ENOUGH && !agreed.contains(taken))
}

fn unseen(error: &Error) -> Failure {
    let Failure { error, retry, .. } = Failure::soon(error);
    Failure::new(format!("cannot look inside: {error}"), retry)
}

fn taken(key: String, owner: Owner) -> Option<Taken> {
    let is_foreign = !matches!(owner, Owner::Ours | Owner::Kernel);
    is_foreign.then_some(Taken::new(key, owner))
}

/// What `each` finds in a list of this kind, at most so many.
fn dump<T>(
    connection: &mut Connection,
    kind: u16,
    fixed: &[u8],
    most: usize,
    mut each: impl FnMut(&Message<'_>) -> Result<Option<T>, Malformed>,
) -> Result<Vec<T>, Error> {
    let mut request = Batch::new();
    let mut message = request.message(kind, 0);
    message.fixed(fixed);
    message.finish()?;
    let (mut found, mut bad) = (Vec::new(), None);
    connection.dump(&mut request, &mut |dumped| match dumped {
        Dumped::Restart => found.clear(),
        Dumped::Object(_) if found.len() >= most => {}
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
    fn only_objects_that_came_after_the_plan_are_new() {
        let link = |name: &str| Taken::new(name.to_owned(), Owner::Unmarked);
        let (old, both) = ([link("old")], [link("old"), link("new")]);
        assert_eq!(first_new(&old, &old), None);
        assert_eq!(first_new(&both, &old), both.last());
        assert_eq!(first_new(&old, &[]), old.first());
        assert_eq!(first_new(&both, &vec![link("other"); ENOUGH]), None);
    }
}
