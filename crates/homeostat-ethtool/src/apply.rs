//! The only writer: one message for each group of a link, read back in the same step.

use std::borrow::Cow;
use std::collections::BTreeMap;

use homeostat_core::{Failure, Outcome, Outcomes, Retry, Work};
use homeostat_netlink::{Answer, Batch, Connection, Errno, Error, Refusal, generic};

use crate::absence::Absence;
use crate::device::{Devices, Look};
use crate::key::Key;
use crate::message::{self, FAMILY, place};
use crate::model::{Bit, Value};
use crate::setting::{Group, Setting};
use crate::source::Ethtool;

/// Writes settings.
#[derive(Debug)]
pub struct Writer {
    pub(crate) source: Ethtool,
}

/// A write of one step.
struct Write<'a> {
    at: usize,
    key: &'a Key,
    /// What it shall be, and what is sent for it.
    value: &'a Value,
    sent: Cow<'a, Value>,
}

/// What is sent for a value: a word becomes the features of the kernel that were seen for it.
fn sent<'a>(value: &'a Value, before: &Value) -> Cow<'a, Value> {
    match (value, before) {
        (Value::Switch(on), Value::Features(bits)) => {
            let bits = bits.keys().map(|name| (name.clone(), Bit::both(*on)));
            Cow::Owned(Value::Features(bits.collect()))
        }
        _ => Cow::Borrowed(value),
    }
}

impl homeostat_core::Writer<Ethtool> for Writer {
    async fn apply(&self, work: Work<'_, Ethtool>, out: &dyn Outcomes<Value>) {
        let mut writes: BTreeMap<(&str, Group), Vec<Write<'_>>> = BTreeMap::new();
        for (at, step) in work.iter() {
            match step.write(work.desired) {
                Some((key, value)) => {
                    let write = Write { at, key, value, sent: sent(value, step.before()) };
                    writes.entry(place(key)).or_default().push(write);
                }
                // Nothing is written: it keeps what it is.
                None => out.put(at..at + 1, Outcome::Settled { held: step.before().clone() }),
            }
        }
        for ((link, group), writes) in writes {
            let outcomes = match self.source.connect().and_then(|mut connection| {
                let family = generic::family(&mut connection, FAMILY)?;
                Ok((connection, family))
            }) {
                Ok((mut connection, Some(family))) => {
                    Target { connection: &mut connection, family, link, group }.write(&writes)
                }
                Ok((_, None)) => failed(&writes, &|key| Absence::NoFamily.failure(key)),
                Err(error) => failed(&writes, &|_| Failure::soon(&error)),
            };
            for (at, outcome) in outcomes {
                out.put(at..at + 1, outcome);
            }
        }
    }
}

fn failed(writes: &[Write<'_>], failure: &dyn Fn(&Key) -> Failure) -> Vec<(usize, Outcome<Value>)> {
    writes.iter().map(|write| (write.at, Outcome::Failed(failure(write.key)))).collect()
}

/// One group of one link.
struct Target<'a> {
    connection: &'a mut Connection,
    family: u16,
    link: &'a str,
    group: Group,
}

