//! The messages of the control socket: one JSON object a line, both ways.

use std::fmt;
use std::time::Duration;

use clap::{Args, ValueEnum};
use homeostat_document::Format;
pub(crate) use homeostat_engine::health::State as CheckState;
use homeostat_engine::{Cascades, Failure, Guards, MassDelete, Mode, OpenCounts};
use homeostat_fleet::order::{self, SignedOrder};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checks::{Check, CheckResult};
use crate::output::line::plain;
use crate::output::text::Drawing;

/// The version of all that is said here; another first number is another language.
pub(crate) const FORMAT_VERSION: &str = "1.0";

/// How many bytes a piece may have.
pub(crate) const LONGEST_PIECE: usize = 1 << 20;

/// One request with the version that it is written in.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Envelope {
    pub(crate) format_version: Option<String>,
    /// The order that lets the request be carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<SignedOrder>,
    #[serde(flatten)]
    pub(crate) request: Request,
}

/// What can be asked of a daemon.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// How all loops stand; waits so long for them to converge.
    Status { wait_ms: Option<u64> },
    /// How one key stands.
    Key(About),
    /// A page of the keys that are not as declared: those after the `next` of another page.
    Open { after: Option<String>, limit: Option<usize> },
    /// What happened lately, and what happens from here on; the last request of a conversation.
    Events {
        #[serde(default)]
        follow: bool,
    },
    /// Holds passes off.
    Pause { for_ms: Option<u64>, scope: Option<String> },
    /// Lets passes go on.
    Resume { scope: Option<String> },
    /// Runs a full pass now.
    Resync(Ask),
    /// Reads the document again.
    Reload(Ask),
    /// Takes another document in place of the daemon's own; as a trial, if it has to be confirmed within some time.
    Apply {
        handed: Handed,
        ask: Ask,
        #[serde(default)]
        confirm_within_ms: Option<u64>,
        #[serde(default)]
        terms: Terms,
    },
    /// Puts a piece beside the document, in place of the one of this name.
    Put {
        name: String,
        format: Format,
        /// What relative paths in it are relative to.
        directory: std::path::PathBuf,
        text: String,
        #[serde(default)]
        ask: Ask,
    },
    /// Takes a piece away, with what it declares.
    Drop {
        name: String,
        #[serde(default)]
        ask: Ask,
    },
    /// How a trial ended; waits so long for its end.
    Trial { id: u64, wait_ms: u64 },
    /// Ends the open trial: what it made stays. Or gives it more time.
    Confirm {
        extend_ms: Option<u64>,
        #[serde(default)]
        same_session: bool,
    },
    /// Ends the open trial: what was before comes back. Or tries an older confirmed document.
    Rollback { ask: Ask, to: Option<OlderDocument> },
    /// Takes what is on a declared key from its current owner.
    Adopt { about: About, ask: Ask },
    /// Gives up ownership of a key.
    Release(About),
    /// Drops what the ledger knows of a key.
    Forget(About),
    /// A command of a source, in the source's own words; waits for the end of it.
    Source { source: String, request: Value },
    /// What an order for this request must say. Nothing is carried out.
    Describe { request: Box<Request> },
}

/// The answer to [`Request::Describe`].
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct DescribeAnswer {
    pub(crate) format_version: String,
    pub(crate) command: order::Command,
}

impl Request {
    /// Whether a document can require an order for it.
    pub(crate) fn can_need_order(&self) -> bool {
        match self {
            Request::Resync(ask)
            | Request::Reload(ask)
            | Request::Apply { ask, .. }
            | Request::Rollback { ask, to: Some(_) } => !ask.leave.actions().is_empty(),
            Request::Adopt { .. }
            | Request::Release(_)
            | Request::Forget(_)
            | Request::Source { .. } => true,
            _ => false,
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(
            self,
            Request::Status { .. }
                | Request::Key(_)
                | Request::Open { .. }
                | Request::Trial { .. }
                | Request::Events { .. }
        )
    }
}

/// A key, in one scope or in all.
#[derive(Args, Clone, Debug, Deserialize, Serialize)]
pub(crate) struct About {
    /// A key as plans print it, such as "route 10.0.0.0/8"
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// Only in this scope: `host`, or the name of a namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) scope: Option<String>,
}

/// What a pass may do, and how it is reported.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Ask {
    /// Drawn for people in this way; else the report is JSON.
    pub(crate) text: Option<Drawing>,
    #[serde(default)]
    pub(crate) leave: Leave,
}

