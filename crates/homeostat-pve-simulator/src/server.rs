//! Serves a world over HTTPS on the loopback, on a thread of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::http::{self, Shared};
use crate::tls::{Identity, identity};
use crate::world::{SECRET, USER, World};

/// A simulated cluster, served until it is dropped.
pub struct Simulator {
    world: Shared,
    address: SocketAddr,
    identity: Identity,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Simulator {
    /// Serves a world on a free port of the loopback.
    pub fn start(world: World) -> io::Result<Self> {
        Simulator::start_at(world, 0)
    }

    /// Serves a world on this port.
    pub fn start_at(world: World, port: u16) -> io::Result<Self> {
        let identity = identity()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let world = Arc::new(Mutex::new(world));
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (served, acceptor) = (Arc::clone(&world), identity.acceptor.clone());
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, acceptor, served) => {}
                    _ = stopped => {}
                }
            });
        });
        let (stop, thread) = (Some(stop), Some(thread));
        Ok(Simulator { world, address, identity, stop, thread })
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
        self.identity.fingerprint.clone()
    }

    /// Its certificate, in DER.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.identity.certificate
    }

    /// The certificate of the authority, in PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.identity.authority
    }

    /// The token that every new world has.
    #[must_use]
    pub fn token() -> String {
        format!("{USER}={SECRET}")
    }

    /// Reads or changes the world, after everything that is due has taken effect.
    pub fn with<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        http::with(&self.world, what)
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

async fn serve(listener: std::net::TcpListener, acceptor: TlsAcceptor, world: Shared) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::spawn(http::serve_connection(stream, acceptor.clone(), Arc::clone(&world)));
    }
}
