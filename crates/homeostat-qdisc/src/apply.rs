//! The only writer: the requests of a step in one send, with the handles of qdiscs as their preconditions.

use std::collections::BTreeSet;

use homeostat_core::{
    Agreement, Desired as _, Failure, Outcome, Outcomes, Owner, Retry, Snapshot, Work,
};
use homeostat_netlink::{Answer, Batch, Errno, Error, Refusal};

use crate::kernel::{Kernel, failure};
use crate::key::{Key, LinkName, Side as KeySide};
use crate::model::{ClassId, DesiredState, Object, Qdisc, Root, Side};
use crate::observe::whole;
use crate::snapshot::Copied;
use crate::source::Qdiscs;
use crate::step::{How, Place, Step, Update};
use crate::wire::{Ground, ROOT, Reported, Requests};

/// Writes qdiscs, classes and filters.
#[derive(Debug)]
pub struct Writer {
    pub(crate) source: Qdiscs,
}

/// The requests of one step, with what each is about.
struct Written<'a> {
    requests: Requests<'a>,
    /// Of each request: the kind that the kernel must know for it.
    kinds: Vec<Option<String>>,
}

impl homeostat_core::Writer<Qdiscs> for Writer {
    async fn apply(&self, work: Work<'_, Qdiscs>, out: &dyn Outcomes<Object>) {
        let mut kernel = match self.source.kernel() {
            Ok(kernel) => kernel,
            Err(failure) => {
                out.put(work.first..work.first + work.steps.len(), Outcome::Failed(failure));
                return;
            }
        };
        for (at, step) in work.iter() {
            out.put(at..at + 1, apply(&mut kernel, step, work.desired));
        }
    }

    async fn restore(&self, key: &Key, snapshot: &Snapshot) -> Outcome<Object> {
        restore(&self.source, key, snapshot).unwrap_or_else(Outcome::Failed)
    }
}

fn restore(source: &Qdiscs, key: &Key, snapshot: &Snapshot) -> Result<Outcome<Object>, Failure> {
    // An ingress is never taken away from its owner.
    if key.side == KeySide::Ingress {
        return Ok(Outcome::Applied { now: None });
    }
    let unreadable = || Failure::new(format!("the copy of `{key}` cannot be read"), Retry::Never);
    let copied = Copied::parse(snapshot).ok_or_else(unreadable)?;
    let mut kernel = source.kernel()?;
    let link = kernel.links(&BTreeSet::from([&key.link])).map_err(|error| failure(&error))?;
    let Some(link) = link.get(&key.link).copied() else {
        let error = format!("the link {} is absent", key.link);
        return Err(Failure::new(error, Retry::OnChange));
    };
    let mut batch = Batch::new();
    let mut requests = Requests { batch: &mut batch, link };
    copied.write(&mut requests).map_err(|error| failure(&error))?;
    Ok(match send(&mut kernel, &mut batch) {
        Ok(refused) if refused.is_empty() => Outcome::Applied { now: None },
        Ok(refused) if refused.iter().any(|(_, one)| one.errno == Errno::EXIST) => {
            Outcome::Conflict { owner: Owner::foreign("another program") }
        }
        Ok(mut refused) => match refused.pop() {
            Some((_, refusal)) => Outcome::Failed(explained(&refusal, None, &key.link)),
            None => Outcome::Applied { now: None },
        },
        Err(error) => unanswered(&error),
    })
}

fn apply(kernel: &mut Kernel, step: &Step, desired: &DesiredState) -> Outcome<Object> {
    let link = match step {
        Step::Create { place, .. } => place.link,
        Step::Update(update) => update.place.link,
        Step::Delete(delete) => delete.link,
        Step::GiveBack(step) => step.link,
    };
    let mut batch = Batch::new();
    let requests = Requests { batch: &mut batch, link };
    let mut written = Written { requests, kinds: Vec::new() };
    if let Err(error) = write(&mut written, step, desired) {
        return Outcome::Failed(failure(&error));
    }
    let kinds = written.kinds;
    let refused = match send(kernel, &mut batch) {
        Ok(refused) => refused,
        Err(error) => return unanswered(&error),
    };
    let Some((at, refusal)) = refused.into_iter().min_by_key(|(at, _)| *at) else {
        // The second look finds what went wrong with this one.
        let settled = settled(kernel, step, desired, link).ok().flatten();
        return settled.map_or(Outcome::Applied { now: None }, |held| Outcome::Settled { held });
    };
    let makes = matches!(step, Step::Create { .. })
        || matches!(step, Step::Update(update) if update.how == How::Again);
    if at > 0 && makes {
        // Half of it would be taken for what another program has made.
        let _ = undo(kernel, step, desired, link);
    }
    let kind = kinds.get(at).cloned().flatten();
    Outcome::Failed(explained(&refusal, kind.as_deref(), step.link(desired)))
}