/// What guards let through, this once.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Leave {
    pub(crate) mass_delete: bool,
    pub(crate) cascades: bool,
    /// In a trial.
    #[serde(default)]
    pub(crate) losses: bool,
}

impl Leave {
    /// The words by which a document requires orders for it.
    pub(crate) fn actions(self) -> Vec<String> {
        let Leave { mass_delete, cascades, losses } = self;
        let all = [(mass_delete, "mass-delete"), (cascades, "cascades"), (losses, "accept-loss")];
        let let_through = all.into_iter().filter(|(is_let_through, _)| *is_let_through);
        let_through.map(|(_, word)| word.to_owned()).collect()
    }

    /// The same guards, but for what is let through.
    pub(crate) fn apply(self, mut guards: Guards) -> Guards {
        if self.mass_delete {
            guards.mass_delete = MassDelete::Allow;
        }
        if self.cascades {
            guards.cascades = Cascades::Allow;
        }
        guards
    }
}

/// A document for the daemon, and for whom and where it is meant.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Handed {
    pub(crate) paths: Vec<std::path::PathBuf>,
    /// The identity of the scope that its top level is for.
    pub(crate) top: String,
    pub(crate) protocol: u8,
}

/// How one loop stands.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct LoopStatus {
    pub(crate) source: String,
    pub(crate) scope: String,
    pub(crate) mode: Mode,
    pub(crate) paused: bool,
    pub(crate) ready: bool,
    pub(crate) converged: bool,
    pub(crate) pass: u64,
    pub(crate) last_attempt_ago_ms: Option<u64>,
    pub(crate) last_success_ago_ms: Option<u64>,
    pub(crate) last_error: Option<Failure>,
    pub(crate) failures: u32,
    pub(crate) next_due_in_ms: Option<u64>,
    pub(crate) next_why: Option<String>,
    pub(crate) stall: Option<String>,
    pub(crate) open: OpenCounts,
    /// What was counted since the start.
    pub(crate) counts: Value,
    pub(crate) contended: Vec<Contended>,
    pub(crate) not_converging: Vec<String>,
    /// What the whole scope waits on, if it is not there.
    pub(crate) waits_on: Option<String>,
    /// Who acts on the target, where machines of a fleet share it.
    #[serde(default)]
    pub(crate) role: Option<RoleStatus>,
    /// The pattern by which the document declares the scope, if it has no section of its own.
    #[serde(default)]
    pub(crate) pattern: Option<String>,
}

/// Whether this machine acts on a target that machines of a fleet share.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct RoleStatus {
    pub(crate) role: Role,
    pub(crate) since: String,
    /// Which fleet and target.
    pub(crate) shared: String,
    /// The node that acts, if it is another one and known.
    pub(crate) leader: Option<String>,
    /// Why this machine cannot be elected now.
    pub(crate) trouble: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// It was elected: it reads and writes.
    Leader,
    /// It reads, and is ready to take over.
    Standby,
}

/// A key that another program keeps undoing.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Contended {
    pub(crate) key: String,
    pub(crate) culprit: String,
    pub(crate) pause_ms: u64,
}

/// How one key stands in one scope.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct KeyStatus {
    pub(crate) source: String,
    pub(crate) scope: String,
    pub(crate) key: String,
    pub(crate) declared: bool,
    pub(crate) converged: bool,
    /// One word for how it stands, and more words where there are any.
    pub(crate) state: String,
    /// Whether the plan or the report says anything of it.
    #[serde(skip)]
    pub(crate) is_mentioned: bool,
    pub(crate) owner: Option<String>,
    pub(crate) wanted: Option<Value>,
    pub(crate) held: Option<Value>,
    pub(crate) waits_on: Option<String>,
    pub(crate) reason: Option<String>,
    /// The event of the last write to it that is still remembered.
    pub(crate) last_heal: Option<Value>,
    /// Where it is declared: file, line and column.
    #[serde(default)]
    pub(crate) declared_at: Option<String>,
    /// The command that resolves it, if it is not as declared and one can.
    #[serde(default)]
    pub(crate) command: Option<String>,
    /// The last events about it that are still remembered, the newest first.
    #[serde(default)]
    pub(crate) events: Vec<Value>,
}

