//! The judge: reads the whole history of a rollout by revision, and names the law that was broken.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_fleet::decide::{MOST_WANTS, Step};
use homeostat_fleet::records::{NodePhase, Phase, State, Status, Take, Want};
use homeostat_fleet::{Name, Time};

use crate::world::{Kind, World, is_failure, is_over};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Law {
    /// No act of a term that is not the leader's.
    Terms,
    /// What a node shall have never gets older, and is never written twice.
    Generations,
    /// Nodes of a wave are assigned once those of earlier waves are done or set aside.
    WaveOrder,
    Soak,
    InFlight,
    /// Whoever knows of too many failures assigns nothing; nothing is assigned after a stop.
    Stop,
    /// One act is one change of the state, with few enough wants for a transaction.
    Acts,
    /// It ends.
    End,
    /// At the end, every node has a good document: the new one or its fallback, as the rollout ended.
    GoodEnd,
}

pub(crate) fn judge(world: &World) -> Result<(), (Law, String)> {
    let mut past = Past::default();
    for event in &world.history {
        let at = |(law, what): (Law, String)| (law, format!("revision {}: {what}", event.revision));
        match &event.kind {
            Kind::Elected => past.leader = event.revision,
            Kind::Status(node, status) => past.status(node, status, event.time),
            Kind::Act { term, step, state, wants, seen_failed, given_up } => {
                let (term, step, seen_failed) = (*term, *step, *seen_failed);
                let act = ActSeen { term, step, state, wants, seen_failed, given_up };
                past.act(world, &act, event.time).map_err(at)?;
            }
        }
    }
    end(world, &past)
}

/// What the history had been up to some revision.
#[derive(Default)]
struct Past {
    leader: i64,
    state: Option<State>,
    wants: BTreeMap<Name, (u64, Take)>,
    /// Who ever said that the new document is good, failed or held, and when first.
    answered: BTreeMap<Name, Time>,
    set_aside: BTreeSet<Name>,
}

struct ActSeen<'a> {
    term: i64,
    step: Step,
    state: &'a State,
    wants: &'a [(Name, Want)],
    seen_failed: usize,
    given_up: &'a BTreeSet<Name>,
}

impl Past {
    fn status(&mut self, node: &Name, status: &Status, time: Time) {
        let is_answer =
            is_failure(status) || matches!(status.phase, NodePhase::Good | NodePhase::Held);
        if status.take == Take::Document && is_answer {
            self.answered.entry(node.clone()).or_insert(time);
        }
    }

    fn act(&mut self, world: &World, act: &ActSeen, time: Time) -> Result<(), (Law, String)> {
        let check = |holds: bool, law: Law, what: &str| {
            if holds { Ok(()) } else { Err((law, format!("{:?}: {what}", act.step))) }
        };
        check(act.term == self.leader, Law::Terms, "by a leader that was replaced")?;
        let former = self.state.as_ref();
        let acts = former.map_or(0, |state| state.acts);
        check(act.state.acts == acts + 1, Law::Acts, "decided on an older state")?;
        check(act.wants.len() <= MOST_WANTS, Law::Acts, "too many wants")?;
        let wave = former.map_or(0, |state| state.wave);
        check(act.state.wave <= wave + 1, Law::WaveOrder, "a wave was left out")?;
        self.set_aside.extend(act.state.set_aside.iter().cloned());
        for (node, want) in act.wants {
            let rank = (want.generation, want.take);
            let grows = self.wants.get(node).is_none_or(|former| rank > *former);
            check(grows, Law::Generations, &format!("{node} gets {rank:?} again"))?;
            self.wants.insert(node.clone(), rank);
            if want.take == Take::Document {
                let is_running = former.is_some_and(|state| state.phase == Phase::Running);
                check(is_running, Law::Stop, &format!("{node} was assigned, but it does not run"))?;
                self.wave_order(world, node, time)?;
            } else {
                let is_stopping = former.is_some_and(|state| state.phase == Phase::Stopping);
                check(is_stopping, Law::Stop, &format!("{node} falls back without a stop"))?;
            }
        }
        let statement = world.rollout.statement();
        if act.step == Step::Assign {
            let in_flight = self.wants.iter().filter(|(node, (_, take))| {
                let is_away = act.state.set_aside.contains(*node) || act.given_up.contains(*node);
                *take == Take::Document && !self.answered.contains_key(*node) && !is_away
            });
            let in_flight = in_flight.count() as u64;
            let most = statement.max_in_flight;
            check(in_flight <= most, Law::InFlight, &format!("{in_flight} of {most}"))?;
        }
        if matches!(act.step, Step::Assign | Step::NextWave | Step::Finish) {
            let is_few = act.seen_failed as u64 <= statement.max_failed;
            check(is_few, Law::Stop, &format!("{} failures were known", act.seen_failed))?;
        }
        self.state = Some(act.state.clone());
        Ok(())
    }

