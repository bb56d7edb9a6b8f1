//! Tasks: their effect, duration and end.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::call::Call;

/// How a task ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Ok,
    /// Successful, with this many warnings.
    Warnings(u32),
    /// Failed, with this text.
    Error(String),
    /// Its process was killed, so that its exit status was never recorded.
    Killed,
    /// The same, after it had its effect.
    KilledAfterEffect,
}

impl End {
    pub(crate) fn exit_status(&self) -> String {
        match self {
            End::Ok => "OK".to_owned(),
            End::Warnings(count) => format!("WARNINGS: {count}"),
            End::Error(text) => text.clone(),
            End::Killed | End::KilledAfterEffect => "unexpected status".to_owned(),
        }
    }

    #[must_use]
    pub fn has_effect(&self) -> bool {
        matches!(self, End::Ok | End::Warnings(_) | End::KilledAfterEffect)
    }
}

/// The course of the next task of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub takes: Duration,
    pub end: End,
}

impl Default for Script {
    fn default() -> Self {
        Script { takes: Duration::ZERO, end: End::Ok }
    }
}

/// What a task changes when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Start,
    Stop,
    /// Applies the parameters of this request to the configuration.
    Configure(Call),
    Nothing,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub(crate) name: Upid,
    pub(crate) effect: Effect,
    pub(crate) script: Script,
    pub(crate) began: Instant,
    pub(crate) due: Instant,
    pub(crate) is_over: bool,
    /// How many more queries are answered with "no such task".
    pub(crate) hidden: u32,
}

impl Task {
    #[must_use]
    pub fn upid(&self) -> String {
        self.name.to_string()
    }

    #[must_use]
    pub fn vmid(&self) -> u32 {
        self.name.vmid
    }

    /// Such as `vzstart` or `qmstop`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.name.kind
    }

    #[must_use]
    pub fn node(&self) -> &str {
        &self.name.node
    }

    /// The user that started it, with the token.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.name.user
    }

    /// When it began and when it ends.
    #[must_use]
    pub fn lasts(&self) -> (Instant, Instant) {
        (self.began, self.due)
    }

    /// Its end, unless it is stopped before.
    #[must_use]
    pub fn end(&self) -> &End {
        &self.script.end
    }

    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.is_over
    }

    /// Whether the task belongs to `user`: a token owns only its own tasks, a user also those of its tokens.
    pub(crate) fn is_of(&self, user: &str) -> bool {
        self.name.user == user || self.owner().0 == user
    }

    /// The user, and the name of the token.
    pub(crate) fn owner(&self) -> (&str, Option<&str>) {
        let owner = self.name.user.split_once('!');
        owner.map_or((&*self.name.user, None), |(user, token)| (user, Some(token)))
    }

    /// As `/tasks/{upid}/status` shows it.
    pub(crate) fn status(&self) -> Value {
        let mut status = self.common();
        status["status"] = if self.is_over { "stopped" } else { "running" }.into();
        if self.is_over {
            status["exitstatus"] = self.script.end.exit_status().into();
        }
        status
    }

    /// As `/tasks` lists it, where the field `status` holds the exit status.
    pub(crate) fn row(&self) -> Value {
        let mut row = self.common();
        row["status"] = "RUNNING".into();
        if self.is_over {
            row["endtime"] = self.name.start.into();
            row["status"] = self.script.end.exit_status().into();
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
        if let Some(token) = token {
            common["tokenid"] = token.into();
        }
        common
    }
}

/// The name of a task: node, process, start time, kind, guest, user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upid {
    pub(crate) node: String,
    pub(crate) process: u32,
    /// Seconds since 1970.
    pub(crate) start: u64,
    pub(crate) kind: String,
    pub(crate) vmid: u32,
    pub(crate) user: String,
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Upid { node, process, start, kind, vmid, user } = self;
        write!(f, "UPID:{node}:{process:08X}:{process:08X}:{start:08X}:{kind}:{vmid}:{user}:")
    }
}

pub(crate) fn node_of(upid: &str) -> Option<&str> {
    let mut parts = upid.split(':');
    (parts.next() == Some("UPID")).then(|| parts.next()).flatten()
}

pub(crate) fn pid_of(upid: &str) -> Option<u32> {
    upid.split(':').nth(2).and_then(|process| u32::from_str_radix(process, 16).ok())
}
