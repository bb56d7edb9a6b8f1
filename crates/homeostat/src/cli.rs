//! The command-line interface: commands, flags and their help texts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) use clap::ColorChoice as Color;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use homeostat_document::{DEFAULT_OWNER, OnStop, OwnerName, Period, Protocol, TRIAL, Text as _};
use homeostat_netns::Place;

use crate::checks::Check;
use crate::daemon::http::Listen;
use crate::orders::Right;
use crate::output::text::{Detail, Drawing, Length};
use crate::registry::SourceCommand;
use crate::wire::{About, ConfirmBy, Leave, OnFailure, Terms};

/// Keeps Linux machines the way their owners declared them.
///
/// A document declares what should exist. `plan` shows the differences, `apply` makes the smallest change,
/// `verify` checks whether the machine is as declared. homeostat deletes only what it owns.
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
    /// Parse and check a document; do not read the machine
    #[command(after_help = "Exit: 0 no mistakes, 1 mistakes or error.")]
    Check(Documents),
    /// Show what would change; write nothing
    #[command(
        after_help = "Exit: 0 planned, with or without changes, 1 error; with --detailed-exitcode 2 = not converged."
    )]
    Plan(PlanArgs),
    /// Change the machine to the declared state, with the smallest change
    #[command(after_help = "Exit: 0 converged, 1 not converged or error.")]
    Apply(ApplyArgs),
    /// Check whether the machine is as declared; write nothing
    #[command(after_help = "Exit: 0 converged, 2 not converged, 1 error.")]
    Verify(VerifyArgs),
    /// Keep the machine as declared: heal drift on events, check everything on a timer
    #[command(after_help = "Stops on SIGTERM and SIGINT; reads the document again on SIGHUP, and \
                            when it has changed and been quiet for a second.")]
    Run(RunArgs),
    /// Show the status of the daemon's loops, or of one key
    #[command(after_help = "Exit: 0 converged, 2 not converged, 1 error.")]
    Status(StatusArgs),
    /// List the daemon's recent events
    Events(EventsArgs),
    /// Pause the daemon's passes, for some time or until `resume`
    Pause(PauseArgs),
    /// Resume the daemon's passes, starting with a full pass
    Resume(ScopeArgs),
    /// Run a full pass in the daemon now, and wait for its report
    #[command(after_help = "Exit: 0 converged, 1 not converged or error.")]
    Resync(FormArgs),
    /// Make the daemon read its document again, and wait for its report
    #[command(after_help = "Exit: 0 converged, 1 not converged or error. A broken document is \
                            refused, and the last good one stays in force.")]
    Reload(FormArgs),
    /// Confirm the open trial: its document stays in force
    #[command(
        after_help = "`homeostat apply DOC --confirm-within TIME` begins a trial. Confirm it from a new login \
                            session: an old session may still work while new connections fail. \
                            Exit: 0 confirmed, 1 no trial or error."
    )]
    Confirm(ConfirmArgs),
    /// End the open trial and restore the document before it; with `--to`, try an older confirmed document
    #[command(
        after_help = "Exit: 0 rolled back and converged, or the older document was confirmed; 1 no trial, not \
                            converged, not confirmed, or error."
    )]
    Rollback(RollbackArgs),
    /// Put a piece of desired state beside the daemon's document, under a name of its own
    #[command(
        after_help = "For container engines and orchestrators. The piece is merged as a file of the directory would \
                            be: a key that is declared elsewhere, too, is an error that names both places, and the last \
                            good state stays. A piece of the same name is replaced. Pieces outlive the daemon, and are \
                            part of `plan`, `verify` and `apply`. \
                            Exit: 0 taken and converged, 1 refused, not converged or error."
    )]
    Put(PutArgs),
    /// Take away a piece that `put` put there, and delete what it declared
    #[command(after_help = "A name that no piece has is no error. \
                            Exit: 0 gone and converged, 1 not converged or error.")]
    Drop(DropArgs),
    /// Hold back new documents of the fleet on this machine, for some time or until `unhold`
    #[command(
        after_help = "The document in force is kept as declared. Documents that are held back are reported to the \
                            fleet, and are taken when the hold ends, if they are still valid."
    )]
    Hold(FleetHoldArgs),
    /// Take new documents of the fleet again
    Unhold(UnholdArgs),
    /// Take over the object on a declared key, once, from its current owner
    Adopt(AdoptArgs),
    /// Give up ownership of a key that is no longer declared
    Release(KeyArgs),
    /// Delete the ledger's record of a key; do not change the machine
    Forget(KeyArgs),
    /// Make an order for a command, to be signed: what the command would do here, and until when it may
    #[command(
        after_help = "`[settings] require-order` says which commands need an order. Carry it out with `--order FILE`, \
                            once. Nothing is done now. \
                            Exit: 0 made, 1 error."
    )]
    Order(OrderArgs),
    #[command(flatten)]
    Source(SourceCommand),
    /// List the confirmed documents, or show what one of them changed
    #[command(
        after_help = "Outside of trials, a document is confirmed once its first pass has run. The last twenty are \
                            kept, with every file that they name. A daemon that starts with a broken document uses \
                            the last confirmed one. \
                            Exit: 0 listed, 1 error."
    )]
    History(HistoryArgs),
    /// List the operations that must not be sent twice, and their results
    #[command(
        after_help = "Exit: 0 listed, 1 error. Each step starts with an intent. If its result is missing, homeostat \
                            looks it up before it sends anything else to that key."
    )]
    Journal(JournalArgs),
    /// Print the observed state as a document, to start your own from
    Show(ShowArgs),
    /// Delete everything that homeostat created here, and give back what it took over and changed
    #[command(
        after_help = "Stop the daemon first. Objects that homeostat created are deleted, adopted ones return to their \
                            former owners, sysctls and fields of links get their original values back. Objects of \
                            others stay. The command returns when nothing is left. \
                            Exit: 0 nothing is left, 1 something is left or error."
    )]
    Uninstall(UninstallArgs),
    /// Look at this machine: who else keeps its network, what would fight, what is missing, and what to do
    #[command(
        after_help = "It only reads, and needs no document and no daemon; as root it sees everything. \
                            Exit: 0 nothing fights and nothing is missing, 2 something does or is, 1 error."
    )]
    Doctor(DoctorArgs),
    /// Run a tour in a sandbox: apply, sabotage, heal; does not touch the host
    Demo(DemoArgs),
    /// Roll documents out to many machines that share an etcd
    #[command(
        after_help = "Each node runs `homeostat run etcd://...`, two or three management hosts run `homeostat fleet \
                            coordinate`. `fleet sign` renders and signs one document a node, `fleet plan` shows what \
                            it would do on each of them, `fleet start` begins, `fleet wait` follows it. If more nodes \
                            fail than the statement allows, every touched node goes back by itself. \
                            docs/fleet.md leads from three members of etcd to a fleet."
    )]
    Fleet(Box<crate::commands::fleet::args::FleetArgs>),
    /// Print the JSON Schema of the document
    Schema,
    /// Print a completion script for a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print a manual page, or write all of them
    #[command(
        after_help = "`homeostat man apply | man -l -` shows a page. Packages have them as files. \
                            Exit: 0 printed or written, 1 error."
    )]
    Man(ManArgs),
    /// Hold a trial where no daemon runs; `apply --confirm-within` starts it
    #[command(hide = true)]
    HoldTrial(HoldArgs),
    /// Roll back a trial whose holder process ended
    #[command(hide = true)]
    EndLeftTrial(EndArgs),
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
    /// Print JSON: complete, one JSON document for all sources
    #[arg(long)]
    pub(crate) json: bool,
    /// Show every line of long lists
    #[arg(long)]
    pub(crate) full: bool,
}

