//! Serves a world without sockets and threads, on the runtime of the client.
//!
//! Nothing here waits for the operating system, so that a runtime with a paused clock advances it by itself: an
//! hour of the cluster takes as long as its requests do.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

use crate::http::{self, Shared};
use crate::tls::{Identity, identity};
use crate::world::World;

/// Bytes in transit, in each direction.
const BUFFER: usize = 64 << 10;

/// A simulated cluster that is reached by [`InMemory::dial`]. Clones share it.
#[derive(Clone)]
pub struct InMemory {
    world: Shared,
    pub(crate) identity: Identity,
}

impl InMemory {
    pub fn new(world: World) -> io::Result<Self> {
        Ok(InMemory { world: Arc::new(Mutex::new(world)), identity: identity()? })
    }

    /// A name that its certificate is valid for. Nothing listens there.
    #[must_use]
    pub fn endpoint() -> &'static str {
        "https://localhost:8006"
    }

    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.identity.fingerprint
    }

    /// The client's end of a new connection, which carries HTTPS as a socket would. The calling runtime serves it
    /// until this end is dropped.
    #[must_use]
    pub fn dial(&self) -> DuplexStream {
        let (theirs, ours) = tokio::io::duplex(BUFFER);
        self.serve(ours);
        theirs
    }

    /// Serves a connection on the calling runtime.
    pub(crate) fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let acceptor = self.identity.acceptor.clone();
        tokio::spawn(http::serve_connection(stream, acceptor, Arc::clone(&self.world)));
    }

    /// Reads or changes the world, after everything that is due has taken effect.
    pub fn with<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        let mut world = http::lock(&self.world);
        world.settle();
        what(&mut world)
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
            let starts: Vec<_> = world.tasks().iter().map(|task| task.upid.start).collect();
            assert_eq!(starts[1] - starts[0], 3600);
            let is_running: Vec<_> = world.tasks().iter().map(Task::is_running).collect();
            assert_eq!(is_running, [false, true]);
            assert_eq!(world.tasks()[1].lasts(), (Instant::now(), Instant::now() + hour));
            assert_eq!(world.tasks()[1].upid.user, "root@pam");
        });
    }
}
