//! What happens between two things that go on at once: a look and an end, a stop and an answer, two questions.

use std::time::Duration;

use crate::server::{Moment, Server};
use crate::stage::{Process, WIDE, state_directory};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn what_ended_after_the_look_is_looked_at_again_before_anything_is_sent() {
    let (server, state) = (Server::new(100..101, SECOND * 3), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.counts.full == 1).await.unwrap();
    {
        let mut world = server.world.lock().unwrap();
        (world.looks_take, world.looks_tell) = (SECOND * 5, Moment::Beginning);
    }
    process.handle.pass().await.unwrap().unwrap();
    process.converge().await;
    assert_eq!(server.world.lock().unwrap().calls.len(), 1);
}