impl FormArgs {
    /// How reports are drawn for people; nothing for JSON.
    pub(crate) fn drawing(self, detail: Detail) -> Option<Drawing> {
        let length = if self.full { Length::Full } else { Length::Cut };
        (!self.json).then_some(Drawing { detail, length })
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
    /// Save the plan and its document; `apply FILE` applies exactly this plan
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) documents: Documents,
    /// Do not ask for confirmation; required if there is no terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Apply nothing if something declared cannot be resolved, such as a link; stop at the first failure
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    /// Make it a trial: restore the document before it, unless `homeostat confirm` is called within this time: from
    /// 1s to 24h, 2m if none is given
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2m", value_parser = trial_time)]
    pub(crate) confirm_within: Option<Period>,
    /// Check during the trial that this works: ping:ADDRESS, tcp:ADDRESS:PORT, http://ADDRESS:PORT/PATH or
    /// `cmd:/PATH ARGUMENTS`; may be given several times. If a check fails before the trial, the trial does not start
    #[arg(long = "check", value_name = "CHECK", requires = "confirm_within")]
    pub(crate) checks: Vec<Check>,
    /// What confirms the trial
    #[arg(
        long,
        value_name = "WHO",
        value_enum,
        default_value = "person",
        requires_if("checks", "checks")
    )]
    pub(crate) confirm_by: ConfirmBy,
    /// What happens if not everything can be applied
    #[arg(long, value_name = "WHAT", value_enum, default_value = "keep")]
    pub(crate) on_failure: OnFailure,
}

