//! Everything behind the service: what it holds, what it was asked for, what it did.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

use super::faults::{Faults, spend};
use super::http::{Answer, Request};
use super::refs;
use super::shelf::Stored;
use super::store::Store;

/// Something that the service did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each with the name and the id of the shape")]
pub enum Effect {
    Made(String, u64),
    Changed(String, u64),
    Removed(String, u64),
}

/// Everything behind the service; tests change it behind the source's back.
#[derive(Default)]
pub struct State {
    /// The shapes by name.
    pub shapes: BTreeMap<String, Stored>,
    pub store: Store,
    /// Which shapes have an owner, by name.
    pub refs: BTreeMap<String, String>,
    /// What it does wrong.
    pub faults: Faults,
    /// The requests to write, in order: method, path and body.
    pub calls: Vec<String>,
    /// What became of them.
    pub effects: Vec<Effect>,
    /// How many requests to read came in.
    pub reads: u64,
    tasks: BTreeMap<String, Task>,
    watchers: Vec<Sender<String>>,
    notices: u64,
    versions: u64,
}

/// A write that was accepted.
enum Task {
    Running(Request),
    Over,
    Failed(String),
}

impl State {
    /// Answers a request; nothing where the answer is lost.
    pub(super) fn serve(&mut self, request: &Request) -> Option<Answer> {
        if request.path == "/faults" {
            return Some(self.mend(&request.body));
        }
        if !request.writes() {
            self.reads += 1;
            return Some(self.read(&request.path));
        }
        self.calls.push(format!("{} {} {}", request.method, request.path, request.body));
        let answer = self.accept(request);
        (!spend(&mut self.faults.lost_answers)).then_some(answer)
    }

    fn mend(&mut self, body: &Value) -> Answer {
        match serde_json::from_value(body.clone()) {
            Ok(faults) => {
                self.faults = faults;
                Answer::of(200, &self.faults)
            }
            Err(error) => Answer::error(400, &error.to_string()),
        }
    }

    fn read(&self, path: &str) -> Answer {
        if self.faults.blind {
            return Answer::error(500, "out of order");
        }
        match path.split_at(path.rfind('/').unwrap_or_default()) {
            ("", "/shapes") => self.listed(),
            ("", "/declarations") => self.store.list(),
            ("", "/refs") => Answer::of(200, &self.refs),
            ("/shapes", name) => {
                let shape = self.shapes.get(name.trim_start_matches('/'));
                shape.map_or_else(missing, |shape| Answer::of(200, shape))
            }
            ("/tasks", id) => self.task_status(id.trim_start_matches('/')),
            _ => missing(),
        }
    }

    fn listed(&self) -> Answer {
        let most = self.faults.partial.unwrap_or(usize::MAX);
        let some: Vec<_> = self.shapes.values().take(most).collect();
        Answer::of(200, json!({ "shapes": some, "total": self.shapes.len() }))
    }

    fn task_status(&self, id: &str) -> Answer {
        match self.tasks.get(id) {
            None => missing(),
            Some(Task::Running(_)) => Answer::of(200, json!({ "status": "running" })),
            Some(Task::Over) => Answer::of(200, json!({ "status": "over" })),
            Some(Task::Failed(error)) => {
                Answer::of(200, json!({ "status": "failed", "error": error }))
            }
        }
    }

    fn accept(&mut self, request: &Request) -> Answer {
        if spend(&mut self.faults.busy) {
            return Answer::of(429, json!({ "error": "too many requests", "after_ms": 20 }));
        }
        if request.path.starts_with("/declarations") {
            return self.store.write(request);
        }
        if request.path.starts_with("/refs") {
            return refs::write(&mut self.refs, request);
        }
        if self.faults.tasks {
            let id = format!("t{}", self.tasks.len() + 1);
            self.tasks.insert(id.clone(), Task::Running(request.clone()));
            return Answer::of(202, json!({ "task": id }));
        }
        self.write(request)
    }