/// How everything stands.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Overview {
    pub(crate) format_version: String,
    pub(crate) converged: bool,
    pub(crate) ready: bool,
    /// Whether a document is in force that was handed over, not the daemon's own.
    pub(crate) handed: bool,
    /// Its number in the history, if it was confirmed.
    #[serde(default)]
    pub(crate) handed_number: Option<u64>,
    /// The number of the confirmed document that is in force because the daemon's own could not be taken.
    #[serde(default)]
    pub(crate) fallback: Option<u64>,
    /// Whether the document in force was tried and rolled back before: the daemon was started with it, and no other one
    /// was ever confirmed.
    #[serde(default)]
    pub(crate) tried_before: bool,
    #[serde(default)]
    pub(crate) trial: Option<TrialStatus>,
    /// The last trial that has ended since the start.
    #[serde(default)]
    pub(crate) last_trial: Option<LastTrial>,
    /// Where the daemon's own document comes from; nothing, if the daemon does not say.
    pub(crate) provider: Option<ProviderStatus>,
    pub(crate) loops: Vec<LoopStatus>,
    /// The first keys that are not as declared.
    #[serde(default)]
    pub(crate) open_keys: Vec<OpenItem>,
    /// What was put beside the document, by name.
    #[serde(default)]
    pub(crate) pieces: Vec<PieceStatus>,
    /// The checks of what is there only while they are good.
    #[serde(default)]
    pub(crate) checks: Vec<CheckStatus>,
}

/// How a check stands, of what is there only while it is good.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct CheckStatus {
    pub(crate) scope: String,
    pub(crate) check: Check,
    pub(crate) state: CheckState,
    /// Since when; nothing while that is not decided.
    pub(crate) since: Option<String>,
    /// Why it failed the last time.
    pub(crate) reason: Option<String>,
    /// For how long it does not count as good, because it failed soon after it had come back.
    pub(crate) held_ms: Option<u64>,
    /// How often it began to fail since the daemon was started.
    pub(crate) failures: u64,
    pub(crate) every_ms: u64,
    pub(crate) fall: u32,
    pub(crate) rise: u32,
}

/// A piece of desired state beside the document.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct PieceStatus {
    pub(crate) name: String,
    pub(crate) put_at: String,
    pub(crate) put_by: String,
    pub(crate) bytes: usize,
}

/// What decides about a trial besides time and people.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Terms {
    #[serde(default)]
    pub(crate) checks: Vec<Check>,
    #[serde(default)]
    pub(crate) confirm_by: ConfirmBy,
    #[serde(default)]
    pub(crate) on_failure: OnFailure,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ConfirmBy {
    /// `homeostat confirm`, from another session
    #[default]
    Person,
    /// The checks, once all are good three times in a row
    Checks,
    /// The passes, once everything is as declared.
    #[value(skip)]
    Passes,
    /// A node of a fleet by itself: everything stays as declared, its checks are good, and its store answers.
    #[value(skip)]
    Node,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnFailure {
    /// Keep what could be applied
    #[default]
    Keep,
    /// Restore the document before it if not everything can be applied
    Rollback,
}

/// A confirmed document that is tried again.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct OlderDocument {
    pub(crate) number: u64,
    pub(crate) confirm_within_ms: u64,
}

/// A trial that is open.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct TrialStatus {
    pub(crate) id: u64,
    /// Who began it.
    pub(crate) by: String,
    /// The documents that are tried.
    pub(crate) from: Vec<std::path::PathBuf>,
    pub(crate) began_at: String,
    pub(crate) left_ms: u64,
    /// The number of the confirmed document that it returns to; nothing, if nothing was declared before.
    pub(crate) returns_to: Option<u64>,
    /// Whether the daemon's own files changed meanwhile.
    pub(crate) edit_waits: bool,
    /// Why it is being rolled back, while that lasts.
    #[serde(default)]
    pub(crate) rolls_back: Option<String>,
    #[serde(default)]
    pub(crate) confirm_by: ConfirmBy,
    /// How its checks ended the last time.
    #[serde(default)]
    pub(crate) checks: Vec<CheckResult>,
}

/// A trial that has ended.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LastTrial {
    pub(crate) id: u64,
    pub(crate) ended: TrialEnd,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub(crate) enum TrialEnd {
    /// Its document is a confirmed one now.
    Confirmed { number: u64, by: String },
    /// The document before it is in force again.
    RolledBack(RolledBack),
}

