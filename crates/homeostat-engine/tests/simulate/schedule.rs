//! One schedule: what happens, in which order, and the laws at its end.

use std::time::Duration;

use homeostat_engine::{Control as _, OnStop, Ownership, Retry};
use homeostat_testkit::memory::{Act, Echoes, HintFault, Mark};

use crate::dice::Dice;
use crate::world::{KEYS, Running, STRANGE, World, later};

type Verdict = Result<(), (String, Vec<String>)>;

pub(crate) struct Schedule {
    seed: u64,
    dice: Dice,
    world: World,
    history: Vec<String>,
}

const MOVES: u64 = 25;

impl Schedule {
    pub(crate) fn new(seed: u64, ownership: Ownership) -> Self {
        let (dice, world) = (Dice::new(seed), World::new(ownership));
        Schedule { seed, dice, world, history: Vec::new() }
    }

    pub(crate) async fn run(mut self) -> Verdict {
        self.desired();
        self.world.start(self.seed);
        for _ in 0..5 + self.dice.below(MOVES) {
            let verdict = self.act().await;
            self.judged(verdict)?;
            if self.dice.is(2) {
                let time = *self.dice.one_of(&[0, 1, 20, 99, 101, 700, 5_000, 40_000]);
                self.note(format!("{time} ms pass"));
                later(Duration::from_millis(time)).await;
            }
        }
        let verdict = self.end().await;
        self.judged(verdict)
    }

    fn judged(&mut self, verdict: Result<(), String>) -> Verdict {
        verdict.map_err(|law| (law, std::mem::take(&mut self.history)))
    }

    fn note(&mut self, line: impl Into<String>) {
        self.history.push(line.into());
    }

    async fn act(&mut self) -> Result<(), String> {
        match self.dice.below(12) {
            0 | 1 => self.desired(),
            2..=4 => self.sabotage(),
            5 => self.stranger(),
            6 | 7 => self.fault(),
            8 => self.mend(),
            9 => self.command(),
            10 => self.world.target.overflow(),
            _ => return self.restart().await,
        }
        Ok(())
    }

    fn desired(&mut self) {
        self.world.desired.clear();
        for key in KEYS {
            // A child is declared only with its parent.
            let has_parent = key
                .split_once('/')
                .is_none_or(|(parent, _)| self.world.desired.contains_key(parent));
            if has_parent && !self.dice.is(3) {
                let value = self.dice.below(3).to_string();
                self.world.desired.insert(key, value);
            }
        }
        self.note(format!("desired state {:?}", self.world.desired));
        self.world.put();
    }

    fn sabotage(&mut self) {
        let key = *self.dice.one_of(&KEYS);
        // Only what is ours is undone: a stranger's own things stay as they are.
        if self.world.foreign.contains_key(key) {
            return;
        }
        if self.dice.is(2) {
            self.note(format!("{key} is removed"));
            self.world.target.remove(key);
        } else if !self.world.is_provable(key) {
            self.note(format!("{key} is left alone: nobody could tell that it is ours"));
        } else {
            self.note(format!("{key} is altered"));
            self.world.target.alter(key, "altered");
        }
    }

    fn stranger(&mut self) {
        let mut keys = STRANGE.to_vec();
        // Without marks, nobody could tell a stranger's object on a key of ours from our own.
        if self.world.has_marks() {
            keys.extend(["c", "d"]);
        }
        let key = *self.dice.one_of(&keys);
        let target = &self.world.target;
        if self.world.foreign.remove(key).is_some() {
            target.remove(key);
            self.note(format!("a stranger takes {key} back"));
        } else {
            let value = format!("strange{}", self.dice.below(3));
            target.remove(key);
            target.add(key, &value, Mark::Foreign);
            self.world.foreign.insert(key, value);
            self.note(format!("a stranger puts {key}"));
        }
    }

