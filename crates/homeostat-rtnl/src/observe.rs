//! The eyes of the source: dumps links, addresses and routes, and hands each on as it comes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use homeostat_core::{Desired as _, Failure, Focus, Hint, Owner, Retry, See, Seen, View};
use homeostat_netlink::uapi::{
    RTA_TABLE, RTM_GETADDR, RTM_GETLINK, RTM_GETROUTE, RTPROT_KERNEL, RTPROT_REDIRECT,
};
use homeostat_netlink::{Batch, Connection, Dumped, Errno, Error, Malformed, Message};

use crate::decode::{self, AF_INET, AF_INET6, Names, SeenAddress};
use crate::hints::Ear;
use crate::key::Key;
use crate::link::Links;
use crate::model::Object;
use crate::moment::{Moment, Standing};
use crate::number::{Protocol, Table};
use crate::source::Rtnl;

/// Looks at one network namespace, and hears of changes in it.
pub struct Reader {
    source: Rtnl,
    connection: Option<Connection>,
    ear: Ear,
}

impl Reader {
    /// The subscription stands before the first look.
    pub(crate) fn open(source: Rtnl) -> Result<Self, Failure> {
        let ear = Ear::open(&source)?;
        let connection = Some(source.connect()?);
        Ok(Reader { source, connection, ear })
    }

    fn look(
        &mut self,
        view: &View<'_, Rtnl>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        self.ear.attend(view.wish)?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.source.connect()?,
        };
        let protocol = self.source.protocol;
        let moment = Look { connection: &mut connection, protocol, view, see }.run();
        if let Ok(moment) = &moment {
            self.ear.know(&moment.links);
        }
        // After a failure the connection may be in the middle of an answer.
        self.connection = moment.is_ok().then_some(connection);
        moment.map_err(|error| failure(&error))
    }
}

impl homeostat_core::Reader<Rtnl> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Rtnl>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        self.look(view, see)
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        self.ear.hint().await
    }
}

/// Why a look failed.
pub(crate) fn failure(error: &Error) -> Failure {
    let retry = if matches!(error, Error::Torn { .. }) { Retry::Now } else { Retry::Soon };
    Failure::from_error(error, retry)
}

/// One look under way.
pub(crate) struct Look<'a, 'v> {
    connection: &'a mut Connection,
    pub(crate) protocol: Protocol,
    pub(crate) view: &'a View<'v, Rtnl>,
    see: &'a mut See<'v, Key, Object>,
}

/// Whether what is dumped is handed on, or only learned from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Routes {
    HandOn,
    LearnOnly,
}

impl Look<'_, '_> {
    fn run(mut self) -> Result<Moment, Error> {
        let mut moment = Moment::default();
        self.links(&mut moment.links)?;
        match self.view.focus {
            Focus::All => {
                self.addresses(&mut moment)?;
                self.nexthops(&mut moment)?;
                self.routes(&mut moment, Routes::HandOn, (AF_INET, None))?;
                self.routes(&mut moment, Routes::HandOn, (AF_INET6, None))?;
                self.rules(&mut moment)?;
                self.neighbours(&mut moment)?;
            }
            Focus::Keys(keys) => self.some(&mut moment, keys)?,
        }
        Ok(moment)
    }

    /// Dumps what the keys are part of; there is no exact read of one route.
    fn some(&mut self, moment: &mut Moment, keys: &BTreeSet<Key>) -> Result<(), Error> {
        let addresses = || keys.iter().filter(|key| matches!(key, Key::Address(_)));
        if addresses().next().is_some() {
            self.addresses(moment)?;
        }
        let is_any = |is_one: fn(&Key) -> bool| keys.iter().any(is_one);
        if is_any(|key| matches!(key, Key::Rule(_))) {
            self.rules(moment)?;
        }
        if is_any(|key| matches!(key, Key::Neighbour(_))) {
            self.neighbours(moment)?;
        }
        let has_nexthop = is_any(|key| matches!(key, Key::Nexthop(_)));
        let nexthop_goes = has_nexthop && self.nexthops(moment)?;
        // An address or nexthop that goes may take foreign routes along, wherever they are.
        if nexthop_goes || addresses().any(|key| self.view.wish.slot(key, None).is_none()) {
            self.routes(moment, Routes::LearnOnly, (AF_INET, None))?;
            self.routes(moment, Routes::LearnOnly, (AF_INET6, None))?;
        }
        let tables: BTreeSet<(u8, Option<Table>)> = keys.iter().filter_map(place).collect();
        tables.into_iter().try_for_each(|place| self.routes(moment, Routes::HandOn, place))
    }

    fn links(&mut self, links: &mut Links) -> Result<(), Error> {
        let mut request = Batch::new();
        request_for(&mut request, RTM_GETLINK, &[0; 16], None)?;
        let mut bad = None;
        self.connection.dump(&mut request, &mut |dumped| match dumped {
            Dumped::Restart => links.clear(),
            Dumped::Object(message) => match decode::link(&message) {
                Ok((index, name)) => links.insert(name, index),
                Err(error) => bad = Some(error),
            },
        })?;
        whole(bad)
    }

