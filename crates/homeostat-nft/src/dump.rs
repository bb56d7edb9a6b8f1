//! Reads tables from the kernel, whole. Start at [`heads`] and [`table`].

pub(crate) mod parts;
mod rules;

use std::collections::BTreeMap;

use homeostat_netlink::uapi::{
    NFT_MSG_GETCHAIN, NFT_MSG_GETFLOWTABLE, NFT_MSG_GETGEN, NFT_MSG_GETOBJ, NFT_MSG_GETRULE,
    NFT_MSG_GETSET, NFT_MSG_GETSETELEM, NFT_MSG_GETTABLE, NFTA_GEN_ID, NFTA_SET_ELEM_LIST_ELEMENTS,
    NFTA_SET_ELEM_LIST_SET, NFTA_TABLE_FLAGS, NFTA_TABLE_HANDLE, NFTA_TABLE_NAME,
    NFTA_TABLE_USERDATA, NLM_F_ECHO,
};
use homeostat_netlink::{Attrs, Batch, Connection, Dumped, Errno, Malformed, Message};

use crate::elements::{Collected, Elements, Layout};
use crate::error::Error;
use crate::key::{Family, Key};
use crate::mark::Words;
use crate::message::kind;
use crate::model::{Handle, Table};
use crate::tlv::{be32, be64, name};
use parts::Loose;
use rules::RawRules;

/// In every message of nftables the first attribute is the name of the table.
pub(crate) const TABLE: u16 = NFTA_TABLE_NAME;

/// The generation of the ruleset: each commit by anybody moves it.
pub(crate) type Generation = u32;

/// A table without its content.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) key: Key,
    pub(crate) handle: Handle,
    pub(crate) flags: u32,
    pub(crate) words: Words,
}

impl Table {
    /// One with nothing in it.
    pub(crate) fn empty(head: &Head) -> Self {
        Table {
            key: head.key.clone(),
            handle: head.handle,
            flags: head.flags,
            comment: head.words.comment.clone(),
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            objects: BTreeMap::new(),
            flowtables: BTreeMap::new(),
            texts: BTreeMap::new(),
            script: None,
        }
    }
}

/// The generation that the ruleset has.
pub(crate) fn generation(connection: &mut Connection) -> Result<Generation, Error> {
    let mut request = Batch::new();
    let mut message = request.message(kind(NFT_MSG_GETGEN), NLM_F_ECHO);
    message.fixed(&[0; 4]);
    message.finish()?;
    let mut told = Err(Malformed::Payload);
    connection.ask(&mut request, &mut |message| {
        told = message
            .split::<4>()
            .and_then(|(_, attrs)| be32(&attrs, NFTA_GEN_ID)?.ok_or(Malformed::Payload));
    })?;
    told.map_err(|source| Error::Malformed { what: "the generation", source })
}

/// All tables, without their content.
pub(crate) fn heads(connection: &mut Connection) -> Result<Vec<Head>, Error> {
    let all = Ask { message: NFT_MSG_GETTABLE, family: Family(0), names: &[] };
    list(connection, &all, "tables", |family, attrs| head(family, attrs).map(Some))
}

/// What a message tells of a table itself.
pub(crate) fn head(family: Family, attrs: &Attrs<'_>) -> Result<Head, Malformed> {
    let userdata = attrs.clone().first(NFTA_TABLE_USERDATA)?;
    Ok(Head {
        key: Key { family, name: name(attrs, NFTA_TABLE_NAME)? },
        handle: Handle(be64(attrs, NFTA_TABLE_HANDLE)?.unwrap_or_default()),
        flags: be32(attrs, NFTA_TABLE_FLAGS)?.unwrap_or_default(),
        words: userdata.map_or_else(Words::default, |attr| Words::read(attr.value)),
    })
}

