//! Hints from notifications of the kernel: which of our tables somebody changed, and who did it. Our own commits
//! give no hints. Links that a text means by number are watched as well.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use homeostat_core::Hint;
use homeostat_netlink::uapi::{
    IFLA_IFNAME, NFNLGRP_NFTABLES, NFTA_GEN_PROC_NAME, NFTA_GEN_PROC_PID, RTM_DELLINK, RTM_NEWLINK,
    RTNLGRP_LINK,
};
use homeostat_netlink::{AsyncListener, Connection, Event, Group, Listener, Message};

use crate::desired::DesiredState;
use crate::dump::TABLE_NAME;
use crate::error::Error;
use crate::key::{Family, Key};
use crate::links::{self, Link};
use crate::shadow::Shadow;
use crate::source::{Nft, Ports};
use crate::wire::{NEW_GENERATION, be32, name};

/// Everything that is heard.
pub(crate) struct Ear {
    subscription: Subscription,
    commits: Commits,
    /// What the commits have left of our tables.
    pub(crate) shadow: Shadow,
    /// Links, once a desired state speaks of them.
    pub(crate) links: Option<Links>,
    /// What is heard and not yet told.
    heard: VecDeque<Hint<Key>>,
}

/// A subscription. It waits on a runtime only once somebody asks for hints.
enum Subscription {
    Standing(Listener),
    Waiting(AsyncListener),
    Dead,
}

impl Ear {
    pub(crate) fn open(source: &Nft) -> Result<Self, Error> {
        let listener =
            source.listen(homeostat_netlink::Family::Netfilter, Group(NFNLGRP_NFTABLES))?;
        Ok(Self::on(Subscription::Standing(listener), source))
    }

    /// One that hears nothing of commits.
    pub(crate) fn deaf(source: &Nft) -> Self {
        Self::on(Subscription::Dead, source)
    }

    fn on(subscription: Subscription, source: &Nft) -> Self {
        let (attended, touched) = (BTreeSet::new(), BTreeSet::new());
        let commits = Commits { ours: source.ours.clone(), attended, touched };
        let (shadow, heard) = (Shadow::default(), VecDeque::new());
        Ear { subscription, commits, shadow, links: None, heard }
    }

    pub(crate) fn attend(&mut self, keys: impl Iterator<Item = Key>) {
        self.commits.attended.extend(keys);
    }

    /// Whether it hears of commits.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.subscription, Subscription::Dead)
    }

    /// Takes in what is told already, without waiting. Whoever commits without a pause is not listened to
    /// for ever.
    pub(crate) fn catch_up(&mut self) {
        const MOST: usize = 4096;
        let Ear { subscription, commits, shadow, heard, .. } = self;
        let mut commit = |event: Event<'_>| {
            shadow.hear(&event);
            commits.take(event, heard);
        };
        let was_heard = (0..MOST).map(|_| subscription.receive_now(&mut commit));
        let end = was_heard.into_iter().find(|heard| !matches!(heard, Ok(true)));
        // A subscription that failed is told of when somebody waits for it.
        if matches!(end, Some(Err(_))) {
            shadow.give_up();
        }
    }

    /// The next hint. Nothing is lost if it is dropped while it waits.
    pub(crate) async fn hint(&mut self) -> Result<Hint<Key>, Error> {
        loop {
            if let Some(hint) = self.heard.pop_front() {
                return Ok(hint);
            }
            self.hear().await?;
        }
    }

    /// Waits for one datagram.
    async fn hear(&mut self) -> Result<(), Error> {
        let Ear { subscription, commits, shadow, links, heard } = self;
        let mut commit = |event: Event<'_>| {
            shadow.hear(&event);
            commits.take(event, heard);
        };
        let tables = subscription.receive(&mut commit);
        let Some(Links { subscription, watch, .. }) = links else { return tables.await };
        let mut is_news = false;
        let mut link = |event: Event<'_>| is_news |= watch.take(&event);
        either(tables, subscription.receive(&mut link)).await?;
        if is_news {
            heard.push_back(Hint::Keys(watch.keys()));
        }
        Ok(())
    }
}

/// Whichever comes first. Neither loses anything if it is dropped while it waits.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Pending => other.as_mut().poll(context),
        ready @ Poll::Ready(_) => ready,
    })
    .await
}

