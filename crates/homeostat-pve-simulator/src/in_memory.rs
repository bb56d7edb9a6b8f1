//! The same cluster without a socket or a thread: whoever dials is served on their own runtime.
//!
//! Nothing here waits for the system, so that a runtime whose clock is paused goes on by itself from one
//! moment at which something happens to the next: an hour of the cluster takes as long as its requests do.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::DuplexStream;
use tokio_rustls::TlsAcceptor;

use crate::talk::{self, Shared};
use crate::tls::{fingerprint, identity};
use crate::world::World;

/// What is on its way in either direction at most.
const BUFFER: usize = 64 << 10;

/// A simulated cluster that is reached by [`InMemory::dial`]. Clones are the same one.
#[derive(Clone)]
pub struct InMemory {
    world: Shared,
    acceptor: TlsAcceptor,
    fingerprint: String,
}

impl InMemory {
    /// Serves a world to whoever dials.
    pub fn new(world: World) -> io::Result<Self> {
        let identity = identity()?;
        let fingerprint = fingerprint(&identity.certificate);
        let acceptor = TlsAcceptor::from(identity.config);
        Ok(InMemory { world: Arc::new(Mutex::new(world)), acceptor, fingerprint })
    }

    /// A name that its certificate is good for. Nothing listens there.
    #[must_use]
    pub fn endpoint() -> &'static str {
        "https://localhost:8006"
    }

    /// The fingerprint of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// A connection, over which it speaks HTTPS as it does over the network, until the other end is dropped. It
    /// is served on the runtime that this is called on.
    #[must_use]
    pub fn dial(&self) -> DuplexStream {
        let (theirs, ours) = tokio::io::duplex(BUFFER);
        tokio::spawn(talk::converse(ours, self.acceptor.clone(), Arc::clone(&self.world)));
        theirs
    }

    /// Looks at the world, or changes it; what is due has happened before.
    pub fn with<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        talk::with(&self.world, what)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::{Guest, Kind, Task};

    #[tokio::test(start_paused = true)]
    async fn the_clocks_of_nodes_follow_virtual_time() {
        let world = World::default().with(101, Guest::new(Kind::Lxc, "pve1"));
        let cluster = InMemory::new(world).unwrap();
        let hour = Duration::from_hours(1);
        cluster.with(|world| world.occupy(101, "vzdump", hour));
        tokio::time::advance(hour).await;
        cluster.with(|world| world.occupy(101, "vzdump", hour));
        cluster.with(|world| {
            let starts: Vec<_> = world.tasks().iter().map(|task| task.name.start).collect();
            assert_eq!(starts[1] - starts[0], 3600);
            let is_running: Vec<_> = world.tasks().iter().map(Task::is_running).collect();
            assert_eq!(is_running, [false, true]);
            assert_eq!(world.tasks()[1].lasts(), (Instant::now(), Instant::now() + hour));
            assert_eq!(world.tasks()[1].user(), "root@pam");
        });
    }
}
