//! The only writer: many requests at once, an answer for each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_core::{Failure, Outcome, Outcomes, Owner, Retry, Snapshot, WaitsOn, Work};
use homeostat_netlink::uapi::{NLM_F_ECHO, RTM_NEWADDR, RTM_NEWROUTE};
use homeostat_netlink::{Answer, Batch, Connection, Errno, Error, Message, Refusal};

use crate::address::{AddressKey, is_link_local};
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::kinds::Refs;
use crate::link::message::Parts;
use crate::link::model::Field;
use crate::link::sysctls::Sysctls;
use crate::link::{self, LinkName, Links};
use crate::message::{Encoder, LinkNames, NoLink, Put};
use crate::moment::{Extent, Moment};
use crate::number::Protocol;
use crate::object::Object;
use crate::requests::{Goal, Request, RequestWriter};
use crate::snapshot::{self, Copied, FormerLink, Place};
use crate::source::Rtnl;
use crate::step::Step;
use crate::{address, route};

/// How many bytes of requests are written before they are sent: a few sends at once.
const FULL: usize = 512 << 10;

/// Up to so many steps, the kernel is asked to send back what it made of each.
const FEW: usize = 1000;

/// Writes everything but links in large batches, and links one by one.
pub struct Writer {
    source: Rtnl,
    buffers: Mutex<Buffers>,
}

/// What is kept between two calls: the connection, memory for requests, and what our steps changed.
#[derive(Default)]
struct Buffers {
    connection: Option<Connection>,
    batch: Batch,
    requests: Vec<Request>,
    since: AppliedSince,
}

/// What our own steps changed since a moment was observed.
#[derive(Default)]
struct AppliedSince {
    /// The token of the moment.
    token: Arc<()>,
    /// The links, if steps were about links.
    links: Option<Links>,
    /// The rules that no longer stand where they were seen.
    moved: BTreeSet<usize>,
}

impl Writer {
    pub(crate) fn open(source: Rtnl) -> Result<Self, Failure> {
        let writer = Writer { source, buffers: Mutex::default() };
        writer.buffers().connection = Some(writer.connect()?);
        Ok(writer)
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self) -> Result<Connection, Failure> {
        let connection = self.source.connect()?;
        self.source.own_writes.add_port(connection.socket().port());
        Ok(connection)
    }

    fn run(&self, work: &Work<'_, Rtnl>, out: &dyn Outcomes<Object>) -> Result<(), Failure> {
        let mut buffers = self.buffers();
        let Buffers { connection, batch, requests, since } = &mut *buffers;
        let mut open = match connection.take() {
            Some(open) => open,
            None => self.connect()?,
        };
        let mut outcomes = OutcomeBuffer { out, good: None, has_made: false };
        if !Arc::ptr_eq(&since.token, &work.moment.token) {
            *since =
                AppliedSince { token: Arc::clone(&work.moment.token), ..AppliedSince::default() };
        }
        // The phases of links have no other steps.
        if matches!(work.steps.first(), Some(Step::Link(_))) {
            let now = since.links.take().unwrap_or_else(|| work.moment.links.clone());
            let mut has_failed = false;
            let report = &mut |at, outcome| {
                has_failed |= matches!(outcome, Outcome::Failed(_) | Outcome::Unknown { .. });
                outcomes.put(at, outcome);
            };
            let now = link::apply::run(work, &self.source, &mut open, now, report);
            outcomes.flush();
            since.links = Some(now);
            // After a failure an answer may still be on its way there, so the next call opens another connection.
            *connection = (!has_failed).then_some(open);
            return Ok(());
        }
        let AppliedSince { links, moved, .. } = since;
        let links = links.as_ref().unwrap_or(&work.moment.links);
        let (echo, echo_filter) = match work.moment.extent {
            _ if work.steps.len() <= FEW => (NLM_F_ECHO, None),
            // The queue has room for the events of as many keys as a focus may have, and they verify the steps.
            Extent::Few => (0, None),
            Extent::Whole => (0, self.source.own_writes.mute_echoes(open.socket().port())),
        };
        let mut steps = work.iter().peekable();
        while steps.peek().is_some() {
            batch.clear();
            requests.clear();
            while batch.bytes().len() < FULL
                && let Some((at, step)) = steps.next()
            {
                let (moment, own_writes) = (work.moment, &self.source.own_writes);
                let protocol = self.source.protocol;
                let address_marks = self.source.address_marks;
                let encoder = Encoder { batch, links, protocol, address_marks, echo };
                let mut writer =
                    RequestWriter { encoder, requests, step: at, moment, moved, own_writes };
                if let Err(outcome) = writer.write(work.desired, step) {
                    outcomes.put(at, outcome);
                }
            }
            send(&mut open, batch, requests, work, &mut outcomes)?;
        }
        if let Some(echo_filter) = echo_filter.filter(|_| !outcomes.has_made) {
            echo_filter.dropped_nothing();
        }
        *connection = Some(open);
        Ok(())
    }
}

