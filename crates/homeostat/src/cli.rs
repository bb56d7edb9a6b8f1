//! The words of the command line.

mod guests;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use homeostat_document::{OwnerName, Period, Protocol};
use homeostat_netns::Place;

pub(crate) use self::guests::{GuestArgs, GuestVerb, JournalArgs, RecordWord};
use crate::daemon::http::Listen;
use crate::output::Form;
use crate::output::text::Length;

/// Keeps Linux machines the way their owners declared them.
///
/// A document says what should exist. `plan` shows what differs, `apply` makes the smallest change,
/// `verify` tells whether all is as declared. Only what homeostat owns is ever deleted.
#[derive(Debug, Parser)]
#[command(name = "homeostat", version, max_term_width = 100)]
#[command(after_help = "Start with `homeostat show > host.toml`, then `homeostat plan host.toml`.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Parse and check a document; look at nothing else
    #[command(after_help = "Exit: 0 nothing wrong, 1 mistakes or error.")]
    Check(Documents),
    /// Show what would change; write nothing
    #[command(
        after_help = "Exit: 0 nothing or changes, 1 error; with --detailed-exitcode 2 = not converged."
    )]
    Plan(PlanArgs),
    /// Make the machine as declared, with the smallest change
    #[command(after_help = "Exit: 0 converged, 1 not converged or error.")]
    Apply(ApplyArgs),
    /// Tell whether the machine is as declared; write nothing
    #[command(after_help = "Exit: 0 converged, 2 not converged, 1 error.")]
    Verify(VerifyArgs),
    /// Keep the machine as declared: heal drift as it happens, look at everything on a timer
    #[command(after_help = "Stops on SIGTERM and SIGINT; reads the document again on SIGHUP, and \
                            when it has changed and been quiet for a second.")]
    Run(RunArgs),
    /// Tell how the daemon's loops stand, or one key
    #[command(after_help = "Exit: 0 converged, 2 not converged, 1 error.")]
    Status(StatusArgs),
    /// Tell what happened lately in the daemon
    Events(EventsArgs),
    /// Let the daemon make no passes, for some time or until `resume`
    Pause(PauseArgs),
    /// Let the daemon go on, beginning with a look at everything
    Resume(ScopeArgs),
    /// Let the daemon look at everything now, and wait for its report
    #[command(after_help = "Exit: 0 converged, 1 not converged or error.")]
    Resync(FormArgs),
    /// Let the daemon read its document again, and wait for its report
    #[command(after_help = "Exit: 0 converged, 1 not converged or error. A broken document is \
                            refused, and the last good one stands.")]
    Reload(FormArgs),
    /// Let the daemon take a declared key once from whoever has it
    Adopt(AdoptArgs),
    /// Give up ownership of a key that is no longer declared
    Release(KeyArgs),
    /// Drop what the ledger knows of a key; the machine is not touched
    Forget(KeyArgs),
    /// Start or stop a guest now, whatever is declared, and wait for the end of it
    #[command(
        after_help = "Exit: 0 done, 1 not done or not known. The daemon does it, if one runs; \
                            it heals what differs from its document."
    )]
    Guest(GuestArgs),
    /// Tell what was sent to guests, and what became of it
    #[command(
        after_help = "Exit: 0 told, 1 error. A step is begun by an intent; one without an end is looked up \
                            before anything else is sent to its key."
    )]
    Journal(JournalArgs),
    /// Print the observed state as a document, a start for writing one
    Show(ShowArgs),
    /// A tour in a sandbox: applies, is sabotaged, heals; touches nothing of the host
    Demo(DemoArgs),
    /// Print the JSON Schema of the document
    Schema,
    /// Print a completion script for a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Args, Debug)]
pub(crate) struct Documents {
    /// Documents (.toml, .yaml, .json) or directories of them, merged in name order; `-` is stdin
    #[arg(required = true, value_name = "DOC")]
    pub(crate) documents: Vec<PathBuf>,
}

/// How plans and reports are printed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct FormArgs {
    /// Print JSON: complete, and one document for all sources
    #[arg(long)]
    pub(crate) json: bool,
    /// Show every line of long lists
    #[arg(long)]
    pub(crate) full: bool,
}

