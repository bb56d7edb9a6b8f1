//! The store of declarations: each stays, marked as being deleted, as long as it has a finalizer. It numbers
//! its changes, and can be watched from any of them on that it still knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::http::{Answer, Request};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// What is declared: a shape without its name.
    pub shape: Value,
    /// Who has to clean up before it may go.
    #[serde(default)]
    pub finalizers: BTreeSet<String>,
    /// Whether its deletion was asked for.
    #[serde(default)]
    pub deleting: bool,
}

/// The declarations, and how they came about.
#[derive(Default)]
pub struct Store {
    /// The declarations by name.
    pub declarations: BTreeMap<String, Declaration>,
    revision: u64,
    /// The changes by their revision, as a watch sends them.
    history: BTreeMap<u64, String>,
    watchers: Vec<Sender<String>>,
}

impl Store {
    pub(super) fn list(&self) -> Answer {
        let (revision, declarations) = (self.revision, &self.declarations);
        Answer::of(200, json!({ "revision": revision, "declarations": declarations }))
    }

    /// `PUT` and `DELETE /declarations/NAME`, and both on `/declarations/NAME/finalizers/WHO`.
    pub(super) fn write(&mut self, request: &Request) -> Answer {
        let mut parts = request.path.split('/').skip(2);
        let (name, who) = (parts.next().unwrap_or_default(), parts.nth(1));
        let before = self.declarations.get(name).cloned();
        let mut after = before.clone();
        match (request.method.as_str(), &mut after, who) {
            ("PUT", Some(declared), Some(who)) if !declared.deleting => {
                declared.finalizers.insert(who.to_owned());
            }
            ("PUT", Some(_), Some(_)) => return Answer::error(409, "it is being deleted"),
            ("PUT", Some(declared), None) => declared.shape = request.body.clone(),
            ("PUT", none @ None, None) => {
                let shape = request.body.clone();
                *none = Some(Declaration { shape, ..Declaration::default() });
            }
            ("DELETE", Some(declared), Some(who)) => {
                declared.finalizers.remove(who);
            }
            ("DELETE", Some(declared), None) => declared.deleting = true,
            (_, None, _) => return Answer::error(404, "no such declaration"),
            _ => return Answer::error(405, "unheard of"),
        }
        let after = after.filter(|declared| !declared.deleting || !declared.finalizers.is_empty());
        if before != after {
            self.change(name, after);
        }
        Answer::of(200, self.declarations.get(name))
    }

    fn change(&mut self, name: &str, after: Option<Declaration>) {
        self.revision += 1;
        let event = json!({ "revision": self.revision, "name": name, "declaration": after });
        let line = format!("{event}\n");
        self.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
        self.history.insert(self.revision, line);
        match after {
            Some(declared) => self.declarations.insert(name.to_owned(), declared),
            None => self.declarations.remove(name),
        };
    }

    /// Watches what changes after a revision.
    pub(super) fn watch(&mut self, after: u64) -> Receiver<String> {
        let (sender, receiver) = channel();
        let is_known = (after + 1..=self.revision).all(|at| self.history.contains_key(&at));
        let line = if after > self.revision {
            Some(json!({ "regressed": self.revision }))
        } else if !is_known {
            Some(json!({ "compacted": self.revision }))
        } else {
            None
        };
        let past = self.history.range(after.saturating_add(1)..).map(|(_, line)| line.clone());
        let lines = line.map_or_else(|| past.collect(), |line| vec![format!("{line}\n")]);
        for line in lines {
            // The receiver is in our hands.
            let _ = sender.send(line);
        }
        self.watchers.push(sender);
        receiver
    }

    /// Forgets the changes so far, and ends all watches.
    pub fn compact(&mut self) {
        self.history.clear();
        self.hang_up();
    }

    pub(super) fn hang_up(&mut self) {
        self.watchers.clear();
    }
}