/// A table with everything in it.
pub(crate) fn table(connection: &mut Connection, head: &Head) -> Result<Table, Error> {
    let key = &head.key;
    let ask = |message| Ask { message, family: key.family, names: &[] };
    let here = [(TABLE, key.name.as_str())];
    let inside = |message| Ask { names: &here, ..ask(message) };
    // Chains are listed for the whole family, whatever table is asked for.
    let chains = list(connection, &ask(NFT_MSG_GETCHAIN), "chains", |_, attrs| {
        if name(attrs, TABLE)? == key.name { parts::chain(attrs).map(Some) } else { Ok(None) }
    })?;
    let rules = raw_rules(connection, &inside(NFT_MSG_GETRULE))?;
    let mut sets = BTreeMap::new();
    let bare =
        list(connection, &inside(NFT_MSG_GETSET), "sets", |_, attrs| parts::set(attrs).map(Some))?;
    for (name, mut set) in bare {
        if !set.is_data() {
            set.elements = elements(connection, key, &name, set.layout())?;
        }
        set.note_references();
        sets.insert(name, set);
    }
    let objects = list(connection, &inside(NFT_MSG_GETOBJ), "objects", |_, attrs| {
        parts::object(attrs).map(Some)
    })?;
    let flowtables = flowtables(connection, &inside(NFT_MSG_GETFLOWTABLE))?;
    let loose = Loose { chains, rules, sets };
    let malformed = |source| Error::Malformed { what: "rules", source };
    let (chains, sets) = loose.assembled().map_err(malformed)?;
    Ok(Table {
        chains,
        sets,
        objects: objects.into_iter().collect(),
        flowtables: flowtables.into_iter().collect(),
        ..Table::empty(head)
    })
}

type Flowtable = (String, Box<[u8]>);

/// A kernel that was built without flowtables has none.
fn flowtables(connection: &mut Connection, ask: &Ask<'_>) -> Result<Vec<Flowtable>, Error> {
    let listed = list(connection, ask, "flowtables", |_, attrs| parts::flowtable(attrs).map(Some));
    match listed {
        Err(Error::Netlink(error)) if error.errno() == Some(Errno::OPNOTSUPP) => Ok(Vec::new()),
        listed => listed,
    }
}

fn raw_rules(connection: &mut Connection, ask: &Ask<'_>) -> Result<RawRules, Error> {
    let (mut rules, mut failed) = (RawRules::default(), Ok(()));
    connection.dump(&mut ask.request()?, &mut |dumped| match dumped {
        Dumped::Restart => rules.clear(),
        Dumped::Object(message) if failed.is_ok() => {
            failed = message.split::<4>().and_then(|(_, attrs)| rules.take(attrs));
        }
        Dumped::Object(_) => {}
    })?;
    failed.map(|()| rules).map_err(|source| Error::Malformed { what: "rules", source })
}

fn elements(
    connection: &mut Connection,
    key: &Key,
    set: &str,
    layout: Layout,
) -> Result<Elements, Error> {
    let names = [(TABLE, key.name.as_str()), (NFTA_SET_ELEM_LIST_SET, set)];
    let ask = Ask { message: NFT_MSG_GETSETELEM, family: key.family, names: &names };
    told_once(layout, || collected(connection, &ask))
}

/// How often a set is listed whose elements change their places.
const LISTS: u32 = 8;

/// Lists elements until each of them is told once.
///
/// Quirk `elements-told-twice` (Linux 6.18): a large set that was just filled moves its elements to a larger
/// table in the background. A list that is made meanwhile has some of them twice and lacks as many others, and
/// neither the generation nor a flag tells of it.
fn told_once(
    layout: Layout,
    mut list: impl FnMut() -> Result<Collected, Error>,
) -> Result<Elements, Error> {
    let mut former = None;
    for _ in 0..LISTS {
        let (elements, is_whole) = list()?
            .sorted_and_judged(layout)
            .map_err(|source| Error::Malformed { what: "elements", source })?;
        // What is told twice in the same way again is so.
        if is_whole || former.as_ref() == Some(&elements) {
            return Ok(elements);
        }
        former = Some(elements);
    }
    Err(Error::Moving { tries: LISTS })
}

