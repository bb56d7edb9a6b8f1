//! A tiny HTTP service that stores shapes, one request a connection. It stands for a foreign API.
//!
//! `GET /shapes`, `POST /shapes`, `GET`, `PATCH` and `DELETE /shapes/NAME`, `GET /tasks/ID`. `GET
//! /watch` sends one line a change, numbered, for as long as the connection stands. A write may be
//! conditional: `If-Label: NAME=VALUE` on a label, `If-Match: VERSION` on the version of the shape
//! that is there. `PUT /faults` makes it misbehave ([`Faults`]). Beside the shapes it has a store of
//! declarations under `/declarations`, which is watched at `/declarations/watch/REVISION`, and of references under
//! `/refs`.

mod faults;
mod http;
mod meddle;
mod refs;
mod shelf;
mod state;
mod store;

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use faults::Faults;
pub use shelf::Stored;
pub use state::{Effect, State};
pub use store::{Declaration, Store};

use http::Request;

/// The running service; it ends when this is dropped.
pub struct Service {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Ends the pauses of slow answers.
    ended: Condvar,
    stop: AtomicBool,
}

impl Shared {
    /// Every change of the state is whole when the lock is let go, so a panic elsewhere broke nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Starts on a free port of the loopback interface.
    pub fn start() -> io::Result<Self> {
        Self::start_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Starts on an address.
    pub fn start_on(addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        let addr = listener.local_addr()?;
        let (state, ended) = (Mutex::new(State::default()), Condvar::new());
        let shared = Arc::new(Shared { state, ended, stop: AtomicBool::new(false) });
        let served = Arc::clone(&shared);
        let thread = thread::spawn(move || serve(&listener, &served));
        Ok(Service { addr, shared, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What is behind it, to look at and to meddle with.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// How many requests to write came in.
    pub fn writes(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.state().calls.len() as u64
    }

    /// Waits for as long as the service stands.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.state().hang_up();
        self.shared.ended.notify_all();
        // The listener waits for a connection: give it one.
        let _ = TcpStream::connect(self.addr);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let shared = Arc::clone(shared);
        // A client that hangs up is its own trouble.
        thread::spawn(move || stream.and_then(|stream| answer(&stream, &shared)));
    }
}

fn answer(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let request = Request::read(stream)?;
    let mut state = shared.state();
    if let Some(lines) = state.watched(&request.path) {
        drop(state);
        return send_notices(stream, &lines);
    }
    let slow = Duration::from_millis(state.faults.slow_ms);
    if !slow.is_zero() {
        let awake = |_: &mut State| !shared.stop.load(Ordering::SeqCst);
        let waited = shared.ended.wait_timeout_while(state, slow, awake);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    let answered = state.serve(&request);
    drop(state);
    answered.map_or(Ok(()), |answer| answer.write(stream))
}

fn send_notices(mut stream: &TcpStream, notices: &Receiver<String>) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 -\r\n\r\n")?;
    notices.iter().try_for_each(|notice| stream.write_all(notice.as_bytes()))
}
