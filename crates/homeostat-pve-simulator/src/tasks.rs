//! Tasks: their effect, duration and end.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::call::Call;

/// How a task ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum End {
    #[default]
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

/// The course of the next task of a guest; by default it succeeds at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub takes: Duration,
    pub end: End,
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
    pub upid: Upid,
    /// How it ends, unless it is stopped before.
    pub script: Script,
    pub(crate) effect: Effect,
    pub(crate) began: Instant,
    pub(crate) due: Instant,
    pub(crate) is_over: bool,
    /// How many more queries are answered with "no such task".
    pub(crate) hidden: u32,
}

impl Task {
    /// When it began and when it ends.
    #[must_use]
    pub fn lasts(&self) -> (Instant, Instant) {
        (self.began, self.due)
    }

    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.is_over
    }

    /// Whether the task belongs to `user`: a token owns only its own tasks, a user also those of its tokens.
    pub(crate) fn is_of(&self, user: &str) -> bool {
        self.upid.user == user || self.owner().0 == user
    }

    /// The user, and the name of the token.
    pub(crate) fn owner(&self) -> (&str, Option<&str>) {
        let owner = self.upid.user.split_once('!');
        owner.map_or((&*self.upid.user, None), |(user, token)| (user, Some(token)))
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
            row["endtime"] = self.upid.start.into();
            row["status"] = self.script.end.exit_status().into();
        }
        row
    }

    fn common(&self) -> Value {
        let Upid { node, process, start, kind, vmid, .. } = &self.upid;
        let (user, token) = self.owner();
        let mut common = json!({
            "upid": self.upid.to_string(), "node": node, "pid": process, "pstart": process,
            "starttime": start, "type": kind, "id": vmid.to_string(), "user": user,
        });
        if let Some(token) = token {
            common["tokenid"] = token.into();
        }
        common
    }
}

/// The name of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upid {
    pub node: String,
    pub process: u32,
    /// Seconds since 1970.
    pub start: u64,
    /// Such as `vzstart` or `qmstop`.
    pub kind: String,
    pub vmid: u32,
    /// The user that started it, with the token.
    pub user: String,
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Upid { node, process, start, kind, vmid, user } = self;
        write!(f, "UPID:{node}:{process:08X}:{process:08X}:{start:08X}:{kind}:{vmid}:{user}:")
    }
}