impl homeostat_core::Writer<Rtnl> for Writer {
    async fn apply(&self, work: Work<'_, Rtnl>, out: &dyn Outcomes<Object>) {
        if let Err(failure) = self.run(&work, out) {
            // The first outcome of a step stands: this is for steps that were never sent.
            out.put(work.first..work.first + work.steps.len(), Outcome::Failed(failure));
        }
    }

    async fn restore(&self, key: &Key, snapshot: &Snapshot) -> Outcome<Object> {
        let restored = match key {
            Key::Link(name) => self.put_as_it_was(*name, snapshot),
            Key::LinkField(name, Field::Mtu) => self.raise_mtu(*name, snapshot),
            Key::LinkField(name, _) => self.put_into_place(*name, snapshot),
            Key::LinkSysctls(name, _) => self.put_sysctls(*name, snapshot),
            Key::Ports(bridge) => self.connect().and_then(|mut connection| {
                link::ports::put_right(&mut connection, *bridge, snapshot)
            }),
            Key::AddressOrder(link) => self.connect().and_then(|mut connection| {
                address::order::put_right(&self.source, &mut connection, *link, snapshot)
            }),
            Key::Address(key) => self.put_back(snapshot).and_then(|outcome| {
                self.drop_newer_link_local(key, snapshot)?;
                Ok(outcome)
            }),
            _ => self.put_back(snapshot),
        };
        restored.unwrap_or_else(Outcome::Failed)
    }
}

impl Writer {
    /// Gives a link of ours back what no desired state says of it: a pass has made it again, or has changed only what is
    /// declared.
    fn put_as_it_was(
        &self,
        name: LinkName,
        snapshot: &Snapshot,
    ) -> Result<Outcome<Object>, Failure> {
        let Some(former) = FormerLink::parse(snapshot) else {
            return Err(Failure::new("its record cannot be read", Retry::Never));
        };
        let mut connection = self.connect()?;
        let Some(seen) = link::observe::find(&mut connection, name) else {
            return Ok(Outcome::Pending { on: WaitsOn::link(name.to_string()) });
        };
        let links = snapshot::links(&mut connection).map_err(|error| failure(&error))?;
        let master = former.link.master.map(|master| links.index(master).ok_or(master));
        let master = match master.transpose() {
            Ok(master) => master,
            Err(master) => return Ok(Outcome::Pending { on: WaitsOn::link(master.to_string()) }),
        };
        let lost = if seen.is_up() && former.link.up == Some(false) {
            snapshot::lost_when_down(&mut connection, &links, name)
                .map_err(|error| failure(&error))?
        } else {
            BTreeMap::new()
        };
        let mut outcome = Outcome::Applied { now: None };
        for parts in link::message::differences(&seen, &former.link, master, &former.mark.alias) {
            let write = |batch: &mut Batch| {
                link::message::change(batch, seen.index, &parts, &Refs::default())
            };
            match link::observe::ask(&mut connection, write, &mut |_| {}) {
                Ok(()) => {}
                Err(Error::Refused(refusal)) => outcome = Outcome::Failed(refused(&refusal)),
                Err(error) => return Err(failure(&error)),
            }
        }
        for snapshot in lost.values() {
            self.put_back(snapshot)?;
        }
        Ok(outcome)
    }

    /// Gives a link back the MTU that the kernel has lowered along with that of the link below it.
    fn raise_mtu(&self, name: LinkName, snapshot: &Snapshot) -> Result<Outcome<Object>, Failure> {
        let mut connection = self.connect()?;
        let (mtu, seen) = (snapshot.0.parse().ok(), link::observe::find(&mut connection, name));
        if let Some(seen) = seen.filter(|seen| seen.link.mtu < mtu) {
            let parts = Parts { mtu, ..Parts::default() };
            let write = |batch: &mut Batch| {
                link::message::change(batch, seen.index, &parts, &Refs::default())
            };
            link::observe::ask(&mut connection, write, &mut |_| {}).map_err(|it| failure(&it))?;
        }
        Ok(Outcome::Applied { now: None })
    }

