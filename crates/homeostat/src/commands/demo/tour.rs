//! The tour: each sabotage is done, its healing measured and printed. Start at [`Tour::run`].

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use homeostat_netns::Name;

use super::firewall::{Firewall, FirewallDamage};
use super::judge::{Healing, Judge};
use super::kernel_events::now;
use super::kernel_state::{KernelState, Key, Kind, Object};
use super::latencies::{GREEN, Latencies, RED, time};
use super::sabotage::{Damage, Group, SABOTAGE, Sabotage};
use super::saboteur::{FOREIGN, Route, Saboteur, THEIRS};
use crate::mark;

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
    stop: Arc<AtomicBool>,
    latencies: Latencies,
}

impl<W: Write> Tour<W> {
    /// Lets others move in, and takes what is there then for what has to be.
    pub(super) fn open(to: W, stop: Arc<AtomicBool>, wall: Wall) -> Result<Self> {
        let mut saboteur = Saboteur::open()?;
        saboteur.settle_in()?;
        let twin = Route { to: "198.51.100.0", length: 24, via: None, dev: THEIRS, metric: 50 };
        saboteur.add([twin, Route { to: "2001:db8:ffff::", length: 48, ..twin }].into_iter())?;
        let judge = Judge::new(&mut saboteur, Name::new(LAB)?, Arc::clone(&stop))?;
        let firewall = (wall == Wall::Stands).then(Firewall::open).transpose()?;
        Ok(Tour { to, saboteur, judge, firewall, stop, latencies: Latencies::default() })
    }

    /// Runs until the end, and returns whether all was healed and nothing foreign was harmed.
    pub(super) fn run(mut self, length: Length) -> Result<bool> {
        let began = now();
        let goes_on = || length.end.is_none_or(|end| began.elapsed() < end);
        let has_wall = self.firewall.is_some();
        loop {
            for act in SABOTAGE.into_iter().filter(|act| has_wall || !act.damage.is_breach()) {
                std::thread::sleep(length.pause);
                if self.is_stopped() || !goes_on() {
                    break;
                }
                self.act(&act)?;
            }
            if self.is_stopped() || length.end.is_some() {
                break;
            }
        }
        self.close()
    }

    fn act(&mut self, act: &Sabotage) -> Result<()> {
        write!(self.to, "  {:<22} {:<30}", act.what, act.on)?;
        self.to.flush()?;
        self.judge.begin();
        let group = act.damage.group();
        match &act.damage {
            Damage::OneByOne => return self.one_by_one(),
            Damage::Crowd => return self.crowd(),
            Damage::Breach(damage) => return self.breach(*damage),
            _ => {}
        }
        let sent = self.sabotage(&act.damage)?;
        let healed = match &act.damage {
            Damage::SetKnob { path, to } => self.turned_back(path, to, sent)?,
            Damage::Cut(_) | Damage::Raze => self.judge.healed_inside(&mut self.saboteur, sent)?,
            _ => self.judge.healed(&mut self.saboteur, sent)?,
        };
        self.tell(group, healed)
    }

    /// Does it, and tells when it began to.
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
            Damage::Down(link) => saboteur.set_down(&find(Kind::Link, link)?.1),
            Damage::Flap(link) => saboteur.flap(&find(Kind::Link, link)?.1),
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
            Damage::OneByOne | Damage::Crowd | Damage::Breach(_) => Ok(()),
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
                return self.tell(Group::Object, None);
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
        let healed = firewall.healed((damage, sent), &self.stop)?;
        self.tell(Group::Firewall, healed)
    }

    fn crowd(&mut self) -> Result<()> {
        let all: Vec<String> = (0..100).map(|number| format!("172.20.{number}.0")).collect();
        let route = |to| Route { to, length: 24, via: None, dev: THEIRS, metric: 0 };
        if self.latencies.is_crowded {
            writeln!(self.to, " {:>10}", "still there")?;
            return Ok(());
        }
        self.latencies.is_crowded = true;
        self.saboteur.add(all.iter().map(|to| route(to.as_str())))?;
        self.judge.accept_foreign(&mut self.saboteur)?;
        writeln!(self.to, " {:>10}", "left alone")?;
        Ok(())
    }

    /// Waits until a knob holds its value again.
    fn turned_back(&mut self, path: &str, to: &str, sent: Instant) -> Result<Option<Healing>> {
        while sent.elapsed() < Duration::from_secs(10) && !self.is_stopped() {
            if std::fs::read_to_string(path)? != to {
                return Ok(Some(Healing { took: sent.elapsed(), objects: 1 }));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(None)
    }

    fn tell(&mut self, group: Group, healed: Option<Healing>) -> Result<()> {
        if self.is_stopped() {
            writeln!(self.to)?;
            return Ok(());
        }
        self.latencies.add(group, healed.map(|healing| healing.took));
        let Some(Healing { took, objects }) = healed else {
            let missing = self.judge.differences(&mut self.saboteur)?;
            writeln!(self.to, " {RED}NOT HEALED{RED:#}: {}", missing.join(", "))?;
            return Ok(());
        };
        let about = if group == Group::Looked { "~" } else { "" };
        let objects = if objects > 1 { format!("   {objects} objects") } else { String::new() };
        let took = format!("{about}{}", time(took));
        writeln!(self.to, " {GREEN}{took:>10}{GREEN:#}{objects}")?;
        Ok(())
    }

    fn close(mut self) -> Result<bool> {
        let there = self.saboteur.look()?;
        let foreign = self.judge.wanted().iter().filter(|(key, object)| {
            object.mark == FOREIGN || (key.kind == Kind::Link && key.name == THEIRS)
        });
        let (mut total, mut harmed) = (0, 0);
        for (key, object) in foreign {
            total += 1;
            harmed += usize::from(there.get(key).is_none_or(|now| now.fields != object.fields));
        }
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
