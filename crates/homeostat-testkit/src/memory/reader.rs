//! Observes the target in memory.

use std::future::poll_fn;

use homeostat_engine::{Coverage, Failure, Focus, Hint, Owner, Reader, Retry, See, Seen, View};

use super::faults::Act;
use super::flaw::Flaw;
use super::source::{Behaviour, Memory};
use super::step::Marks;
use super::target::{Held, Mark, Target, World};

/// The reader of [`Memory`].
#[derive(Debug)]
pub struct MemoryReader {
    target: Target,
    marks: Marks,
    flaw: Option<Flaw>,
}

impl MemoryReader {
    pub(super) fn new(target: Target, marks: Marks, flaw: Option<Flaw>) -> Self {
        MemoryReader { target, marks, flaw }
    }

    fn is_flawed(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn owner(&self, held: &Held, is_declared: bool) -> Owner {
        let taken = if is_declared { Flaw::Usurps } else { Flaw::Steals };
        match (self.marks, held.mark) {
            (Marks::None, _) => Owner::Unmarked,
            (Marks::Nobody, _) => Owner::Nobody,
            (Marks::Held, Mark::Ours) if self.is_flawed(Flaw::Unmarked) => Owner::Unmarked,
            (Marks::Held, Mark::Foreign) if !self.is_flawed(taken) => Owner::foreign("a stranger"),
            (Marks::Held, _) => Owner::Ours,
        }
    }

    fn seen(&self, world: &World, held: &Held, context: Context) -> Option<Seen<String, String>> {
        let key = held.key.clone();
        if world.faults.unreadable.contains(&key) {
            let why = "the target does not let it be read".to_owned();
            let is_reported = !self.is_flawed(Flaw::UnreadableIsAbsent);
            return is_reported.then_some(Seen::Unknown { key, why });
        }
        let object = match self.flaw {
            Some(Flaw::NotNormalized) => held.value.to_uppercase(),
            Some(Flaw::Credulous) if context.is_hinted => format!("{}?", held.value),
            _ => held.value.clone(),
        };
        Some(Seen::Present { key, object, owner: self.owner(held, context.is_declared) })
    }
}

/// What some flaws depend on.
#[derive(Clone, Copy)]
struct Context {
    is_declared: bool,
    is_hinted: bool,
}

impl<M: Behaviour> Reader<Memory<M>> for MemoryReader {
    async fn observe(
        &mut self,
        view: &View<'_, Memory<M>>,
        see: &mut See<'_, String, String>,
    ) -> Result<(), Failure> {
        self.target.note(looked(view.focus));
        self.target.fail_if_due(Act::Observe).await;
        let mut world = self.target.world();
        world.writes += u64::from(self.is_flawed(Flaw::LooksWrite));
        if world.faults.blind {
            let failure = Failure::new("the target cannot be seen", Retry::Soon);
            return if self.is_flawed(Flaw::BlindIsEmpty) { Ok(()) } else { Err(failure) };
        }
        let in_focus = world.objects.iter().filter(|held| view.focus.covers(&held.key));
        for (at, held) in in_focus.enumerate() {
            if world.faults.torn_after == Some(at) {
                return Err(Failure::new("the look was cut short", Retry::Soon));
            }
            let is_declared = view.desired.iter().any(|(key, _)| *key == held.key);
            let context = Context { is_declared, is_hinted: *view.focus != Focus::All };
            self.seen(&world, held, context).into_iter().for_each(&mut *see);
        }
        Ok(())
    }

    async fn hint(&mut self) -> Result<Hint<String>, Failure> {
        let is_silent = M::COVERAGE == Coverage::None && !self.is_flawed(Flaw::Chatty);
        if is_silent || self.is_flawed(Flaw::Deaf) {
            return std::future::pending().await;
        }
        poll_fn(|context| self.target.poll_hint(context)).await
    }
}

fn looked(focus: &Focus<String>) -> String {
    match focus {
        Focus::All => "look at all".to_owned(),
        Focus::Keys(keys) => {
            format!("look at {}", keys.iter().cloned().collect::<Vec<_>>().join(" "))
        }
    }
}