impl Subscription {
    /// Hands on one datagram, if there is one.
    fn receive_now(&mut self, each: &mut dyn FnMut(Event<'_>)) -> Result<bool, Error> {
        Ok(match self {
            Subscription::Standing(listener) => listener.receive(each)?,
            Subscription::Waiting(listener) => listener.receive_now(each)?,
            Subscription::Dead => return Err(homeostat_netlink::Error::Dead.into()),
        })
    }

    async fn receive(&mut self, each: &mut (dyn FnMut(Event<'_>) + Send)) -> Result<(), Error> {
        if let Subscription::Standing(_) = self
            && let Subscription::Standing(listener) = std::mem::replace(self, Subscription::Dead)
        {
            *self = Subscription::Waiting(AsyncListener::new(listener)?);
        }
        let Subscription::Waiting(listener) = self else {
            return Err(homeostat_netlink::Error::Dead.into());
        };
        Ok(listener.receive(each).await?)
    }
}

/// What is known of the commits of others.
struct Commits {
    ours: Ports,
    /// Tables that are declared or ours; all others are nobody's business.
    attended: BTreeSet<Key>,
    /// What the commit under way has touched; it ends with its generation.
    touched: BTreeSet<Key>,
}

impl Commits {
    fn take(&mut self, event: Event<'_>, heard: &mut VecDeque<Hint<Key>>) {
        match event {
            Event::Lost => {
                self.touched.clear();
                heard.push_back(Hint::Lost);
            }
            Event::Message(message) if message.kind == NEW_GENERATION => {
                heard.extend(self.end(&message));
                bound(heard);
            }
            Event::Message(message) => self.touch(&message),
        }
    }

    fn touch(&mut self, message: &Message<'_>) {
        let Ok(([family, ..], attrs)) = message.split::<4>() else { return };
        let Ok(name) = name(&attrs, TABLE_NAME) else { return };
        let key = Key { family: Family(*family), name };
        if self.attended.contains(&key) {
            self.touched.insert(key);
        }
    }

    fn end(&mut self, message: &Message<'_>) -> Option<Hint<Key>> {
        let keys: Vec<Key> = std::mem::take(&mut self.touched).into_iter().collect();
        if keys.is_empty() || self.ours.contain(message.port) {
            return None;
        }
        Some(match who(message) {
            Some(who) => Hint::By { who, keys },
            None => Hint::Keys(keys),
        })
    }
}

/// Whoever commits faster than hints are taken fills no memory: what is too much to be told one by one is told as
/// a loss.
fn bound(heard: &mut VecDeque<Hint<Key>>) {
    const MOST: usize = 10_000;
    if heard.len() > MOST {
        heard.clear();
        heard.push_back(Hint::Lost);
    }
}

/// Who committed, where the kernel tells.
fn who(message: &Message<'_>) -> Option<Arc<str>> {
    let (_, attrs) = message.split::<4>().ok()?;
    let name = name(&attrs, NFTA_GEN_PROC_NAME).ok().filter(|name| !name.is_empty())?;
    let pid = be32(&attrs, NFTA_GEN_PROC_PID).ok()??;
    Some(format!("{name} (pid {pid})").into())
}

/// What is known of links.
pub(crate) struct Links {
    subscription: Subscription,
    watch: Watch,
    connection: Connection,
}

/// Which links matter, and as what they are known.
struct Watch {
    desired: Arc<DesiredState>,
    known: Vec<Link>,
    /// Whether one of them is no longer what it was.
    is_moved: bool,
}

impl Links {
    pub(crate) fn open(source: &Nft, desired: &Arc<DesiredState>) -> Result<Self, Error> {
        // The subscription stands before the first look.
        let listener = source.listen(homeostat_netlink::Family::Route, Group(RTNLGRP_LINK))?;
        let connection = source.connect(homeostat_netlink::Family::Route)?;
        let watch = Watch { desired: Arc::clone(desired), known: Vec::new(), is_moved: true };
        Ok(Links { subscription: Subscription::Standing(listener), watch, connection })
    }

    /// Whether a look at a few tables must look at links, too.
    pub(crate) fn have_moved(&self) -> bool {
        self.watch.is_moved
    }

    /// The links that are there.
    pub(crate) fn look(&mut self, desired: &Arc<DesiredState>) -> Result<Vec<Link>, Error> {
        let links = links::list(&mut self.connection)?;
        self.attend(desired, &links);
        Ok(links)
    }

    /// Listens for those of these links that a desired state means.
    pub(crate) fn attend(&mut self, desired: &Arc<DesiredState>, links: &[Link]) {
        let (desired, known) = (Arc::clone(desired), desired.relevant(links));
        self.watch = Watch { desired, known, is_moved: false };
    }
}

impl Watch {
    /// Takes an event: whether it is news.
    fn take(&mut self, event: &Event<'_>) -> bool {
        let is_news = match event {
            Event::Lost => true,
            Event::Message(message) => self.concerns(message),
        };
        let is_first = is_news && !self.is_moved;
        self.is_moved |= is_news;
        is_first
    }

    fn concerns(&self, message: &Message<'_>) -> bool {
        let Ok((fixed, attrs)) = message.split::<{ links::FIXED }>() else { return false };
        // A bridge tells of its ports in the same words.
        let (Some(0), Some(index)) = (fixed.first(), links::index(fixed)) else {
            return false;
        };
        let Ok(name) = name(&attrs, IFLA_IFNAME) else { return false };
        let is_known = self.known.iter().any(|link| link.index == index);
        let is_same = self.known.iter().any(|link| link.index == index && link.name == name);
        match message.kind {
            RTM_NEWLINK if is_same => false,
            RTM_NEWLINK => is_known || self.desired.speaks_of(&name),
            RTM_DELLINK => is_known,
            _ => false,
        }
    }

    /// The tables that may mean another link than before.
    fn keys(&self) -> Vec<crate::key::Key> {
        self.desired.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_hints_ends_in_one_look_at_everything() {
        let mut heard = VecDeque::new();
        for nth in 1..=25_000_u32 {
            heard.push_back(Hint::Keys(Vec::new()));
            bound(&mut heard);
            assert!(heard.len() <= 10_000, "{nth}");
        }
        assert!(matches!(heard.front(), Some(Hint::Lost)));
    }
}