    /// Gives a link back what the kernel has forgotten of it.
    fn put_sysctls(&self, name: LinkName, snapshot: &Snapshot) -> Result<Outcome<Object>, Failure> {
        let Ok(sysctls) = serde_json::from_str::<Sysctls>(&snapshot.0) else {
            return Err(Failure::new("what was recorded of it cannot be read", Retry::Never));
        };
        self.source.run(|| sysctls.write(name))??;
        Ok(Outcome::Applied { now: None })
    }

    /// Puts a link into the bridge, bond or VRF that it was in, unless it has another one meanwhile, and sets what was set
    /// there.
    fn put_into_place(
        &self,
        name: LinkName,
        snapshot: &Snapshot,
    ) -> Result<Outcome<Object>, Failure> {
        let Some(place) = Place::parse(snapshot) else {
            return Err(Failure::new("its record cannot be read", Retry::Never));
        };
        let mut connection = self.connect()?;
        let mut found = |name| {
            let pending = Outcome::Pending { on: WaitsOn::link(LinkName::to_string(&name)) };
            link::observe::find(&mut connection, name).ok_or(pending)
        };
        let (seen, master) = match (found(name), found(place.master)) {
            (Ok(seen), Ok(master)) => (seen, master.index),
            (Err(pending), _) | (_, Err(pending)) => return Ok(pending),
        };
        let mut batch = Batch::new();
        match seen.master {
            Some(other) if other != master => {
                return Ok(Outcome::Conflict {
                    owner: Owner::foreign("another program, which was quicker"),
                });
            }
            Some(_) => {}
            None => {
                let parts = Parts { master: Some(master), ..Parts::default() };
                link::message::change(&mut batch, seen.index, &parts, &Refs::default())
                    .map_err(|error| failure(&error))?;
            }
        }
        if place.has_options() {
            place.set(&mut batch, seen.index).map_err(|error| failure(&error))?;
        }
        let mut outcome = Outcome::Applied { now: None };
        let ran = connection.run(&mut batch, &mut |_, answer| {
            if let Answer::Refused(refusal) = answer {
                outcome = Outcome::Failed(refused(&refusal));
            }
        });
        ran.map_err(|error| failure(&error))?;
        if matches!(outcome, Outcome::Applied { .. }) {
            let set = place.set_vlans(&mut connection, seen.index);
            let set = set.and_then(|()| place.set_forwarding(&mut connection, seen.index, master));
            set.map_err(|error| failure(&error))?;
        }
        Ok(outcome)
    }

    /// Deletes the link-local address that the kernel has made from the present hardware address of a link, if the one
    /// that it had made before is back.
    fn drop_newer_link_local(&self, key: &AddressKey, snapshot: &Snapshot) -> Result<(), Failure> {
        let is_made = |copied: Copied| copied.is_the_kernels();
        if !is_link_local(key.ip) || !Copied::parse(snapshot).is_some_and(is_made) {
            return Ok(());
        }
        let mut connection = self.connect()?;
        let newer = |ip: IpAddr, protocol: Protocol| {
            is_link_local(ip) && ip != key.ip && matches!(protocol, Protocol(1..=3))
        };
        let Some(seen) = link::observe::find(&mut connection, key.link) else { return Ok(()) };
        address::delete_on_link(&mut connection, seen.index, &newer)
            .map_err(|error| failure(&error))
    }

