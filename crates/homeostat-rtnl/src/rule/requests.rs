//! The requests of a rule that changes or goes.
//!
//! Quirk `rule-delete-takes-the-first-match` (Linux 6.18): a delete removes the first rule that has
//! all the attributes that it names, also one that has more of them. It honours the protocol, so
//! that only another rule of ours can be in the way: that one goes too, and is made again at once.
//! One that is to go itself has its own request before (see the order of the plan), unless a guard
//! holds that back: then it is made again, too.
//!
//! Quirk `rule-excl-takes-a-narrower-one-for-the-same` (Linux 6.18): with `NLM_F_EXCL` a rule for all
//! packets is refused where one of the same protocol and table stands for those of a network. So that
//! flag is left out where we know of such a one; it could only keep off a second one of ours anyway.

use homeostat_core::{Failure, Outcome, Retry};
use homeostat_netlink::uapi::{NLM_F_CREATE, NLM_F_EXCL};

use crate::key::Key;
use crate::moment::Moment;
use crate::requests::{Goal, RequestWriter, Written};
use crate::rule::observe::{Fate, ObservedRule};
use crate::rule::{Rule, RuleKey};

impl RequestWriter<'_> {
    /// Puts the rule there as declared, unless it stands beside the one that has to go.
    pub(crate) fn put_rule(&mut self, key: &RuleKey, rule: &Rule) -> Written {
        if on(key, self.moment).any(|(_, one)| one.fate == Fate::Stays) {
            return Err(Outcome::Applied { now: None });
        }
        let protocol = self.encoder.protocol;
        let asked = ObservedRule::declared(key, rule, protocol);
        let is_broad = self.moment.rules.iter().any(|one| is_hit(one, &asked));
        let flags = if is_broad { NLM_F_CREATE } else { NLM_F_CREATE | NLM_F_EXCL };
        let encoded = self.encoder.put_rule((key, rule, protocol), flags);
        self.add(Ok(encoded), Goal::Ensure)
    }

    /// Takes all rules of ours away that have to leave the key or, if none is ours, the one that was
    /// taken over.
    pub(crate) fn delete_rule(&mut self, key: &RuleKey) -> Written {
        let moment = self.moment;
        let mut ours = on(key, moment).filter(|(_, one)| one.fate != Fate::Foreign).peekable();
        let going: Vec<usize> = match ours.peek() {
            Some(_) => ours.filter(|(_, one)| one.fate == Fate::Goes).map(|(at, _)| at).collect(),
            None => on(key, moment).take(1).map(|(at, _)| at).collect(),
        };
        for at in &going {
            self.delete_one(*at)?;
        }
        if going.is_empty() { Err(Outcome::Applied { now: None }) } else { Ok(()) }
    }

    fn delete_one(&mut self, at: usize) -> Written {
        let moment = self.moment;
        let Some(going) = moment.rules.get(at) else { return Ok(()) };
        let before = moment.rules.iter().enumerate().take(at);
        let in_the_way = before.filter(|(at, one)| !self.moved.contains(at) && is_hit(one, going));
        let (places, in_the_way): (Vec<usize>, Vec<&ObservedRule>) = in_the_way.unzip();
        if let Some(other) = in_the_way.iter().find(|one| one.fate == Fate::Foreign) {
            return Err(Outcome::Failed(mistakable(other)));
        }
        for one in &in_the_way {
            let gone = self.encoder.delete_rule(one.whole());
            self.add(Ok(gone), Goal::Any)?;
        }
        let gone = self.encoder.delete_rule(going.whole());
        self.add(Ok(gone), Goal::Delete)?;
        self.moved.extend(places.into_iter().chain([at]));
        for one in in_the_way {
            let again = self.encoder.put_rule(one.whole(), NLM_F_CREATE);
            self.add(Ok(again), Goal::Any)?;
        }
        Ok(())
    }
}

/// The rules that stand on a key, with their places among all.
fn on<'m>(
    key: &RuleKey,
    moment: &'m Moment,
) -> impl Iterator<Item = (usize, &'m ObservedRule)> + use<'m> {
    let key = *key;
    moment.rules.iter().enumerate().filter(move |(_, observed)| observed.key == key)
}

/// Whether a request to delete `going` would fit another rule too.
fn is_hit(other: &ObservedRule, going: &ObservedRule) -> bool {
    let (one, asked) = (&other.place, &going.place);
    let place = (one.family, one.priority) == (asked.family, asked.priority);
    let protocol = going.protocol.0 == 0 || other.protocol == going.protocol;
    let packets = one.fits(asked);
    place && protocol && packets && other.rule.fits(&going.rule)
}

fn mistakable(other: &ObservedRule) -> Failure {
    let key = Key::from(other.place);
    let error = format!("the kernel would take `{key}` for it, which belongs to somebody else");
    Failure::new(error, Retry::OnChange).with_help("remove that rule, or this one, by hand")
}
