//! Tasks: what they do, how long they take, how they end.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::call::Call;
use crate::upid::Upid;

/// How a task ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Well.
    Ok,
    /// Well, with so many warnings.
    Warnings(u32),
    /// Badly, with these words.
    Error(String),
    /// Its process was killed: nobody wrote down how it ended.
    Killed,
    /// Its process was killed after the work was done.
    KilledAfterEffect,
}

impl End {
    pub(crate) fn exit_status(&self) -> String {
        match self {
            End::Ok => "OK".to_owned(),
            End::Warnings(count) => format!("WARNINGS: {count}"),
            End::Error(words) => words.clone(),
            End::Killed | End::KilledAfterEffect => "unexpected status".to_owned(),
        }
    }

    /// Whether the work is done by then.
    #[must_use]
    pub fn has_effect(&self) -> bool {
        matches!(self, End::Ok | End::Warnings(_) | End::KilledAfterEffect)
    }
}

/// How the next task of a guest goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// How long it takes.
    pub takes: Duration,
    /// How it ends.
    pub end: End,
}

impl Default for Script {
    fn default() -> Self {
        Script { takes: Duration::ZERO, end: End::Ok }
    }
}

/// What a task does in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Start,
    Stop,
    /// What this request says becomes the configuration.
    Configure(Call),
    Nothing,
}

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    pub(crate) name: Upid,
    pub(crate) effect: Effect,
    pub(crate) script: Script,
    pub(crate) began: Instant,
    pub(crate) due: Instant,
    pub(crate) is_over: bool,
    /// So many questions are answered with "no such task" yet.
    pub(crate) hidden: u32,
}

impl Task {
    /// Its name.
    #[must_use]
    pub fn upid(&self) -> String {
        self.name.to_string()
    }

    /// The guest that it is about.
    #[must_use]
    pub fn vmid(&self) -> u32 {
        self.name.vmid
    }

    /// What it does: `vzstart`, `qmstop`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.name.kind
    }

    /// Where it runs.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.name.node
    }

    /// Who began it, token included.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.name.user
    }

    /// When it began, and when it ends or has ended.
    #[must_use]
    pub fn lasts(&self) -> (Instant, Instant) {
        (self.began, self.due)
    }

    /// How it ends, unless somebody stops it before.
    #[must_use]
    pub fn end(&self) -> &End {
        &self.script.end
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.is_over
    }

    /// Whether it is a user's own: a token has only its own tasks, a user those of its tokens too.
    pub(crate) fn is_of(&self, user: &str) -> bool {
        self.name.user == user || self.owner().0 == user
    }

    /// The user, and which of its tokens.
    pub(crate) fn owner(&self) -> (&str, Option<&str>) {
        let owner = self.name.user.split_once('!');
        owner.map_or((&*self.name.user, None), |(user, token)| (user, Some(token)))
    }

    /// Its status, as it is answered.
    pub(crate) fn status(&self) -> Value {
        let mut status = self.common();
        if let Some(status) = status.as_object_mut() {
            let word = if self.is_over { "stopped" } else { "running" };
            status.insert("status".to_owned(), word.into());
            if self.is_over {
                status.insert("exitstatus".to_owned(), self.script.end.exit_status().into());
            }
        }
        status
    }

    /// Its row in the list: there the end is called the status.
    pub(crate) fn row(&self) -> Value {
        let mut row = self.common();
        if let Some(row) = row.as_object_mut() {
            if self.is_over {
                row.insert("endtime".to_owned(), self.name.start.into());
                row.insert("status".to_owned(), self.script.end.exit_status().into());
            } else {
                row.insert("status".to_owned(), "RUNNING".into());
            }
        }
        row
    }

    fn common(&self) -> Value {
        let Upid { node, process, start, kind, vmid, .. } = &self.name;
        let (user, token) = self.owner();
        let mut common = json!({
            "upid": self.upid(), "node": node, "pid": process, "pstart": process,
            "starttime": start, "type": kind, "id": vmid.to_string(), "user": user,
        });
        if let (Some(token), Some(common)) = (token, common.as_object_mut()) {
            common.insert("tokenid".to_owned(), token.into());
        }
        common
    }
}