    /// Addresses are few, and their dump may be torn: they are handed on when it is whole.
    fn addresses(&mut self, moment: &mut Moment) -> Result<(), Error> {
        let mut request = Batch::new();
        request_for(&mut request, RTM_GETADDR, &[0; 8], None)?;
        let (mut found, mut bad) = (Vec::<SeenAddress>::new(), None);
        self.connection.dump(&mut request, &mut |dumped| match dumped {
            Dumped::Restart => found.clear(),
            Dumped::Object(message) => match decode::address(&message, &moment.links) {
                Ok(address) => found.extend(address),
                Err(error) => bad = Some(error),
            },
        })?;
        whole(bad)?;
        for SeenAddress { key, address, protocol, is_secondary } in found {
            let owner = address_owner(protocol, self.protocol);
            moment.addresses.push(Standing { key, owner: owner.clone(), is_secondary });
            self.hand_on(Key::Address(key), Object::Address(address), owner);
        }
        Ok(())
    }

    fn routes(
        &mut self,
        moment: &mut Moment,
        routes: Routes,
        (family, table): (u8, Option<Table>),
    ) -> Result<(), Error> {
        let mut request = Batch::new();
        let fixed = [family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        request_for(&mut request, RTM_GETROUTE, &fixed, table)?;
        let Moment { links, foreign, .. } = moment;
        let (mut names, mut bad, mut torn) = (Names::new(links), None, false);
        let Look { connection, protocol, view, see } = self;
        let mut each = |message: Message<'_>| -> Result<(), Malformed> {
            let Some(seen) = decode::route(&message, &mut names)? else { return Ok(()) };
            let owner = route_owner(seen.protocol, *protocol);
            if matches!(owner, Owner::Foreign(_)) {
                foreign.note(&seen.key, &seen.route, &owner);
            }
            let (key, object) = (Key::Route(seen.key), Object::Route(seen.route));
            if routes == Routes::HandOn && view.focus.covers(&key) {
                see(Seen::Present { key, object, owner });
            }
            Ok(())
        };
        let dumped = connection.dump(&mut request, &mut |dumped| match dumped {
            Dumped::Restart => torn = true,
            // What was handed on cannot be taken back, so a torn dump is no look at all.
            Dumped::Object(_) if torn => {}
            Dumped::Object(message) => bad = each(message).err().or(bad),
        });
        match dumped {
            Err(Error::Refused(refusal)) if is_no_table(&refusal, table) => Ok(()),
            Err(error) => Err(error),
            Ok(()) if torn => Err(Error::Torn { tries: 1 }),
            Ok(()) => whole(bad),
        }
    }

    /// Dumps what is few, and keeps it until the dump is whole.
    pub(crate) fn collect<T>(
        &mut self,
        request: &mut Batch,
        mut read: impl FnMut(&Message<'_>) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>, Error> {
        let (mut found, mut bad) = (Vec::new(), None);
        let dumped = self.connection.dump(request, &mut |dumped| match dumped {
            Dumped::Restart => found.clear(),
            Dumped::Object(message) => match read(&message) {
                Ok(one) => found.extend(one),
                Err(error) => bad = Some(error),
            },
        });
        match dumped {
            // A kernel that was built without a kind has none of it.
            Err(Error::Refused(refusal)) if refusal.errno == Errno::OPNOTSUPP => Ok(Vec::new()),
            Err(error) => Err(error),
            Ok(()) => whole(bad).map(|()| found),
        }
    }

    pub(crate) fn hand_on(&mut self, key: Key, object: Object, owner: Owner) {
        if self.view.focus.covers(&key) {
            (self.see)(Seen::Present { key, object, owner });
        }
    }
}

/// The family and table of a route.
fn place(key: &Key) -> Option<(u8, Option<Table>)> {
    match key {
        Key::Route(key) => {
            Some((if key.is_ipv4() { AF_INET } else { AF_INET6 }, Some(key.table())))
        }
        _ => None,
    }
}

/// A table that nobody ever used has no routes.
fn is_no_table(refusal: &homeostat_netlink::Refusal, table: Option<Table>) -> bool {
    table.is_some() && refusal.errno == Errno::NOENT
}

pub(crate) fn request_for(
    request: &mut Batch,
    kind: u16,
    fixed: &[u8],
    table: Option<Table>,
) -> Result<(), Error> {
    let mut message = request.message(kind, 0);
    message.fixed(fixed);
    if let Some(Table(table)) = table {
        message.attr_u32(RTA_TABLE, table);
    }
    message.finish()
}

/// An object that cannot be read has no key, so nobody can say what is absent.
fn whole(bad: Option<Malformed>) -> Result<(), Error> {
    bad.map_or(Ok(()), |bad| Err(Error::Malformed(bad)))
}

pub(crate) fn route_owner(protocol: Protocol, ours: Protocol) -> Owner {
    match protocol {
        protocol if protocol == ours => Owner::Ours,
        Protocol(RTPROT_KERNEL | RTPROT_REDIRECT) => Owner::Kernel,
        protocol => foreign(protocol),
    }
}

/// The kernel marks what it makes by itself with 1 to 3: loopback, router advertisement, link-local.
fn address_owner(protocol: Protocol, ours: Protocol) -> Owner {
    match protocol {
        protocol if protocol == ours => Owner::Ours,
        Protocol(1..=3) => Owner::Kernel,
        protocol => foreign(protocol),
    }
}

pub(crate) fn foreign(protocol: Protocol) -> Owner {
    match protocol.name() {
        Some(name) => Owner::foreign(name),
        None => Owner::Foreign(Cow::Owned(format!("protocol {}", protocol.0))),
    }
}