    fn wave_order(&self, world: &World, node: &Name, time: Time) -> Result<(), (Law, String)> {
        let waves = (0..).map(|wave| world.rollout.wave(wave)).take_while(|wave| !wave.is_empty());
        let earlier: Vec<_> =
            waves.take_while(|wave| wave.iter().all(|leaf| leaf.node != *node)).collect();
        let awaited = earlier.iter().flat_map(|wave| wave.iter());
        let awaited: Vec<_> = awaited.filter(|leaf| !self.set_aside.contains(&leaf.node)).collect();
        let statement = world.rollout.statement();
        let silent = awaited.iter().filter(|leaf| !self.answered.contains_key(&leaf.node));
        let silent = silent.count() as u64;
        if silent > statement.max_failed {
            let what = format!(
                "{node} was assigned while {silent} nodes of earlier waves had not answered"
            );
            return Err((Law::WaveOrder, what));
        }
        // Those who were lost and answered late are among those who may fail.
        let has_soaked = |answer: &Time| time >= answer.after(statement.soak.get());
        let late =
            awaited.iter().filter(|leaf| !self.answered.get(&leaf.node).is_some_and(has_soaked));
        let late = late.count() as u64;
        if late > statement.max_failed {
            return Err((Law::Soak, format!("{node} was assigned {late} nodes too soon")));
        }
        Ok(())
    }
}

fn end(world: &World, past: &Past) -> Result<(), (Law, String)> {
    let state = world.state().ok_or((Law::End, "it never began".to_owned()))?;
    if !is_over(world) {
        return Err((Law::End, format!("it is {:?} because of {:?}", state.phase, state.why)));
    }
    let mut failed = 0;
    for node in &world.nodes {
        let name = &node.leaf.node;
        let bad = |what: &str| Err((Law::GoodEnd, format!("{:?}: {name} {what}", state.phase)));
        let take = past.wants.get(name).map(|(_, take)| *take);
        match (state.phase, take) {
            (Phase::Done, None) => return bad("was left out"),
            (Phase::Done, Some(Take::Fallback)) => return bad("fell back"),
            (Phase::Stopped, Some(Take::Document)) => return bad("was not sent to its fallback"),
            _ => {}
        }
        if node.is_dead {
            continue;
        }
        let is_failed = node.status.as_ref().is_some_and(is_failure);
        let expected = match take {
            Some(Take::Document) if !is_failed => node.leaf.document,
            _ => node.leaf.fallback,
        };
        if node.running != expected {
            return bad("does not run what it should");
        }
        let is_good = node.status.as_ref().is_some_and(|it| it.phase == NodePhase::Good);
        if take.is_some() && !is_good && !is_failed {
            return bad("is not good");
        }
        // What was set aside and failed later was not there to be counted.
        failed += u64::from(is_failed && !past.set_aside.contains(name));
    }
    if state.phase == Phase::Done && failed > world.rollout.statement().max_failed {
        return Err((Law::Stop, format!("done with {failed} failed nodes")));
    }
    Ok(())
}