impl FormArgs {
    /// The form that the flags ask for.
    pub(crate) fn form(self) -> Form {
        match (self.json, self.full) {
            (true, _) => Form::Json,
            (false, true) => Form::Text(Length::Full),
            (false, false) => Form::Text(Length::Cut),
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) documents: Documents,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    /// Exit with 2 if the machine is not as declared
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
    /// Save the plan and its document, so that `apply FILE` does exactly that
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) documents: Documents,
    /// Do not ask; needed where there is no terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Stop at the first failure and leave the rest pending
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    /// Roll back unless confirmed in time; not built in yet
    #[arg(long, value_name = "TIME")]
    pub(crate) confirm_within: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) documents: Documents,
    /// What becomes of what we own when the daemon stops [default: the document's, or leave]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) on_stop: Option<StopPolicy>,
    /// Answer over HTTP how all stands, to this machine only: /healthz, /readyz, /metrics,
    /// /api/v1/status, /api/v1/events
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<Listen>,
    /// Let this group read how all stands: `status` and `events`, nothing else
    #[arg(long, value_name = "NAME|NUMBER")]
    pub(crate) status_group: Option<String>,
    /// How the log is written
    #[arg(long, value_name = "FORM", value_enum, default_value = "text")]
    pub(crate) log: LogForm,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// One line an event, for people
    Text,
    /// One JSON object an event, a line each
    Json,
}

/// What becomes of what we own when the daemon stops.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum StopPolicy {
    /// Everything stays, and stays ours
    Leave,
    /// Everything stays, and what the ledger knows of it is forgotten
    Release,
    /// What we made goes, and originals come back
    Revert,
}

impl From<StopPolicy> for homeostat_engine::OnStop {
    fn from(policy: StopPolicy) -> Self {
        match policy {
            StopPolicy::Leave => Self::Leave,
            StopPolicy::Release => Self::Release,
            StopPolicy::Revert => Self::Revert,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Go on until Ctrl-C
    #[arg(long)]
    pub(crate) forever: bool,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// A key as plans print it, such as "route 10.0.0.0/8"
    #[arg(value_name = "KEY", conflicts_with = "wait")]
    pub(crate) key: Option<String>,
    /// In this scope only: `host`, or the name of a namespace
    #[arg(long, value_name = "NAME", requires = "key")]
    pub(crate) scope: Option<String>,
    /// Wait until everything is as declared, also for a daemon that is just starting
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", requires = "wait", default_value = "60s")]
    pub(crate) timeout: Period,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// Go on with what happens from here on
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PauseArgs {
    /// Go on by itself after this time, such as 10m
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) during: Option<Period>,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ScopeArgs {
    /// In this scope only: `host`, or the name of a namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) scope: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// A key as plans print it, such as "route 10.0.0.0/8"
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
}

#[derive(Args, Debug)]
pub(crate) struct AdoptArgs {
    /// A key as plans print it, such as "route 10.0.0.0/8"
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// In this scope only: `host`, or the name of a namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) scope: Option<String>,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) documents: Documents,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
pub(crate) struct ShowArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "toml")]
    pub(crate) json: bool,
    /// Print TOML, the default
    #[arg(long)]
    pub(crate) toml: bool,
    /// Every knob of the network namespace, not only the common and the owned ones
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
pub(crate) struct Global {
    /// Work in this network namespace
    #[arg(long, global = true, value_name = "NAME|PATH|PID", conflicts_with = "sandbox")]
    pub(crate) netns: Option<Place>,
    /// Work in a fresh, rootless sandbox; nothing of the host is touched
    #[arg(long, global = true)]
    pub(crate) sandbox: bool,
    /// Let a pass delete more than the guards allow
    #[arg(long, global = true)]
    pub(crate) allow_mass_delete: bool,
    /// Let a step go on although the kernel takes objects of others along with it
    #[arg(long, global = true)]
    pub(crate) allow_cascades: bool,
    /// Restore the original of a knob that is no longer declared
    #[arg(long, global = true)]
    pub(crate) revert_on_release: bool,
    /// Where the ledger lives [default: /var/lib/homeostat]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Whose desired state this is; overrides the document's settings
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) owner: Option<OwnerName>,
    /// The owner's mark in the kernel, 1 to 255; overrides the document's settings
    #[arg(long, global = true, value_name = "NUMBER|NAME")]
    pub(crate) protocol: Option<Protocol>,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Say only what is wrong
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say also what is settled or matched
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// Prints a usage error or the help that was asked for. Usage errors exit with 1, since 2 means
/// "not converged".
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    // Help into a closed pipe is no error.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