    /// Ends a task: its write is done now, or never.
    pub fn finish(&mut self, id: &str, end: Result<(), &str>) {
        let Some(Task::Running(request)) = self.tasks.remove(id) else { return };
        let task = match end {
            Ok(()) => match self.write(&request) {
                Answer { status: 200..300, .. } => Task::Over,
                answer => Task::Failed(answer.body.to_string()),
            },
            Err(error) => Task::Failed(error.to_owned()),
        };
        self.tasks.insert(id.to_owned(), task);
    }

    fn write(&mut self, request: &Request) -> Answer {
        let named = request.path.strip_prefix("/shapes/");
        let name = named.or(request.body["name"].as_str()).unwrap_or_default().to_owned();
        if self.faults.frozen.contains(&name) {
            return Answer::error(423, "the shape is frozen");
        }
        match (request.method.as_str(), self.shapes.get(&name)) {
            ("POST", Some(shape)) => Answer::of(409, shape),
            ("POST", None) => self.keep(serde_json::from_value(request.body.clone())),
            (_, None) => missing(),
            (_, Some(shape)) if !shape.allows(request) => Answer::of(412, shape),
            ("PATCH", Some(shape)) => self.keep(shape.patched(&request.body)),
            ("DELETE", Some(_)) => {
                self.take_away(&name);
                Answer::of(204, Value::Null)
            }
            _ => Answer::error(405, "unheard of"),
        }
    }

    fn keep(&mut self, shape: Result<Stored, serde_json::Error>) -> Answer {
        match shape {
            Ok(shape) => Answer::of(200, self.put(shape)),
            Err(error) => Answer::error(400, &error.to_string()),
        }
    }

    /// Puts a shape there, or another in its place, and notifies the watchers.
    pub fn put(&mut self, shape: Stored) -> Stored {
        self.versions += 1;
        let former = self.shapes.get(&shape.name).map(|shape| shape.uid);
        let (uid, version) = (former.unwrap_or(self.versions), self.versions);
        let shape = Stored { uid, version, ..shape.kept() };
        let name = shape.name.clone();
        self.effects.push(match former {
            None => Effect::Made(name.clone(), uid),
            Some(_) => Effect::Changed(name.clone(), uid),
        });
        self.shapes.insert(name.clone(), shape.clone());
        self.notify(&name);
        shape
    }

    /// Deletes a shape, and notifies the watchers.
    pub fn take_away(&mut self, name: &str) -> Option<Stored> {
        let shape = self.shapes.remove(name)?;
        self.effects.push(Effect::Removed(name.to_owned(), shape.uid));
        self.notify(name);
        Some(shape)
    }

    /// The lines of a watch, if this is the path of one.
    pub(super) fn watched(&mut self, path: &str) -> Option<Receiver<String>> {
        match path.strip_prefix("/declarations/watch/") {
            Some(after) => Some(self.store.watch(after.parse().unwrap_or_default())),
            None => (path == "/watch").then(|| self.watch()),
        }
    }

    /// A new watcher; the first line says where the numbers stand.
    fn watch(&mut self) -> Receiver<String> {
        let (sender, receiver) = channel();
        let _ = sender.send(format!("{}\n", json!({ "number": self.notices })));
        self.watchers.push(sender);
        receiver
    }

    /// Ends all watches.
    pub fn hang_up(&mut self) {
        self.watchers.clear();
        self.store.hang_up();
    }

    /// How many watch.
    #[must_use]
    pub fn watched_by(&self) -> usize {
        self.watchers.len()
    }

    fn notify(&mut self, name: &str) {
        if self.faults.mute {
            return;
        }
        self.notices += 1;
        if spend(&mut self.faults.lost_notices) {
            return;
        }
        let line = format!("{}\n", json!({ "number": self.notices, "name": name }));
        self.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
    }
}

fn missing() -> Answer {
    Answer::error(404, "there is none")
}
