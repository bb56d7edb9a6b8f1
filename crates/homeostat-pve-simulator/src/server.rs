//! Serves a world over HTTPS on the loopback, on a thread of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::in_memory::InMemory;
use crate::world::{SECRET, USER, World};

/// A simulated cluster, served until it is dropped.
pub struct Simulator {
    cluster: InMemory,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Simulator {
    /// Serves a world on a free port of the loopback.
    pub fn start(world: World) -> io::Result<Self> {
        let cluster = InMemory::new(world)?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = cluster.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Simulator { cluster, address, stop: Some(stop), thread: Some(thread) })
    }

    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.cluster.fingerprint().to_owned()
    }

    /// The certificate of the authority, in PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.cluster.identity.authority
    }

    /// The token that every new world has.
    #[must_use]
    pub fn token() -> String {
        format!("{USER}={SECRET}")
    }

    /// Reads or changes the world, after everything that is due has taken effect.
    pub fn with<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        self.cluster.with(what)
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: std::net::TcpListener, cluster: InMemory) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        cluster.serve(stream);
    }
}