    /// Sends the request of a snapshot, if nothing is on its key.
    fn put_back(&self, snapshot: &Snapshot) -> Result<Outcome<Object>, Failure> {
        let Some(copied) = Copied::parse(snapshot) else {
            return Err(Failure::new("its record cannot be read", Retry::Never));
        };
        if copied.is_over() {
            return Err(Failure::new("its time has run out meanwhile", Retry::Never));
        }
        let (mut connection, mut batch) = (self.connect()?, Batch::new());
        let links = snapshot::links(&mut connection).map_err(|error| failure(&error))?;
        let (protocol, address_marks) = (self.source.protocol, self.source.address_marks);
        let mut encoder =
            Encoder { batch: &mut batch, links: &links, protocol, address_marks, echo: 0 };
        match snapshot::put_back(&mut encoder, &copied, Put::Create.flags()) {
            Ok(written) => written.map_err(|error| Failure::from_error(&error, Retry::Never))?,
            Err(NoLink(link)) => {
                return Ok(Outcome::Pending { on: WaitsOn::link(link.to_string()) });
            }
        }
        let mut outcome = Outcome::Unknown { why: "the kernel's answer was lost".to_owned() };
        let ran = connection.run(&mut batch, &mut |_, answer| {
            if let Some(judged) = judge(Goal::Create, Extent::Whole, answer) {
                outcome = judged;
            }
        });
        ran.map_err(|error| failure(&error))?;
        // The kernel has made its own again by itself.
        let is_back = matches!(outcome, Outcome::Conflict { .. }) && copied.is_the_kernels();
        Ok(if is_back { Outcome::Applied { now: None } } else { outcome })
    }
}

/// Runs a batch and reports the outcome of every step in it.
fn send(
    connection: &mut Connection,
    batch: &mut Batch,
    requests: &[Request],
    work: &Work<'_, Rtnl>,
    outcomes: &mut OutcomeBuffer<'_>,
) -> Result<(), Failure> {
    let moment = work.moment;
    let mut failed = None;
    let mut echoes = BTreeMap::new();
    let ran = connection.run(batch, &mut |place, answer| {
        let Some(request) = requests.get(place) else { return };
        outcomes.has_made |= !matches!(answer, Answer::Refused(_));
        if let Answer::Reply(message) = &answer {
            echoes.extend(object(message, moment, work.desired).map(|object| (place, object)));
        }
        let outcome = judge(request.goal, moment.extent, answer);
        match (request.goal, outcome) {
            (_, None) | (Goal::Any, _) => {}
            (Goal::Recreate, Some(Outcome::Applied { .. })) => failed = None,
            // The failed delete explains more than the "exists" of the create.
            (Goal::Recreate, Some(outcome)) => failed = Some((request.step, outcome)),
            (_, Some(outcome)) => match failed.take() {
                Some((step, earlier)) if step == request.step => outcomes.put(step, earlier),
                _ => outcomes.put(
                    request.step,
                    match outcome {
                        Outcome::Applied { now: None } => {
                            Outcome::Applied { now: echoes.remove(&place) }
                        }
                        outcome => outcome,
                    },
                ),
            },
        }
    });
    outcomes.flush();
    ran.map_err(|error| failure(&error))
}

/// The object that the kernel says it made.
fn object(message: &Message<'_>, moment: &Moment, desired: &DesiredState) -> Option<Object> {
    let links = &moment.links;
    match message.kind {
        RTM_NEWROUTE => {
            let mut seen = route::message::decode(message, &mut LinkNames::new(links)).ok()??;
            moment.gateways.put_into_words(desired, &seen.key, &mut seen.route);
            Some(Object::Route(seen.route))
        }
        RTM_NEWADDR => {
            let seen = address::decode(message, links).ok()??;
            Some(Object::Address(seen.address))
        }
        _ => None,
    }
}

/// The outcome that an answer means; none, if it is an echo.
fn judge(goal: Goal, extent: Extent, answer: Answer<'_>) -> Option<Outcome<Object>> {
    let refusal = match answer {
        Answer::Reply(_) => return None,
        Answer::Done => return Some(Outcome::Applied { now: None }),
        Answer::Unknown => {
            return Some(Outcome::Unknown { why: "the kernel's answer was lost".to_owned() });
        }
        Answer::Refused(refusal) => refusal,
    };
    Some(match (goal, refusal.errno) {
        (
            Goal::Delete | Goal::Recreate,
            Errno::SRCH | Errno::ADDRNOTAVAIL | Errno::NODEV | Errno::NOENT,
        )
        | (Goal::Ensure, Errno::EXIST) => Outcome::Applied { now: None },
        // Something that no event announced has the key: the next full observation says what.
        (Goal::Create, Errno::EXIST) if extent == Extent::Few => {
            Outcome::Unknown { why: "something that was not seen is in its place".to_owned() }
        }
        (Goal::Create, Errno::EXIST) => {
            Outcome::Conflict { owner: Owner::foreign("another program, which was quicker") }
        }
        _ => Outcome::Failed(refused(&refusal)),
    })
}

