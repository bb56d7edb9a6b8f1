//! The tour: each sabotage is done, its healing measured and printed. Start at [`Tour::run`].

use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use homeostat_netns::Name;

use super::balancer::Balancer;
use super::firewall::{Firewall, FirewallDamage};
use super::judge::{Healing, Judge, is_awaited};
use super::kernel_events::now;
use super::kernel_state::{KernelState, Key, Kind, Object};
use super::latencies::{Latencies, time};
use super::sabotage::{Damage, Group, SABOTAGE};
use super::saboteur::{FOREIGN, Route, Saboteur, THEIRS};
use crate::mark;
use crate::output::line::{GREEN, RED};

/// The namespace that the document makes.
const LAB: &str = "lab";
const OUR_TABLE: &str = " table 100 ";

/// How long the tour lasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    /// Until when another sabotage may begin; for ever, if there is none.
    pub(super) end: Option<Duration>,
    /// For people to follow it.
    pub(super) pause: Duration,
}

/// Whether the router has a firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wall {
    Stands,
    /// There is no `nft` to make one.
    Missing,
}

/// The saboteur, the judge, and what was measured.
pub(super) struct Tour<W> {
    to: W,
    saboteur: Saboteur,
    judge: Judge,
    /// Nothing, where there is no `nft` to make one.
    firewall: Option<Firewall>,
    /// Nothing, where `HAProxy` is not installed.
    balancer: Option<Balancer>,
    stop: Arc<AtomicBool>,
    latencies: Latencies,
    /// Whether others have added theirs already.
    is_crowded: bool,
}

impl<W: Write> Tour<W> {
    /// Takes what is there now for what has to be.
    pub(super) fn open(
        to: W,
        stop: Arc<AtomicBool>,
        wall: Wall,
        balancer: Option<Balancer>,
    ) -> Result<Self> {
        let mut saboteur = Saboteur::open()?;
        let judge = Judge::new(&mut saboteur, Name::new(LAB)?, Arc::clone(&stop))?;
        let firewall = (wall == Wall::Stands).then(Firewall::open).transpose()?;
        let latencies = Latencies::default();
        Ok(Tour { to, saboteur, judge, firewall, balancer, stop, latencies, is_crowded: false })
    }

    /// Runs until the end, and returns whether all was healed and nothing foreign was harmed.
    pub(super) fn run(mut self, length: Length) -> Result<bool> {
        let began = now();
        let goes_on = || length.end.is_none_or(|end| began.elapsed() < end);
        let (has_wall, has_balancer) = (self.firewall.is_some(), self.balancer.is_some());
        loop {
            for (what, on, damage) in SABOTAGE {
                match damage {
                    Damage::Breach(_) if !has_wall => continue,
                    Damage::Edit if !has_balancer => continue,
                    _ => {}
                }
                std::thread::sleep(length.pause);
                if self.is_stopped() || !goes_on() {
                    break;
                }
                write!(self.to, "  {what:<22} {on:<30}")?;
                self.to.flush()?;
                self.act(&damage)?;
            }
            if self.is_stopped() || length.end.is_some() {
                break;
            }
        }
        self.close()
    }

    fn act(&mut self, damage: &Damage) -> Result<()> {
        self.judge.begin();
        let sent = match damage {
            Damage::OneByOne => return self.one_by_one(),
            Damage::Crowd => return self.crowd(),
            Damage::Breach(damage) => return self.breach(*damage),
            Damage::Edit => return self.edit(),
            _ => self.sabotage(damage)?,
        };
        let healed = match damage {
            Damage::SetKnob { path, to } => self.turned_back(path, to, sent)?,
            Damage::Cut(_) | Damage::Raze => self.judge.healed_inside(&mut self.saboteur, sent)?,
            _ => self.judge.healed(&mut self.saboteur, sent)?,
        };
        self.report(damage.group(), healed)
    }

    /// Does it, and returns when it began to.
    fn sabotage(&mut self, damage: &Damage) -> Result<Instant> {
        let saboteur = &mut self.saboteur;
        let there = saboteur.look()?;
        let find = |kind, name: &str| {
            let key = Key { kind, name: name.to_owned() };
            let object = there.get(&key).cloned();
            object.map(|object| (key, object)).with_context(|| format!("`{name}` is not there"))
        };
        let sent = now();
        match damage {
            Damage::Delete(kind, name) => saboteur.delete(&[find(*kind, name)?]),
            Damage::Cut(link) => saboteur.delete(&[find(Kind::Link, link)?]),
            Damage::SetLink(link, flags) => saboteur.set(link, flags),
            Damage::Unplug(link) => saboteur.unplug(link),
            Damage::Replace(route) => saboteur.replace(*route),
            Damage::Flush => saboteur.delete(&routes(&there, "")),
            Damage::SetKnob { path, to } => {
                std::fs::write(path, to).with_context(|| format!("cannot write {path}"))
            }
            Damage::Raze => {
                homeostat_netns::remove(&Name::new(LAB)?)?;
                Ok(())
            }
            Damage::OneByOne | Damage::Crowd | Damage::Breach(_) | Damage::Edit => Ok(()),
        }?;
        Ok(sent)
    }