impl ApplyArgs {
    /// Whether it is a trial: for how long, and what decides about it.
    pub(crate) fn trial(&self) -> Option<(Duration, Terms)> {
        let Self { checks, confirm_by, on_failure, .. } = self;
        let terms =
            |confirm_by| Terms { checks: checks.clone(), confirm_by, on_failure: *on_failure };
        match (self.confirm_within, on_failure) {
            (Some(within), _) => Some((within.get(), terms(*confirm_by))),
            (None, OnFailure::Rollback) => Some((FIRST_PASSES, terms(ConfirmBy::Passes))),
            (None, OnFailure::Keep) => None,
        }
    }
}

/// A time that a trial can last.
fn trial_time(text: &str) -> Result<Period, String> {
    let range = "a trial lasts from 1s to 24h";
    let time: Period = text.parse().map_err(|error| {
        format!("{error}; write a whole number and a unit, such as 90s or 2m: {range}")
    })?;
    match time.get() {
        time if time < *TRIAL.start() => Err(format!("this is too short: {range}")),
        time if time > *TRIAL.end() => Err(format!("this is too long: {range}")),
        _ => Ok(time),
    }
}

/// How long a document may take to be applied that its own passes confirm.
const FIRST_PASSES: Duration = Duration::from_hours(1);

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) documents: Documents,
    /// What happens to owned objects when the daemon stops [default: the document's, or leave]
    #[arg(long, value_name = "POLICY", value_parser = stop_policies())]
    pub(crate) on_stop: Option<OnStop>,
    /// Serve the status over HTTP, on loopback only: /healthz, /readyz, /metrics,
    /// /api/v1/status, /api/v1/events
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<Listen>,
    /// Allow this group to read `status` and `events`, nothing else
    #[arg(long, value_name = "NAME|NUMBER")]
    pub(crate) status_group: Option<String>,
    /// Format of the log
    #[arg(long, value_name = "FORM", value_enum, default_value = "text")]
    pub(crate) log: LogForm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// One line per event, for people
    #[default]
    Text,
    /// One JSON object per event and line
    Json,
}

fn stop_policies() -> impl TypedValueParser<Value = OnStop> {
    let word = |policy: OnStop, help| PossibleValue::new(policy.word()).help(help);
    let words = [
        word(OnStop::Leave, "Everything stays, and homeostat still owns it"),
        word(OnStop::Release, "Everything stays, and its ledger records are deleted"),
        word(OnStop::Revert, "Created objects are deleted, original values are restored"),
    ];
    PossibleValuesParser::new(words).try_map(|word| OnStop::from_text(&word))
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// The words of a command, such as `fleet sign`; `homeostat.toml`; or `homeostat.7`, an overview. Without any, the
    /// page of the program
    #[arg(value_name = "PAGE", conflicts_with = "out")]
    pub(crate) page: Vec<String>,
    /// Write all pages into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Continue until Ctrl-C
    #[arg(long)]
    pub(crate) forever: bool,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// A key as plans print it, such as "route 10.0.0.0/8"
    #[arg(value_name = "KEY", conflicts_with = "wait")]
    pub(crate) key: Option<String>,
    /// Only in this scope: `host`, or the name of a namespace
    #[arg(long, value_name = "NAME", requires = "key")]
    pub(crate) scope: Option<String>,
    /// Wait until everything is as declared, also for a daemon that is still starting
    #[arg(long)]
    pub(crate) wait: bool,
    /// Maximum time to wait
    #[arg(long, value_name = "TIME", requires = "wait", default_value = "60s")]
    pub(crate) timeout: Period,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// Follow new events
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PauseArgs {
    /// Resume automatically after this time, such as 10m
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) during: Option<Period>,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
}