/// The kernel's words, with the way out. What depends on links and addresses may do better later:
/// even EINVAL, as for the source address of an IPv6 route while that is tentative.
fn refused(refusal: &Refusal) -> Failure {
    match refusal.errno {
        Errno::PERM | Errno::ACCESS => Failure::from_error(refusal, Retry::Never)
            .with_help("run it as root or with CAP_NET_ADMIN, or try it in a sandbox"),
        Errno::OPNOTSUPP | Errno::AFNOSUPPORT => Failure::from_error(refusal, Retry::OnChange),
        _ => Failure::from_error(refusal, Retry::Soon),
    }
}

pub(crate) fn failure(error: &Error) -> Failure {
    match error {
        Error::Refused(refusal) => refused(refusal),
        error => Failure::from_error(error, Retry::Soon),
    }
}

/// Reports outcomes; successes of adjacent steps are reported as one range.
struct OutcomeBuffer<'a> {
    out: &'a dyn Outcomes<Object>,
    good: Option<std::ops::Range<usize>>,
    /// Whether the kernel may have done anything.
    has_made: bool,
}

impl OutcomeBuffer<'_> {
    fn put(&mut self, step: usize, outcome: Outcome<Object>) {
        match (&mut self.good, &outcome) {
            (Some(good), Outcome::Applied { now: None }) if good.end == step => good.end += 1,
            (_, Outcome::Applied { now: None }) => {
                self.flush();
                self.good = Some(step..step + 1);
            }
            _ => self.out.put(step..step + 1, outcome),
        }
    }

    fn flush(&mut self) {
        if let Some(good) = self.good.take() {
            self.out.put(good, Outcome::Applied { now: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(goal: Goal, errno: Errno) -> String {
        judged_after(Extent::Whole, goal, errno)
    }

    fn judged_after(extent: Extent, goal: Goal, errno: Errno) -> String {
        let refusal = Refusal { errno, text: Some("Words.".into()), offset: None };
        match judge(goal, extent, Answer::Refused(refusal)).unwrap() {
            Outcome::Applied { .. } => "applied".to_owned(),
            Outcome::Conflict { .. } => "conflict".to_owned(),
            Outcome::Unknown { .. } => "unknown".to_owned(),
            Outcome::Failed(failure) => {
                assert!(failure.error.starts_with("Words"), "{failure}");
                format!("{:?}{}", failure.retry, if failure.help.is_some() { " help" } else { "" })
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_refusal_means_what_its_step_was_after() {
        for (goal, errno, outcome) in [
            (Goal::Create, Errno::EXIST, "conflict"),
            (Goal::Ensure, Errno::EXIST, "applied"),
            (Goal::Create, Errno::NETUNREACH, "Soon"),
            (Goal::Create, Errno::NETDOWN, "Soon"),
            (Goal::Create, Errno::INVAL, "Soon"),
            (Goal::Create, Errno::NODEV, "Soon"),
            (Goal::Create, Errno::PERM, "Never help"),
            (Goal::Create, Errno::OPNOTSUPP, "OnChange"),
            (Goal::Delete, Errno::SRCH, "applied"),
            (Goal::Delete, Errno::ADDRNOTAVAIL, "applied"),
            (Goal::Delete, Errno::NODEV, "applied"),
            (Goal::Delete, Errno::NOENT, "applied"),
            (Goal::Delete, Errno::PERM, "Never help"),
            (Goal::Recreate, Errno::ADDRNOTAVAIL, "applied"),
        ] {
            assert_eq!(judged(goal, errno), outcome, "{errno:?}");
        }
    }

    #[test]
    fn what_exists_after_a_look_at_a_few_keys_is_unknown_and_no_conflict() {
        assert_eq!(judged_after(Extent::Few, Goal::Create, Errno::EXIST), "unknown");
        assert_eq!(judged_after(Extent::Few, Goal::Ensure, Errno::EXIST), "applied");
        assert_eq!(judged_after(Extent::Few, Goal::Delete, Errno::SRCH), "applied");
    }

    #[test]
    fn a_lost_answer_is_unknown() {
        let judged = judge(Goal::Create, Extent::Whole, Answer::Unknown);
        assert!(matches!(judged, Some(Outcome::Unknown { .. })));
    }
}
