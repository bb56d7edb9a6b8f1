//! Looks at the target in memory.

use std::future::poll_fn;

use homeostat_engine::{Coverage, Failure, Focus, Hint, Owner, Reader, Retry, See, Seen, View};

use super::faults::Act;
use super::flaw::Flaw;
use super::source::{Manner, Memory};
use super::step::Marks;
use super::target::{Held, Mark, Target, World};

/// The reader of [`Memory`].
#[derive(Debug)]
pub struct Eyes {
    target: Target,
    marks: Marks,
    flaw: Option<Flaw>,
}

impl Eyes {
    pub(super) fn new(target: Target, marks: Marks, flaw: Option<Flaw>) -> Self {
        Eyes { target, marks, flaw }
    }

    fn is_flawed(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn owner(&self, held: &Held, is_wished: bool) -> Owner {
        let taken = if is_wished { Flaw::Usurps } else { Flaw::Steals };
        match (self.marks, held.mark) {
            (Marks::None, _) => Owner::Unmarked,
            (Marks::Nobody, _) => Owner::Nobody,
            (Marks::Held, Mark::Ours) if self.is_flawed(Flaw::Unmarked) => Owner::Unmarked,
            (Marks::Held, Mark::Foreign) if !self.is_flawed(taken) => Owner::foreign("a stranger"),
            (Marks::Held, _) => Owner::Ours,
        }
    }

    fn seen(&self, world: &World, held: &Held, at: Place) -> Option<Seen<String, String>> {
        let key = held.key.clone();
        if world.faults.unreadable.contains(&key) {
            let why = "the target does not let it be read".to_owned();
            let told = !self.is_flawed(Flaw::UnreadableIsAbsent);
            return told.then_some(Seen::Unknown { key, why });
        }
        let object = match self.flaw {
            Some(Flaw::NotNormalized) => held.value.to_uppercase(),
            Some(Flaw::Credulous) if at.is_hinted => format!("{}?", held.value),
            _ => held.value.clone(),
        };
        Some(Seen::Present { key, object, owner: self.owner(held, at.is_wished) })
    }
}

/// What a broken reader is misled by.
#[derive(Clone, Copy)]
struct Place {
    is_wished: bool,
    is_hinted: bool,
}

impl<M: Manner> Reader<Memory<M>> for Eyes {
    async fn observe(
        &mut self,
        view: &View<'_, Memory<M>>,
        see: &mut See<'_, String, String>,
    ) -> Result<(), Failure> {
        self.target.note(looked(view.focus));
        self.target.meet(Act::Observe).await;
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
            let is_wished = view.wish.iter().any(|(key, _)| *key == held.key);
            let place = Place { is_wished, is_hinted: *view.focus != Focus::All };
            self.seen(&world, held, place).into_iter().for_each(&mut *see);
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