fn collected(connection: &mut Connection, ask: &Ask<'_>) -> Result<Collected, Error> {
    let mut collected = Collected::default();
    let mut failed = Ok(());
    connection.dump(&mut ask.request()?, &mut |dumped| match dumped {
        Dumped::Restart => collected.clear(),
        Dumped::Object(message) if failed.is_ok() => {
            failed = message.split::<4>().and_then(|(_, attrs)| {
                let list = attrs.first(NFTA_SET_ELEM_LIST_ELEMENTS)?;
                list.map_or(Ok(()), |list| collected.take(list.value))
            });
        }
        Dumped::Object(_) => {}
    })?;
    failed.map(|()| collected).map_err(|source| Error::Malformed { what: "elements", source })
}

/// What to list.
struct Ask<'a> {
    message: u16,
    family: Family,
    names: &'a [(u16, &'a str)],
}

impl Ask<'_> {
    fn request(&self) -> Result<Batch, Error> {
        let mut request = Batch::new();
        let mut message = request.message(kind(self.message), 0);
        message.fixed(&[self.family.0, 0, 0, 0]);
        for (kind, name) in self.names {
            message.attr(*kind, &[name.as_bytes(), &[0]].concat());
        }
        message.finish()?;
        Ok(request)
    }
}

/// Lists everything of a kind; a restarted list begins anew.
fn list<T>(
    connection: &mut Connection,
    ask: &Ask<'_>,
    what: &'static str,
    decode: impl Fn(Family, &Attrs<'_>) -> Result<Option<T>, Malformed>,
) -> Result<Vec<T>, Error> {
    let decode = |message: &Message<'_>| {
        let ([family, ..], attrs) = message.split::<4>()?;
        decode(Family(*family), &attrs)
    };
    let mut found = Vec::new();
    let mut failed = None;
    connection.dump(&mut ask.request()?, &mut |dumped| match dumped {
        Dumped::Restart => found.clear(),
        Dumped::Object(message) => match decode(&message) {
            Ok(one) => found.extend(one),
            Err(source) => failed = Some(source),
        },
    })?;
    failed.map_or(Ok(found), |source| Err(Error::Malformed { what, source }))
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::uapi::{NFTA_DATA_VALUE, NFTA_LIST_ELEM, NFTA_SET_ELEM_KEY};

    use super::*;
    use crate::tlv::Tlvs;

    fn list(keys: &[u8]) -> Collected {
        let mut collected = Collected::default();
        for key in keys {
            let (mut value, mut inside, mut out) =
                (Tlvs::default(), Tlvs::default(), Tlvs::default());
            value.put(NFTA_DATA_VALUE, &[*key; 4]);
            inside.put(NFTA_SET_ELEM_KEY, &value.into_vec());
            out.put(NFTA_LIST_ELEM, &inside.into_vec());
            collected.take(&out.into_vec()).unwrap();
        }
        collected
    }

    /// How many lists it takes, and how many elements are told in the end.
    fn check(lists: &[&[u8]], expected: Option<(usize, usize)>) {
        let mut made = 0;
        let told = told_once(Layout::Single, || {
            made += 1;
            Ok(list(lists[(made - 1) % lists.len()]))
        });
        let told = told.ok().map(|elements| (made, elements.places().len()));
        assert_eq!(told, expected, "{lists:?}");
    }

    #[test]
    fn elements_that_are_told_twice_are_listed_again() {
        check(&[&[1, 2, 3]], Some((1, 3)));
        check(&[&[1, 2, 2], &[3, 1, 2]], Some((2, 3)));
        check(&[&[1, 2, 2], &[1, 1, 3], &[1, 2, 3]], Some((3, 3)));
        // Whatever is so each time is so.
        check(&[&[1, 2, 2]], Some((2, 3)));
        check(&[&[1, 2, 2], &[1, 1, 3]], None);
    }
}
