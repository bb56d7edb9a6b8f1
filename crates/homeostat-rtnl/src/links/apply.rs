//! Writes links, one after the other: each message waits for the answer to the one before, since a
//! request by name that follows a refused creation could hit somebody else's link.

mod change;

use homeostat_core::{Failure, Outcome, Owner, Retry, WaitsOn, Work};
use homeostat_netlink::{Batch, Connection, Errno, Error, Family};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::{IfIndex, LinkName, Links};
use crate::links::cascade::going_with;
use crate::links::decode;
use crate::links::desired::DesiredLink;
use crate::links::encode;
use crate::links::kinds::{LinkKind, Refs};
use crate::links::step::{Act, Cycle, LinkStep};
use crate::links::table::SeenLink;
use crate::links::{elsewhere, refusal, tun};
use crate::model::Object;
use crate::moment::Moment;
use crate::source::Rtnl;
use crate::step::Step;

/// Whether a turn is about links; the phases of links hold nothing else.
pub(crate) fn is_about(work: &Work<'_, Rtnl>) -> bool {
    matches!(work.steps.first(), Some(Step::Link(_)))
}

/// Runs a turn, tells the outcome of each step, and hands back the links as they are now.
pub(crate) fn run(
    work: &Work<'_, Rtnl>,
    source: &Rtnl,
    (connection, links): (&mut Connection, Links),
    tell: &mut dyn FnMut(usize, Outcome<Object>),
) -> Links {
    let mut hand = Hand { desired: work.desired, moment: work.moment, source, connection, links };
    for (at, step) in work.iter() {
        let Step::Link(step) = step else { continue };
        tell(at, hand.write(step).err().unwrap_or(Outcome::Applied { now: None }));
    }
    hand.links
}

/// What becomes of a step that does not go through.
type Written<T = ()> = Result<T, Outcome<Object>>;

struct Hand<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    source: &'a Rtnl,
    connection: &'a mut Connection,
    /// The links as they are after every step so far.
    links: Links,
}