    /// Another key each time.
    fn one_by_one(&mut self) -> Result<()> {
        let mut all = Vec::new();
        for one in routes(&self.saboteur.look()?, OUR_TABLE) {
            let sent = now();
            self.saboteur.delete(&[one])?;
            let healed = self.judge.healed(&mut self.saboteur, sent)?;
            let Some(Healing { took, .. }) = healed else {
                return self.report(Group::Object, None);
            };
            self.latencies.add(Group::Object, Some(took));
            all.push(took);
        }
        all.sort();
        let median = all.get(all.len() / 2).copied().unwrap_or_default();
        let worst = all.last().copied().unwrap_or_default();
        writeln!(self.to, " {GREEN}{:>10}{GREEN:#}   at most {}", time(median), time(worst))?;
        Ok(())
    }

    fn breach(&mut self, damage: FirewallDamage) -> Result<()> {
        let Some(firewall) = &mut self.firewall else { return Ok(()) };
        let sent = firewall.sabotage(damage)?;
        let healed = firewall.healed(damage, sent, &self.stop)?;
        self.report(Group::Firewall, healed)
    }

    fn edit(&mut self) -> Result<()> {
        if self.balancer.is_none() {
            return Ok(());
        }
        let healed = Balancer::edit_and_wait(&self.stop)?;
        self.report(Group::File, healed)
    }

    fn crowd(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_crowded, true) {
            return Ok(writeln!(self.to, " {:>10}", "still there")?);
        }
        let to = |number| Ipv4Addr::new(172, 20, number, 0);
        self.saboteur.add((0..100).map(|number| Route {
            to: to(number),
            via: None,
            dev: THEIRS,
        }))?;
        self.judge.accept_foreign(&mut self.saboteur)?;
        Ok(writeln!(self.to, " {:>10}", "left alone")?)
    }

    /// Waits until a knob holds its value again.
    fn turned_back(&mut self, path: &str, to: &str, sent: Instant) -> Result<Option<Healing>> {
        while is_awaited(sent, &self.stop) {
            if std::fs::read_to_string(path)? != to {
                return Ok(Some(Healing { took: sent.elapsed(), objects: 1 }));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(None)
    }

    fn report(&mut self, group: Group, healed: Option<Healing>) -> Result<()> {
        if self.is_stopped() {
            return Ok(writeln!(self.to)?);
        }
        self.latencies.add(group, healed.map(|healing| healing.took));
        let Some(Healing { took, objects }) = healed else {
            let missing = self.judge.differences(&mut self.saboteur)?;
            return Ok(writeln!(self.to, " {RED}NOT HEALED{RED:#}: {}", missing.join(", "))?);
        };
        let about = if matches!(group, Group::File | Group::Looked) { "~" } else { "" };
        let objects = if objects > 1 { format!("   {objects} objects") } else { String::new() };
        let took = format!("{about}{}", time(took));
        Ok(writeln!(self.to, " {GREEN}{took:>10}{GREEN:#}{objects}")?)
    }

    fn close(mut self) -> Result<bool> {
        let there = self.saboteur.look()?;
        let foreign = self.judge.wanted.iter().filter(|(key, object)| {
            object.mark == FOREIGN || (key.kind == Kind::Link && key.name == THEIRS)
        });
        let (total, harmed) = (
            foreign.clone().count(),
            foreign.filter(|(key, object)| there.get(key) != Some(object)).count(),
        );
        self.latencies.write(&mut self.to)?;
        match harmed {
            0 => writeln!(self.to, "  foreign objects: {total}, untouched")?,
            _ => writeln!(self.to, "  foreign objects: {RED}{harmed} of {total} harmed{RED:#}")?,
        }
        self.to.flush()?;
        Ok(harmed == 0 && self.latencies.is_whole())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Routes of homeostat whose names have this in them.
fn routes(there: &KernelState, part: &str) -> Vec<(Key, Object)> {
    let ours = there.iter().filter(|(key, object)| {
        key.kind == Kind::Route && object.mark == mark::DEFAULT.0 && key.name.contains(part)
    });
    ours.map(|(key, object)| (key.clone(), object.clone())).collect()
}