/// A rollback that has been carried out.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct RolledBack {
    pub(crate) why: String,
    /// The confirmed document; nothing, if nothing was declared before.
    pub(crate) to: Option<u64>,
    /// The first keys that are not as they were; the loops go on with them.
    #[serde(default)]
    pub(crate) not: Vec<NotRestored>,
    /// How many there are.
    #[serde(default)]
    pub(crate) not_count: usize,
    /// Objects that were deleted by the trial, and were made again from their records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) made_again: Vec<NamedKey>,
    /// What others had lost by the trial and have made again by themselves: it is left as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left: Vec<NamedKey>,
    /// What others had made on the objects of the trial, and lost by the rollback, since the trial might take things along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) went_along: Vec<NamedKey>,
    /// How the checks of the trial ended after the rollback.
    #[serde(default)]
    pub(crate) checks: Vec<CheckResult>,
}

/// An object, wherever it is.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct NamedKey {
    pub(crate) source: String,
    pub(crate) scope: String,
    pub(crate) key: String,
}

/// A key that a rollback could not bring back yet.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct NotRestored {
    pub(crate) source: String,
    pub(crate) scope: String,
    pub(crate) key: String,
    pub(crate) kind: String,
    pub(crate) reason: Option<String>,
}

impl fmt::Display for TrialEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrialEnd::Confirmed { number, by } => {
                write!(f, "Confirmed by {}: it is document {number} of the history.", plain(by))
            }
            TrialEnd::RolledBack(end) => write!(f, "{end}"),
        }
    }
}

impl fmt::Display for RolledBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            Some(number) => write!(f, "Rolled back to the confirmed document {number}: ")?,
            None => f.write_str("Rolled back to nothing declared: ")?,
        }
        write!(f, "{}.", plain(&self.why))?;
        if !self.not.is_empty() {
            f.write_str("\nRolled back, but not:")?;
        }
        for NotRestored { source, scope, key, kind, reason } in &self.not {
            let why = reason.as_deref().unwrap_or(kind);
            write!(f, "\n  {} ({source} in {}): {}", plain(key), plain(scope), plain(why))?;
        }
        match self.not_count.saturating_sub(self.not.len()) {
            0 => {}
            more => write!(f, "\n  and {more} more")?,
        }
        for (what, keys, more) in [
            ("Made again", &self.made_again, ""),
            ("Left", &self.left, " is there already"),
            ("Went along", &self.went_along, ""),
        ] {
            for NamedKey { source, scope, key } in keys {
                write!(f, "\n{what}: {} ({source} in {}){more}.", plain(key), plain(scope))?;
            }
        }
        self.checks.iter().try_for_each(|result| write!(f, "\nAfter the rollback, {result}."))
    }
}

/// Some of the keys that are not as declared.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct OpenPage {
    pub(crate) format_version: String,
    pub(crate) open: Vec<OpenItem>,
    /// Where the next page begins; nothing if this is the last one.
    pub(crate) next: Option<String>,
}

/// A key that is not as declared, and what to do about it.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct OpenItem {
    pub(crate) source: String,
    pub(crate) scope: String,
    pub(crate) key: String,
    pub(crate) kind: String,
    pub(crate) reason: Option<String>,
    pub(crate) owner: Option<String>,
    /// Not known of a scope that is not there.
    pub(crate) since: Option<String>,
    pub(crate) help: Option<String>,
    /// The command that resolves it, if one can.
    #[serde(default)]
    pub(crate) command: Option<String>,
    /// In how many milliseconds it is tried again, if it failed and does not wait for a change.
    #[serde(default)]
    pub(crate) next_try_in_ms: Option<u64>,
}

/// Whether the daemon's own document can be taken from its provider.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ProviderStatus {
    /// The provider's arguments, as the command line has them.
    pub(crate) from: String,
    pub(crate) ok: bool,
    pub(crate) last_good_ago_ms: u64,
    pub(crate) last_error: Option<Failure>,
}

/// The answer of a source to one of its commands.
#[derive(Debug, Serialize)]
pub(crate) struct SourceAnswer {
    pub(crate) format_version: &'static str,
    #[serde(flatten)]
    pub(crate) answer: Value,
}

/// An answer that says no. `text` is how it is drawn for people.
pub(crate) fn refusal(error: &str, text: &str) -> Value {
    json!({ "format_version": FORMAT_VERSION, "error": error, "text": text })
}

/// A time in whole milliseconds, as numbers on the wire are.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time as people say it.
pub(crate) fn time_in_words(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..120_000 => format!("{} s", millis / 1000),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        _ => format!("{} h", millis / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_the_unit_that_fits() {
        let rows = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_200_000, "2 h"),
        ];
        for (millis, expected) in rows {
            assert_eq!(time_in_words(millis), expected);
        }
    }
}