impl Hand<'_> {
    fn write(&mut self, step: &LinkStep) -> Written {
        match (&step.key, &step.act) {
            (Key::LinkField(name, field), Act::Set(cycle)) => {
                let Some(declared) = self.desired.links.field(*name, *field) else { return Ok(()) };
                self.set((*name, *field), &declared.setting, *cycle)
            }
            (Key::LinkField(name, field), Act::Release { restore: Some(original) }) => {
                self.set((*name, *field), original, Cycle::Stay)
            }
            (Key::Link(name), Act::Delete) => self.delete(*name),
            (Key::Link(name), act) => {
                let Some(declared) = self.desired.links.link(*name) else { return Ok(()) };
                match act {
                    Act::Create => self.create(declared),
                    Act::Update(cycle) => self.update(declared, *cycle),
                    Act::Replace => self.delete(*name).and_then(|()| self.create(declared)),
                    Act::Finish => self.prefer(declared),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Sends one request and waits for its answer.
    fn ask(&mut self, write: impl FnOnce(&mut Batch) -> homeostat_netlink::Result<()>) -> Asked {
        ask(self.connection, write, &mut |_| {})
    }

    fn find(&mut self, name: LinkName) -> Option<SeenLink> {
        find(self.connection, name)
    }

    fn index(&self, name: LinkName) -> Written<IfIndex> {
        self.links
            .index(name)
            .ok_or_else(|| Outcome::Pending { on: WaitsOn::Link(name.to_string()) })
    }

    /// Deletes exactly the link that was seen: one that took its name since has another number.
    fn delete(&mut self, name: LinkName) -> Written {
        let Some(seen) = self.moment.table.get(name) else { return Ok(()) };
        let (index, kind) = (seen.index, seen.link.kind.clone());
        match self.ask(|batch| encode::delete(batch, index)) {
            Err(Error::Refused(refusal)) if refusal.errno == Errno::NODEV => {}
            asked => asked.map_err(|error| failed(&error, &kind))?,
        }
        for name in going_with(&self.moment.table, name) {
            self.links.forget(name);
        }
        Ok(())
    }

    /// Makes a link. Should anything fail on the way, it is taken away again: half a link is none.
    fn create(&mut self, declared: &DesiredLink) -> Written {
        self.make(declared)?;
        let Some(seen) = self.find(declared.name) else {
            let why = "it was made, and is not there".to_owned();
            return Err(Outcome::Unknown { why });
        };
        self.links.insert(declared.name, seen.index);
        if let (Some(name), Some(index)) = (declared.peer_here(), seen.peer()) {
            self.links.insert(name, index);
        }
        let dressed = self.dress(declared, &seen).and_then(|()| self.name_other_end(declared));
        if dressed.is_err() && self.ask(|batch| encode::delete(batch, seen.index)).is_ok() {
            self.links.forget(declared.name);
        }
        dressed
    }

    /// Sends the creating message; it carries the group that marks what is ours.
    fn make(&mut self, declared: &DesiredLink) -> Written {
        let (name, link) = (declared.name, &declared.link);
        if matches!(link.kind, LinkKind::Tun(_) | LinkKind::Tap(_)) {
            if let Some(taken) = self.taken(name) {
                return Err(taken);
            }
            let here = self.source.netns().map_err(Outcome::Failed)?;
            return tun::create(&here, name, &link.kind).map_err(Outcome::Failed);
        }
        let refs = self.refs(declared)?;
        let asked = match self.parent_space(declared) {
            None => self.ask(|batch| encode::create(batch, (name, link), &refs, None)),
            Some(space) => {
                let here = self.source.netns().map_err(Outcome::Failed)?;
                let target = Some(elsewhere::fd(&here));
                let there = Connection::open_in(&space, Family::Route);
                let mut there = there.map_err(|error| failed(&error, &link.kind))?;
                let write = |batch: &mut Batch| encode::create(batch, (name, link), &refs, target);
                ask(&mut there, write, &mut |_| {})
            }
        };
        match asked {
            Err(Error::Refused(refusal)) if refusal.errno == Errno::EXIST => {
                let refused = failed(&Error::Refused(refusal), &link.kind);
                Err(self.taken(name).unwrap_or(refused))
            }
            asked => asked.map_err(|error| failed(&error, &link.kind)),
        }
    }

    /// Why a name cannot be given to a link, if another has it.
    fn taken(&mut self, name: LinkName) -> Option<Outcome<Object>> {
        let holder = look_up(self.connection, name)?.name;
        Some(if holder == name {
            quicker()
        } else {
            Outcome::Failed(refusal::second(name, holder))
        })
    }

    /// The namespace of the parent, if that is another one.
    fn parent_space(
        &self,
        declared: &DesiredLink,
    ) -> Option<std::sync::Arc<homeostat_netns::Netns>> {
        let name = declared.link.parent.as_ref()?.namespace.as_deref()?;
        let space = self.moment.elsewhere.get(name).filter(|space| !space.is_here)?;
        Some(std::sync::Arc::clone(&space.netns))
    }

    /// What a link refers to, by number.
    fn refs(&self, declared: &DesiredLink) -> Written<Refs> {
        let parent = declared.link.parent.as_ref().map(|parent| {
            let is_here = self.moment.elsewhere.is_here(parent.namespace.as_deref());
            let there = || self.moment.elsewhere.index(parent);
            let index = if is_here { self.links.index(parent.name) } else { there() };
            index.ok_or_else(|| Outcome::Pending { on: WaitsOn::Link(parent.name.to_string()) })
        });
        let space = declared.peer().and_then(|peer| peer.namespace.as_deref());
        let space = space.and_then(|name| self.moment.elsewhere.get(name));
        let peer_netns = space.map(|space| elsewhere::fd(&space.netns));
        let (parent, group) = (parent.transpose()?, self.source.group());
        Ok(Refs { parent, primary: None, peer_netns, group })
    }
}

/// The link of this name.
fn find(connection: &mut Connection, name: LinkName) -> Option<SeenLink> {
    look_up(connection, name).filter(|seen| seen.name == name)
}

/// Quirk `second-names-answer-too` (Linux 6.18): asked for a name, the kernel also tells of a link that
/// has it as an alternative name.
fn look_up(connection: &mut Connection, name: LinkName) -> Option<SeenLink> {
    let mut found = None;
    let write = |batch: &mut Batch| encode::get(batch, name);
    let asked = ask(connection, write, &mut |message| found = decode::link(&message).ok());
    asked.ok().and(found)
}

type Asked = homeostat_netlink::Result<()>;

fn ask(
    connection: &mut Connection,
    write: impl FnOnce(&mut Batch) -> homeostat_netlink::Result<()>,
    replies: &mut dyn FnMut(homeostat_netlink::Message<'_>),
) -> Asked {
    let mut batch = Batch::new();
    write(&mut batch)?;
    connection.ask(&mut batch, replies)
}

fn failed(error: &Error, kind: &LinkKind) -> Outcome<Object> {
    match error {
        Error::AnswerLost | Error::Timeout(_) => Outcome::Unknown { why: error.to_string() },
        error => Outcome::Failed(refusal::failure(error, kind)),
    }
}

fn quicker() -> Outcome<Object> {
    Outcome::Conflict { owner: Owner::foreign("somebody who was quicker") }
}

/// Why a namespace could not be used.
pub(crate) fn no_netns(error: &homeostat_netns::Error) -> Failure {
    Failure::from_error(error, Retry::Soon)
}