    fn fault(&mut self) {
        let key = (*self.dice.one_of(&KEYS)).to_owned();
        let which = self.dice.below(11);
        self.note(format!("fault {which} ({key})"));
        self.world.target.faults(|faults| match which {
            0 => faults.blind = true,
            1 => _ = faults.refused.insert(key),
            2 => {
                _ = faults.refused.insert(key);
                faults.refused_until = Some(Retry::OnChange);
            }
            3 => faults.hints = HintFault::Lost,
            4 => faults.hints = HintFault::Dead,
            5 => faults.hints = HintFault::Twice,
            6 => _ = faults.answer_lost.insert(key),
            7 => faults.panics = Some(Act::Apply),
            8 => faults.hangs = Some(Act::Apply),
            9 => faults.hangs = Some(Act::Observe),
            _ => _ = faults.unreadable.insert(key),
        });
        if self.dice.is(2) {
            self.world.target.faults(|faults| faults.echoes = Echoes::Suppressed);
        }
    }

    fn mend(&mut self) {
        self.note("all faults end");
        self.world.mend();
    }

    fn command(&mut self) {
        let Some(Running { handle, .. }) = &self.world.running else { return };
        let which = self.dice.below(4);
        match which {
            0 => handle.pause(Some(Duration::from_secs(1))).unwrap(),
            1 => handle.resume().unwrap(),
            _ => {
                let handle = handle.clone();
                tokio::spawn(async move { drop(handle.pass().await) });
            }
        }
        self.note(format!("command {which}"));
    }

    /// Ends the loop in one of many ways, and begins another one with the same ledger.
    async fn restart(&mut self) -> Result<(), String> {
        let Some(Running { handle, task }) = self.world.running.take() else { return Ok(()) };
        let is_killed = self.dice.is(3);
        self.note(if is_killed { "kill" } else { "stop" });
        if is_killed {
            task.abort();
        } else {
            handle.stop(OnStop::Leave).await;
        }
        let _ = task.await;
        let writes = self.world.target.writes();
        self.world.target.remove("d");
        if self.dice.is(2) {
            self.mend();
        }
        later(Duration::from_secs(40)).await;
        if self.world.target.writes() != writes {
            return Err("a loop that has ended wrote".to_owned());
        }
        self.world.foreign.remove("d");
        self.world.start(self.seed);
        Ok(())
    }

    async fn end(&mut self) -> Result<(), String> {
        self.mend();
        later(Duration::from_mins(3)).await;
        self.laws()?;
        let writes = self.world.target.writes();
        later(Duration::from_mins(3)).await;
        if self.world.target.writes() != writes {
            return Err("a converged loop wrote".to_owned());
        }
        self.revert().await
    }

    fn laws(&self) -> Result<(), String> {
        let (ours, owed) = (self.world.held(Mark::Ours), self.world.owed());
        if ours != owed {
            return Err(format!("it holds {ours:?} in place of {owed:?}"));
        }
        self.untouched()?;
        let Some(Running { handle, .. }) = &self.world.running else { return Ok(()) };
        let status = handle.status();
        let is_free = self.world.foreign.keys().all(|key| !self.world.desired.contains_key(key));
        if status.is_converged != is_free || status.stall.is_some() {
            return Err(format!("it says {status:?}"));
        }
        Ok(())
    }

    fn untouched(&self) -> Result<(), String> {
        let foreign = self.world.held(Mark::Foreign);
        let expected =
            self.world.foreign.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        if foreign != expected.collect::<Vec<_>>() {
            return Err(format!("strangers hold {foreign:?} in place of {:?}", self.world.foreign));
        }
        Ok(())
    }

    /// At last everything of ours goes, and nothing else.
    async fn revert(&mut self) -> Result<(), String> {
        let Some(Running { handle, task }) = self.world.running.take() else { return Ok(()) };
        handle.stop(OnStop::Revert).await;
        let _ = task.await;
        let left = self.world.held(Mark::Ours);
        if !left.is_empty() {
            return Err(format!("{left:?} leaked"));
        }
        self.untouched()
    }
}