impl Target<'_> {
    /// Writes all of it with one message, since numbers may be possible together only. If that is refused, each is
    /// written alone, so that one bad value costs no other.
    fn write(&mut self, writes: &[Write<'_>]) -> Vec<(usize, Outcome<Value>)> {
        match self.send(writes) {
            Ok(Ok(())) => self.judge(writes),
            Ok(Err(_)) if writes.len() > 1 => {
                let outcomes = writes.iter().map(|write| {
                    let write = std::slice::from_ref(write);
                    match self.send(write) {
                        Ok(Ok(())) => self.judge(write),
                        Ok(Err(refusal)) => self.refused(write, &refusal),
                        Err(error) => lost(write, &error),
                    }
                });
                outcomes.collect::<Vec<_>>().into_iter().flatten().collect()
            }
            Ok(Err(refusal)) => self.refused(writes, &refusal),
            Err(error) => lost(writes, &error),
        }
    }

    fn send(&mut self, writes: &[Write<'_>]) -> Result<Result<(), Refusal>, Error> {
        let mut batch = Batch::new();
        let values: Vec<(&Setting, &Value)> =
            writes.iter().map(|write| (&write.key.setting, &*write.sent)).collect();
        message::set(&mut batch, self.family, self.link, self.group, &values)?;
        let mut answered = Err(Error::AnswerLost);
        self.connection.run(&mut batch, &mut |_, answer| match answer {
            Answer::Done => answered = Ok(Ok(())),
            Answer::Refused(refusal) => answered = Ok(Err(refusal)),
            Answer::Unknown | Answer::Reply(_) => {}
        })?;
        answered
    }

    /// What became of writes that the kernel took. What is something else after a second write, too, is how the driver
    /// rounds it, or what the kernel holds back.
    fn judge(&mut self, writes: &[Write<'_>]) -> Vec<(usize, Outcome<Value>)> {
        let mut first = self.look(writes);
        let differs = |look: &Look, value: &Value| matches!(look, Look::Is { value: now, .. } if !value.agrees(now));
        let odd = writes.iter().zip(&first).any(|(write, look)| differs(look, write.value));
        let again = odd && matches!(self.send(writes), Ok(Ok(())));
        let second = if again { self.look(writes) } else { Vec::new() };
        let mut outcomes = Vec::new();
        for (index, Write { at, key, value, .. }) in writes.iter().enumerate() {
            let before = std::mem::replace(&mut first[index], Look::Unknown(String::new()));
            let outcome = match (before, second.get(index)) {
                (Look::Is { value: one, .. }, Some(Look::Is { value: two, .. }))
                    if !value.agrees(&one) && one == *two =>
                {
                    Outcome::Settled { held: one }
                }
                (_, Some(Look::Is { value: now, .. })) => {
                    Outcome::Applied { now: Some(now.clone()) }
                }
                (Look::Is { value: now, .. }, _) => Outcome::Applied { now: Some(now) },
                (Look::Absent(absence), _) => gone(key, &absence),
                (Look::Unknown(why), _) => Outcome::Unknown { why },
            };
            outcomes.push((*at, outcome));
        }
        outcomes
    }

    fn look(&mut self, writes: &[Write<'_>]) -> Vec<Look> {
        let keys: Vec<&Key> = writes.iter().map(|write| write.key).collect();
        match Devices::read(self.connection, keys.iter().copied()) {
            Ok(devices) => keys.into_iter().map(|key| devices.look(key)).collect(),
            Err(error) => keys.iter().map(|_| Look::Unknown(error.to_string())).collect(),
        }
    }

    fn refused(&self, writes: &[Write<'_>], refusal: &Refusal) -> Vec<(usize, Outcome<Value>)> {
        let outcome = |key: &Key| match refusal.errno {
            Errno::NODEV | Errno::NXIO => gone(key, &Absence::NoLink),
            _ => Outcome::Failed(failure(self.group, self.link, refusal)),
        };
        writes.iter().map(|write| (write.at, outcome(write.key))).collect()
    }
}

fn lost(writes: &[Write<'_>], error: &Error) -> Vec<(usize, Outcome<Value>)> {
    let unknown = |write: &Write<'_>| (write.at, Outcome::Unknown { why: error.to_string() });
    writes.iter().map(unknown).collect()
}

fn gone(key: &Key, absence: &Absence) -> Outcome<Value> {
    match absence.waits_on(key) {
        Some(on) => Outcome::Pending { on },
        None => Outcome::Failed(absence.failure(key)),
    }
}

/// The kernel's refusal in words, with the way out.
fn failure(group: Group, link: &str, refusal: &Refusal) -> Failure {
    let text = format!("the kernel refused the write: {refusal}");
    let (retry, help) = match refusal.errno {
        Errno::PERM | Errno::ACCESS => {
            (Retry::Never, "run it as root or with CAP_NET_ADMIN".to_owned())
        }
        Errno::BUSY | Errno::AGAIN => {
            (Retry::Soon, "the card is busy with something else".to_owned())
        }
        Errno::OPNOTSUPP => {
            let about = group.about();
            (
                Retry::OnChange,
                format!("the driver of `{link}` shows {about} and lets nobody change this"),
            )
        }
        _ => (Retry::OnChange, "the kernel's log may say more: `dmesg`".to_owned()),
    };
    Failure::new(text, retry).with_help(help)
}
