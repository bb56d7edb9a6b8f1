//! How steps reach the server, and what it is asked about them later.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::outcome::Later;
use homeostat_engine::{
    Begun, Failure, Outcome, Outcomes, Recovery, Retry, TaskEnd, Tasks, Work, Writer,
};
use tokio::time::{Instant, sleep_until};

use super::{Fault, Guests, Id, Run, Server};

impl Writer<Guests> for Server {
    async fn apply(&self, work: Work<'_, Guests>, out: &dyn Outcomes<bool>) {
        for (at, step) in work.iter() {
            let outcome = self.send((at, step), out).await;
            out.put(at..at + 1, outcome);
        }
    }

    fn tasks(&self) -> Option<Arc<dyn Tasks>> {
        Some(Arc::new(self.clone()))
    }
}

impl Tasks for Server {
    fn follow(&self, task: &str) -> Later<'static, TaskEnd> {
        let (server, task) = (self.clone(), task.to_owned());
        Box::pin(async move {
            let (ends, fault, patience) = {
                let world = server.world.lock().unwrap();
                let task = world.tasks.get(&task).unwrap();
                (task.ends, task.fault, world.patience)
            };
            assert_ne!(fault, Some(Fault::PanicInWait), "made to panic");
            let patience = patience.map(|patience| Instant::now() + patience);
            sleep_until(patience.unwrap_or(ends).min(ends)).await;
            if Instant::now() < ends {
                return TaskEnd::GivenUp("it takes too long".to_owned());
            }
            server.point().await;
            server.world.lock().unwrap().end_of(&task).unwrap()
        })
    }

    fn recover(&self, begun: Begun) -> Later<'static, Result<Recovery, Failure>> {
        let server = self.clone();
        Box::pin(async move {
            server.point().await;
            let guest: Id = begun.key.parse().unwrap();
            let patience = server.world.lock().unwrap().questions_take.unwrap_or(Duration::MAX);
            if tokio::time::timeout(patience, server.reach(guest)).await.is_err() {
                return Err(Failure::new("no answer in time", Retry::Soon));
            }
            let mut world = server.world.lock().unwrap();
            world.asked += 1;
            if world.is_unreachable {
                return Err(Failure::new("connection refused", Retry::Soon));
            }
            if world.is_forgetful {
                let why = "the target does not know it any more".to_owned();
                return Ok(Recovery::Ended(TaskEnd::Unknown(why)));
            }
            let listed = || world.tasks.iter().rev().find(|(_, task)| task.guest == guest);
            // Without a name, the last task of the guest that began with or after the step is the one.
            let task = begun.task.or_else(|| listed().map(|(name, _)| name.clone()));
            let Some(task) = task else {
                return Ok(Recovery::Ended(TaskEnd::Failed("it never arrived".to_owned())));
            };
            let node = world.moved.get(&guest).cloned().unwrap_or_else(|| guest.node());
            let ended = world.end_of(&task).map(Recovery::Ended);
            Ok(ended.unwrap_or(Recovery::Running { task, node }))
        })
    }
}

impl Server {
    /// With a place to die before and after each record and each call.
    async fn send(&self, (at, step): (usize, &Run), out: &dyn Outcomes<bool>) -> Outcome<bool> {
        self.point().await;
        self.reach(step.id).await;
        if self.world.lock().unwrap().harmless.contains(&step.id) {
            return self.set(step, out.note(at)).await;
        }
        if let Err(failure) = out.intent(at).await {
            return Outcome::Failed(failure);
        }
        self.point().await;
        let fault = self.next_fault(step.id);
        assert_ne!(fault, Some(Fault::PanicInSend), "made to panic");
        let task = match self.request(step.id, step.wanted) {
            Err(outcome) => {
                self.answer(step.id).await;
                self.point().await;
                return outcome;
            }
            Ok(task) => task,
        };
        if fault == Some(Fault::Hang) {
            std::future::pending::<()>().await;
        }
        self.answer(step.id).await;
        self.point().await;
        if let Err(failure) = out.dispatched(at, &task).await {
            return Outcome::Unknown { why: failure.error };
        }
        self.point().await;
        Outcome::Waiting { task }
    }
}

impl Server {
    /// What will go wrong with the next request; the kinds that the sender sees to itself are spent.
    fn next_fault(&self, guest: Id) -> Option<Fault> {
        let mut world = self.world.lock().unwrap();
        let faults = world.faults.get_mut(&guest)?;
        faults.pop_if(|fault| matches!(fault, Fault::PanicInSend | Fault::Hang))
    }

    /// Takes its time to answer.
    async fn answer(&self, guest: Id) {
        let late = self.world.lock().unwrap().late.get(&guest).copied();
        if let Some(late) = late {
            sleep_until(Instant::now() + late).await;
        }
    }

    /// Done at once, and to be done again without harm.
    async fn set(&self, step: &Run, noted: Later<'_, ()>) -> Outcome<bool> {
        noted.await;
        self.point().await;
        {
            let mut world = self.world.lock().unwrap();
            world.running.insert(step.id, step.wanted);
            world.calls.push(step.id);
        }
        self.answer(step.id).await;
        Outcome::Applied {
            now: self.world.lock().unwrap().tells.contains(&step.id).then_some(step.wanted),
        }
    }
}