#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    /// The name of the piece: letters, digits, `.`, `_` and `-`
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// A document (.toml, .yaml, .json); `-` is stdin: JSON if it begins with a brace, else TOML
    #[arg(value_name = "DOC")]
    pub(crate) document: PathBuf,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DropArgs {
    /// The name of the piece
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Args, Debug)]
pub(crate) struct FleetHoldArgs {
    /// Why, for the operators of the fleet
    #[arg(value_name = "REASON")]
    pub(crate) reason: Option<String>,
    /// End the hold automatically after this time, such as 2h
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) during: Option<Period>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct UnholdArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ScopeArgs {
    /// Only in this scope: `host`, or the name of a namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) scope: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    pub(crate) about: About,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OrderArgs {
    /// Where to write the order
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// How long the order may be used, from now
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub(crate) valid_for: Period,
    /// Sign it with this key of OpenSSH, by `ssh-keygen`; without it, the command for that is printed
    #[arg(long, value_name = "KEY")]
    pub(crate) signing_key: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The command with all its options, such as `guest stop 101`
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    pub(crate) form: FormArgs,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    pub(crate) about: About,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ConfirmArgs {
    /// Do not confirm yet: let the trial go on for this time from now
    #[arg(long, value_name = "TIME", value_parser = trial_time)]
    pub(crate) extend: Option<Period>,
    /// Confirm although this is the session that began the trial
    #[arg(long)]
    pub(crate) same_session: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RollbackArgs {
    /// Try this document of `homeostat history`
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<u64>,
    /// Restore the present document, unless `homeostat confirm` is called within this time
    #[arg(long, value_name = "TIME", default_value = "2m", requires = "to", value_parser = trial_time)]
    pub(crate) confirm_within: Period,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// Another process waits for the end of this one
    #[arg(long)]
    pub(crate) watched: bool,
    /// Where to write why the trial cannot be held
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) end: EndArgs,
}

#[derive(Args, Debug)]
pub(crate) struct EndArgs {
    /// The file that is the namespace of --netns, whatever becomes of the process there
    #[arg(long, value_name = "FILE")]
    pub(crate) pinned: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct HistoryArgs {
    /// Show what this document changed, compared with the one before it
    #[arg(long, value_name = "N")]
    pub(crate) diff: Option<u64>,
    /// Print JSON
    #[arg(long, conflicts_with = "diff")]
    pub(crate) json: bool,
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

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) documents: Documents,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "toml")]
    pub(crate) json: bool,
    /// Print TOML, the default
    #[arg(long)]
    pub(crate) toml: bool,
    /// Print every knob of the network namespace, not only the common and the owned ones
    #[arg(long)]
    pub(crate) full: bool,
    /// Also print what other programs manage: leases, router advertisements, routes of routing daemons,
    /// links of container engines. Without this flag they are comments
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Work in this network namespace
    #[arg(long, global = true, value_name = "NAME|PATH|PID", conflicts_with = "sandbox")]
    pub(crate) netns: Option<Place>,
    /// Work in a new rootless sandbox; do not touch the host
    #[arg(long, global = true)]
    pub(crate) sandbox: bool,
    /// Allow deletes that the guards hold
    #[arg(long, global = true)]
    pub(crate) allow_mass_delete: bool,
    /// Allow steps whose side effects in the kernel delete foreign objects
    #[arg(long, global = true)]
    pub(crate) allow_cascades: bool,
    /// In a trial, also apply steps that cannot be undone; `plan` lists them
    #[arg(long, global = true)]
    pub(crate) accept_loss: bool,
    /// The signed order for this command, where the document requires one; signatures are in FILE.sig beside it
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) order: Option<PathBuf>,
    /// By what right the command is carried out: by the order, once it is read.
    #[arg(skip)]
    pub(crate) right: Right,
    /// Restore the original value of a knob, a file or a unit when it leaves the document
    #[arg(long, global = true)]
    pub(crate) revert_on_release: bool,
    /// Directory of the ledger [default: /var/lib/homeostat]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Owner of the desired state; overrides the document's settings
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) owner: Option<OwnerName>,
    /// The owner's mark in the kernel, 1 to 255; overrides the document's settings
    #[arg(long, global = true, value_name = "NUMBER|NAME")]
    pub(crate) protocol: Option<Protocol>,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Print problems only
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Also print settled and matched keys
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

impl Global {
    /// The name of the owner, where no document says another one.
    pub(crate) fn owner_name(&self) -> &str {
        self.owner.as_ref().map_or(DEFAULT_OWNER, OwnerName::as_str)
    }

    /// How much is printed.
    pub(crate) fn detail(&self) -> Detail {
        match (self.quiet, self.verbose) {
            (true, _) => Detail::Quiet,
            (_, true) => Detail::Verbose,
            _ => Detail::Normal,
        }
    }

    /// What the guards let through.
    pub(crate) fn leave(&self) -> Leave {
        Leave {
            mass_delete: self.allow_mass_delete,
            cascades: self.allow_cascades,
            losses: self.accept_loss,
        }
    }
}

/// Prints a usage error or the requested help. Usage errors exit with 1, since 2 means
/// "not converged".
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    // A closed pipe is not an error for help output.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
