//! Reads links, qdiscs, classes and filters from the kernel.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::Failure;
use homeostat_netlink::uapi::{
    IFLA_IFNAME, NLM_F_ECHO, RTM_GETLINK, RTM_GETQDISC, RTM_GETTCLASS, RTM_GETTFILTER, ifinfomsg,
};
use homeostat_netlink::{
    Answer, Attrs, Batch, Connection, Dumped, Errno, Error, Malformed, Message,
};

use crate::key::LinkName;
use crate::wire::{Reported, Tc};

/// `struct ifinfomsg`.
const LINK: usize = size_of::<ifinfomsg>();
const INDEX_AT: usize = std::mem::offset_of!(ifinfomsg, ifi_index);

pub(crate) struct Kernel(pub(crate) Connection);

impl Kernel {
    /// The numbers of the links of these names that are there.
    pub(crate) fn links(
        &mut self,
        names: &BTreeSet<&LinkName>,
    ) -> Result<BTreeMap<LinkName, u32>, Error> {
        let mut batch = Batch::new();
        for name in names {
            let mut message = batch.message(RTM_GETLINK, NLM_F_ECHO);
            message.fixed(&[0; LINK]).attr_str(IFLA_IFNAME, name.as_str());
            message.finish()?;
        }
        let mut found = BTreeMap::new();
        self.ask(&mut batch, &mut |message| {
            let (index, attrs) = link(&message)?;
            if let Some(name) = name(&attrs)? {
                found.insert(name, index);
            }
            Ok(())
        })?;
        // A link is also found by another name of it.
        found.retain(|name, _| names.contains(name));
        Ok(found)
    }

    /// The name of the link with a number, if it is there.
    pub(crate) fn name(&mut self, index: u32) -> Result<Option<LinkName>, Error> {
        // A filter may lead to a link that went.
        if index == 0 {
            return Ok(None);
        }
        let mut batch = Batch::new();
        let mut fixed = [0; LINK];
        if let Some(place) = fixed.get_mut(INDEX_AT..).and_then(<[u8]>::first_chunk_mut) {
            *place = index.to_ne_bytes();
        }
        let mut message = batch.message(RTM_GETLINK, NLM_F_ECHO);
        message.fixed(&fixed);
        message.finish()?;
        let mut found = None;
        self.ask(&mut batch, &mut |message| {
            found = name(&link(&message)?.1)?;
            Ok(())
        })?;
        Ok(found)
    }

    /// All qdiscs, but for those that no program has put there and that have no kind of their own.
    pub(crate) fn qdiscs(&mut self) -> Result<Vec<Reported>, Error> {
        self.dump(RTM_GETQDISC, Tc::default())
    }

    /// The classes of a link.
    pub(crate) fn classes(&mut self, link: u32) -> Result<Vec<Reported>, Error> {
        self.dump(RTM_GETTCLASS, Tc { link, ..Tc::default() })
    }

    /// The filters at a qdisc of a link. A qdisc that can have none has none.
    pub(crate) fn filters(&mut self, link: u32, parent: u32) -> Result<Vec<Reported>, Error> {
        match self.dump(RTM_GETTFILTER, Tc { link, parent, ..Tc::default() }) {
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            filters => filters,
        }
    }

    fn dump(&mut self, kind: u16, tc: Tc) -> Result<Vec<Reported>, Error> {
        let mut batch = Batch::new();
        let mut message = batch.message(kind, 0);
        message.fixed(&tc.bytes());
        message.finish()?;
        let mut found = Ok(Vec::new());
        self.0.dump(&mut batch, &mut |dumped| match (dumped, &mut found) {
            (Dumped::Restart, found) => *found = Ok(Vec::new()),
            (Dumped::Object(message), Ok(list)) => match Reported::read(&message) {
                Ok(reported) => list.push(reported),
                Err(malformed) => found = Err(malformed),
            },
            (Dumped::Object(_), Err(_)) => {}
        })?;
        Ok(found?)
    }

    /// Asks for objects; those that are absent have no answer.
    fn ask(
        &mut self,
        batch: &mut Batch,
        each: &mut dyn FnMut(Message<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Error> {
        let mut failed = None;
        self.0.run(batch, &mut |_, answer| {
            let error = match answer {
                Answer::Reply(message) => each(message).err().map(Error::Malformed),
                Answer::Done => None,
                Answer::Refused(refusal) if refusal.errno == Errno::NODEV => None,
                Answer::Refused(refusal) => Some(Error::Refused(refusal)),
                Answer::Unknown => Some(Error::AnswerLost),
            };
            failed = failed.take().or(error);
        })?;
        failed.map_or(Ok(()), Err)
    }
}

fn is_absent(error: &Error) -> bool {
    matches!(error.errno(), Some(Errno::INVAL | Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP))
}

/// A message about a link: its number, and its attributes.
pub(crate) fn link<'a>(message: &Message<'a>) -> Result<(u32, Attrs<'a>), Malformed> {
    let (fixed, attrs) = message.split::<LINK>()?;
    let index = fixed.get(INDEX_AT..).and_then(<[u8]>::first_chunk);
    Ok((index.map_or(0, |index| u32::from_ne_bytes(*index)), attrs))
}

/// The name of a link; nothing, if it is one that could not be declared.
pub(crate) fn name(attrs: &Attrs<'_>) -> Result<Option<LinkName>, Malformed> {
    let name = attrs.clone().first(IFLA_IFNAME)?;
    name.map(|name| name.str()).transpose().map(|name| name.and_then(|name| name.parse().ok()))
}

pub(crate) fn failure(error: &Error) -> Failure {
    match error.errno() {
        Some(Errno::PERM) => Failure::never(error)
            .with_help("run it as root, or with CAP_NET_ADMIN in this network namespace"),
        _ => Failure::soon(error),
    }
}
