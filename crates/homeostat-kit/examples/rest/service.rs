//! A tiny HTTP service that keeps shapes, one request a connection. It stands for somebody's API.
//!
//! `GET /shapes`, `GET`, `PATCH` and `DELETE /shapes/NAME`, `POST /shapes`. The header
//! `If-Label: NAME=VALUE` makes a write conditional on a label of the shape that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::http::{Answer, Request};

/// A shape as the service stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// Unique.
    pub(crate) name: String,
    /// Circle, square and so on.
    pub(crate) kind: String,
    /// What it is painted with.
    pub(crate) colour: String,
    /// Whatever clients like to note.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
}

/// Everything behind the service, open to whoever wants to meddle.
#[derive(Default)]
pub(crate) struct State {
    /// The shapes by name.
    pub(crate) shapes: BTreeMap<String, Stored>,
    writes: u64,
    /// Answers every reading request with an error.
    pub(crate) blind: bool,
    /// Refuses writes to these shapes.
    pub(crate) frozen: BTreeSet<String>,
}

/// The running service; it ends when this is dropped.
pub(crate) struct Service {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts on a free port of the loopback interface.
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        let (state, stop) = (Arc::<Mutex<State>>::default(), Arc::<AtomicBool>::default());
        let (shared, stopped) = (state.clone(), stop.clone());
        let thread = thread::spawn(move || serve(&listener, &shared, &stopped));
        Ok(Service { addr, state, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What is behind it, to look at and to meddle with.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells how many requests to write came in.
    pub(crate) fn writes(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let state = self.state.clone();
        move || state.lock().unwrap_or_else(PoisonError::into_inner).writes
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The listener waits for a connection: give it one.
        let _ = TcpStream::connect(self.addr);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, state: &Mutex<State>, stop: &AtomicBool) {
    for stream in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        // A client that hangs up is its own trouble.
        let _ = stream.and_then(|stream| answer(&stream, state));
    }
}

fn answer(stream: &TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let request = Request::read(stream)?;
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.serve(&request).write(stream)
}

impl State {
    fn serve(&mut self, request: &Request) -> Answer {
        let name = request.path.strip_prefix("/shapes/");
        match (request.method.as_str(), name) {
            ("GET", _) if self.blind => Answer::error(500, "out of order"),
            ("GET", None) => Answer { status: 200, body: json!(self.listed()) },
            ("GET", Some(name)) => self.find(name),
            (method, name) => {
                self.writes += 1;
                self.write(method, name, request)
            }
        }
    }

    fn listed(&self) -> Vec<&Stored> {
        self.shapes.values().collect()
    }

    fn find(&self, name: &str) -> Answer {
        match self.shapes.get(name) {
            Some(shape) => Answer { status: 200, body: json!(shape) },
            None => Answer::error(404, "no such shape"),
        }
    }

    fn write(&mut self, method: &str, name: Option<&str>, request: &Request) -> Answer {
        let subject = name.or(request.body["name"].as_str()).unwrap_or_default().to_owned();
        match (method, self.shapes.get(&subject)) {
            _ if self.frozen.contains(&subject) => Answer::error(423, "the shape is frozen"),
            ("POST", Some(shape)) => Answer { status: 409, body: json!(shape) },
            ("POST", None) => self.insert(request.body.clone()),
            (_, None) => Answer::error(404, "no such shape"),
            (_, Some(shape)) if !request.allows(&shape.labels) => {
                Answer { status: 412, body: json!(shape) }
            }
            ("PATCH", Some(shape)) => self.insert(merged(json!(shape), &request.body)),
            ("DELETE", Some(_)) => {
                self.shapes.remove(&subject);
                Answer { status: 204, body: Value::Null }
            }
            _ => Answer::error(405, "unheard of"),
        }
    }

    fn insert(&mut self, body: Value) -> Answer {
        match serde_json::from_value::<Stored>(body) {
            Ok(shape) => {
                let body = json!(shape);
                self.shapes.insert(shape.name.clone(), shape);
                Answer { status: 200, body }
            }
            Err(error) => Answer::error(400, &error.to_string()),
        }
    }
}

/// Lays `patch` over `base`, objects field by field.
fn merged(mut base: Value, patch: &Value) -> Value {
    match (&mut base, patch) {
        (Value::Object(fields), Value::Object(patch)) => {
            for (name, value) in patch {
                let field = fields.remove(name).unwrap_or_default();
                fields.insert(name.clone(), merged(field, value));
            }
            base
        }
        (_, patch) => patch.clone(),
    }
}