/// What the kernel holds in place of what is declared, if it does so twice in a row: it has rounded it, or it does not know
/// an option.
fn settled(
    kernel: &mut Kernel,
    step: &Step,
    desired: &DesiredState,
    link: u32,
) -> Result<Option<Object>, Error> {
    let slot = match step {
        Step::Create { slot, .. } => *slot,
        Step::Update(update) => update.slot,
        Step::Delete(_) | Step::GiveBack(_) => return Ok(None),
    };
    let Side::Root(wanted) = &desired.at(slot).1.side else { return Ok(None) };
    let mut held: Option<Object> = None;
    for _ in 0..2 {
        let qdiscs = kernel.qdiscs()?;
        let is_it = |one: &&Reported| one.tc.link == link && one.is_root() && one.tc.handle == ROOT;
        let Some(seen) = qdiscs.iter().find(is_it) else { return Ok(None) };
        let root = whole(kernel, seen, &qdiscs)?;
        let now = Object { link: Some(link), ..Object::new(Side::Root(root.clone())) };
        if desired.compare(slot, &now) == Agreement::Agrees || !wanted.can_change(&root) {
            return Ok(None);
        }
        if held.as_ref() == Some(&now) {
            return Ok(held);
        }
        held = Some(now);
        let mut batch = Batch::new();
        let requests = Requests { batch: &mut batch, link };
        let mut written = Written { requests, kinds: Vec::new() };
        written.change(wanted, &root)?;
        send(kernel, &mut batch)?;
    }
    Ok(None)
}

/// Deletes what the first requests of a step have made.
fn undo(kernel: &mut Kernel, step: &Step, desired: &DesiredState, link: u32) -> Result<(), Error> {
    let mut batch = Batch::new();
    let mut requests = Requests { batch: &mut batch, link };
    match homeostat_core::Step::<DesiredState>::key(step, desired).side {
        KeySide::Root => requests.delete_root()?,
        KeySide::Ingress => requests.delete_ingress()?,
    }
    send(kernel, &mut batch).map(|_| ())
}

fn write(
    written: &mut Written<'_>,
    step: &Step,
    desired: &DesiredState,
) -> homeostat_netlink::Result<()> {
    match step {
        Step::Create { slot, place } => match &desired.at(*slot).1.side {
            Side::Root(root) => written.make(root, Ground::Free),
            Side::Ingress(_) => {
                written.requests.put_ingress()?;
                written.kinds.push(Some("ingress".to_owned()));
                written.redirect(*place)
            }
        },
        Step::Update(update) => written.update(update, desired),
        Step::Delete(delete) => match delete.before.side {
            Side::Root(_) => written.requests.delete_root(),
            Side::Ingress(_) => written.requests.delete_ingress(),
        },
        Step::GiveBack(step) => match (&step.before.side, &step.copied) {
            (Side::Root(_), Some(copied)) => {
                written.requests.delete_root()?;
                copied.write(&mut written.requests)
            }
            (Side::Root(_), None) => written.requests.delete_root(),
            (Side::Ingress(_), _) => written.requests.delete_redirect(),
        },
    }
}

