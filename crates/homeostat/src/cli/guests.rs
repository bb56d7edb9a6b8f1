//! The arguments of `guest` and `journal`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

#[derive(Args, Debug)]
pub(crate) struct GuestArgs {
    /// What to do
    #[arg(value_enum)]
    pub(crate) verb: GuestVerb,
    /// The number of the guest
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(100..=999_999_999))]
    pub(crate) vmid: u32,
    /// A name for this command: a second try with it returns the outcome of the first, for a week
    ///
    /// A try while the first one runs waits for its outcome. If the outcome of the first one is unknown, the second
    /// one waits for a task that still runs, leaves a guest alone that has the requested run state, and sends the
    /// command again only otherwise.
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) idempotency_key: Option<String>,
    /// Document that names the cluster, if no daemon runs; a daemon uses its own document
    #[arg(long = "document", value_name = "DOC")]
    pub(crate) documents: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GuestVerb {
    /// Start it
    Start,
    /// Stop it at once
    Stop,
    /// Ask it to shut down
    Shutdown,
}

#[derive(Args, Debug)]
pub(crate) struct JournalArgs {
    /// Print existing records, then follow new ones
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only this key, such as "guest 101"
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Only records of this kind
    #[arg(long, value_enum, value_name = "WORD")]
    pub(crate) is: Option<RecordWord>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordWord {
    /// The request is about to be sent
    Intent,
    /// The target accepted the request and works on it
    Dispatched,
    /// The target completed the request
    Succeeded,
    /// The target did not complete the request
    Failed,
    /// The result is not known yet; the next pass looks it up
    Unknown,
}
