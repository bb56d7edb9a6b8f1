//! The words of `guest` and `journal`.

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
    /// A name for this command: a second try with it gets the outcome of the first, for a week
    ///
    /// A try while the first one runs waits for it. Where nobody knows how the first one ended, what still runs
    /// is joined, a guest that is as asked for is left alone, and only else it is sent again.
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) idempotency_key: Option<String>,
    /// Where the cluster is, if no daemon runs; a daemon uses its own document
    #[arg(long = "document", value_name = "DOC")]
    pub(crate) documents: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is done to a guest.
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
    /// After what is there, go on with what is written from here on
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only this key, such as "guest 101"
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Only records that say this
    #[arg(long, value_enum, value_name = "WORD")]
    pub(crate) is: Option<RecordWord>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a record of the journal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordWord {
    /// It is about to be sent
    Intent,
    /// The target accepted it and works on it
    Dispatched,
    /// The target did it
    Succeeded,
    /// The target did not do it
    Failed,
    /// Nobody knows; the next look tells
    Unknown,
}