impl Written<'_> {
    fn put_root(&mut self, qdisc: &Qdisc, ground: Ground) -> homeostat_netlink::Result<()> {
        self.kinds.push(Some(qdisc.kind.clone()));
        self.requests.put_root(qdisc, ground)
    }

    fn put_leaf(
        &mut self,
        class: ClassId,
        qdisc: &Qdisc,
        ground: Ground,
    ) -> homeostat_netlink::Result<()> {
        self.kinds.push(Some(qdisc.kind.clone()));
        self.requests.put_leaf(class, qdisc, ground)
    }

    fn redirect(&mut self, place: Place) -> homeostat_netlink::Result<()> {
        let Some(to) = place.to else { return Ok(()) };
        self.kinds.push(Some("matchall".to_owned()));
        self.requests.put_redirect(to)
    }

    /// Makes a root with all that is below it.
    fn make(&mut self, root: &Root, ground: Ground) -> homeostat_netlink::Result<()> {
        self.put_root(&root.qdisc, ground)?;
        for id in root.top_down() {
            let Some(class) = root.classes.get(&id) else { continue };
            self.kinds.push(None);
            self.requests.put_class(id, class, Ground::Free)?;
            if let Some(leaf) = &class.leaf {
                self.put_leaf(id, leaf, Ground::Any)?;
            }
        }
        Ok(())
    }

    fn update(&mut self, update: &Update, desired: &DesiredState) -> homeostat_netlink::Result<()> {
        match (&desired.at(update.slot).1.side, &update.before.side, update.how) {
            (Side::Root(wanted), Side::Root(seen), How::InPlace) => self.change(wanted, seen),
            (Side::Root(wanted), _, How::Over) => self.make(wanted, Ground::Any),
            (Side::Root(wanted), _, _) => {
                self.kinds.push(None);
                self.requests.delete_root()?;
                self.make(wanted, Ground::Free)
            }
            (Side::Ingress(_), _, how) => {
                if how == (How::Redirect { clears: true }) {
                    self.kinds.push(None);
                    self.requests.delete_redirect()?;
                }
                self.redirect(update.place)
            }
        }
    }

    /// Sends what differs. New classes come before those that they replace go, so that packets always have one.
    fn change(&mut self, wanted: &Root, seen: &Root) -> homeostat_netlink::Result<()> {
        if wanted.qdisc != seen.qdisc
            && wanted.qdisc.spec().is_some_and(|spec| {
                spec.is_changeable && !spec.agrees(&wanted.qdisc.options, &seen.qdisc.options)
            })
        {
            self.put_root(&wanted.qdisc, Ground::There)?;
        }
        for id in wanted.top_down() {
            let Some(class) = wanted.classes.get(&id) else { continue };
            let before = seen.classes.get(&id);
            match before {
                Some(before) if class.agrees(before) => {}
                before => {
                    let ground = if before.is_some() { Ground::There } else { Ground::Free };
                    self.kinds.push(None);
                    self.requests.put_class(id, class, ground)?;
                }
            }
            if before.is_some_and(|before| class.leaf_agrees(before)) {
                continue;
            }
            match (&class.leaf, before.and_then(|before| before.leaf.as_ref())) {
                (None, None) => {}
                (None, Some(_)) => {
                    self.kinds.push(None);
                    self.requests.delete_leaf(id)?;
                }
                (Some(leaf), Some(before)) if leaf.can_change(before) => {
                    self.put_leaf(id, leaf, Ground::There)?;
                }
                (Some(leaf), before) => {
                    if before.is_some() {
                        self.kinds.push(None);
                        self.requests.delete_leaf(id)?;
                    }
                    self.put_leaf(id, leaf, Ground::Any)?;
                }
            }
        }
        for id in seen.top_down().into_iter().rev() {
            if !wanted.classes.contains_key(&id) {
                self.kinds.push(None);
                self.requests.delete_class(id)?;
            }
        }
        Ok(())
    }
}

/// Sends the requests, and returns those that were refused, by their place.
fn send(kernel: &mut Kernel, batch: &mut Batch) -> Result<Vec<(usize, Refusal)>, Error> {
    let (mut refused, mut is_lost) = (Vec::new(), false);
    kernel.0.run(batch, &mut |at, answer| match answer {
        Answer::Refused(refusal) => refused.push((at, refusal)),
        Answer::Unknown => is_lost = true,
        Answer::Done | Answer::Reply(_) => {}
    })?;
    if is_lost { Err(Error::AnswerLost) } else { Ok(refused) }
}

/// Whether it was written shows the second look.
fn unanswered(error: &Error) -> Outcome<Object> {
    match error.errno() {
        Some(Errno::PERM) => Outcome::Failed(failure(error)),
        _ => Outcome::Unknown { why: error.to_string() },
    }
}

fn explained(refusal: &Refusal, kind: Option<&str>, link: &LinkName) -> Failure {
    let words = refusal.text.as_deref().unwrap_or_default();
    let missing = |what: String, module: &str| {
        let help = format!(
            "load the module that brings it: modprobe {module}; Debian and Ubuntu have some of them in \
             linux-modules-extra"
        );
        Failure::new(what, Retry::OnChange).with_help(help)
    };
    match (refusal.errno, kind) {
        (Errno::NODEV, _) => Failure::new(format!("the link {link} went meanwhile"), Retry::Now),
        (Errno::EXIST, _) => {
            Failure::new("another program has put one there meanwhile", Retry::Now)
        }
        (Errno::PERM, _) => Failure::new(refusal.to_string(), Retry::Never)
            .with_help("run it as root, or with CAP_NET_ADMIN in this network namespace"),
        (Errno::NOENT, Some("matchall")) if words.contains("action") => {
            missing("the kernel has no action `mirred`".to_owned(), "act_mirred")
        }
        (Errno::NOENT, Some("matchall")) => {
            missing("the kernel has no filter `matchall`".to_owned(), "cls_matchall")
        }
        (Errno::NOENT, Some(kind)) if words.contains("unknown") || words.is_empty() => {
            missing(format!("the kernel has no qdisc `{kind}`"), &format!("sch_{kind}"))
        }
        (Errno::NOENT | Errno::INVAL, None) if words.is_empty() => {
            Failure::new(format!("what was there has changed meanwhile ({refusal})"), Retry::Now)
        }
        (Errno::INVAL, Some(kind)) => {
            Failure::new(format!("the kernel refuses this `{kind}`: {refusal}"), Retry::OnChange)
        }
        _ => Failure::new(refusal.to_string(), Retry::Soon),
    }
}
