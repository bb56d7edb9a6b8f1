//! Holds a trial where no daemon runs: a daemon without a document of its own. It runs outside of the operator's session,
//! and lives as long as the trial does.
//!
//! Where systemd runs, the holder is a transient unit, and `ExecStopPost` brings back what was before if the holder
//! dies. Elsewhere it is the child of a second process, in a session of its own, that waits for its end and does the same.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of this program that starts programs"
)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_document::{Document, Settings};
use homeostat_engine::outcome::Later;
use homeostat_engine::{Kind, Ledger, SqliteLedger};
use homeostat_kit::provider::{Answer, Provider};
use homeostat_netns::Place;

use super::left_trial::{self, Left};
use super::plan::plan;
use super::run::raise_open_files;
use super::runtime;
use crate::cli::{EndArgs, Global, HoldArgs, LogForm};
use crate::client::Client;
use crate::confirmed::{ConfirmedDocuments, absolute, nothing_declared};
use crate::context::{Context, Top};
use crate::daemon::{Daemon, Options, Role, log};
use crate::failure::{self, Relayed, helped};
use crate::output::SourceReport;
use crate::pieces::Pieces;
use crate::provider::DocumentProvider;

/// What a holder prints once a trial can be handed to it.
const READY: &str = "ready\n";
/// How often the second process tries to bring back what was before, and how long it waits in between.
const TRIES: u32 = 30;
const RETRY: Duration = Duration::from_secs(1);
/// How often is looked whether a holder is gone, and how many times.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 60;

/// The command line of a holder that works where and as this process does.
pub(super) fn arguments(global: &Global) -> Vec<OsString> {
    let mut arguments = Vec::new();
    let mut add = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    if let Some(place) = &global.netns {
        add(
            "--netns",
            match place {
                Place::At(path) => absolute(path).into(),
                place => place.to_string().into(),
            },
        );
    }
    if let Some(directory) = &global.state_dir {
        add("--state-dir", absolute(directory).into());
    }
    if global.revert_on_release {
        arguments.push("--revert-on-release".into());
    }
    arguments
}

/// Starts a holder, and waits until it can be spoken with.
pub(super) fn start(context: &Context, mut arguments: Vec<OsString>) -> Result<()> {
    if matches!(context.top, Top::Sandbox) {
        return Err(helped(
            "a sandbox ends with its command, and a trial in it protects nothing",
            "leave out --sandbox or --confirm-within",
        ));
    }
    if Client::try_connect(&context.socket).is_some() {
        return Err(helped(
            format!(
                "the daemon of `{}` works elsewhere, so it cannot hold the trial",
                context.caller.owner
            ),
            "give this document an owner, a protocol and a state directory of its own",
        ));
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let identity = ["--owner".into(), (&context.caller.owner).into()];
    let mark = ["--protocol".into(), context.caller.mark.0.to_string().into()];
    arguments.extend(identity.into_iter().chain(mark));
    let pin_path = context.pin_path().map(|path| absolute(&path));
    if let Some(path) = &pin_path {
        homeostat_netns::pin(&context.top_scope()?.netns, path)?;
        arguments.extend(["--pinned".into(), path.into()]);
    }
    let started = if is_below_systemd() {
        start_unit(&program, &arguments, &context.caller.owner)
    } else {
        start_detached(&program, &arguments)
    };
    if let (Err(_), Some(path)) = (&started, &pin_path) {
        // Why there is no holder is the error to report.
        let _ = homeostat_netns::unpin(path);
    }
    started
}

/// Whether the service manager works where this process does: a unit of it has its namespaces.
fn is_below_systemd() -> bool {
    let is_same = |kind: &str| {
        let own = std::fs::read_link(format!("/proc/self/ns/{kind}")).ok();
        own.is_some() && own == std::fs::read_link(format!("/proc/1/ns/{kind}")).ok()
    };
    Path::new("/run/systemd/system").is_dir() && is_same("net") && is_same("mnt")
}

fn start_unit(program: &Path, arguments: &[OsString], owner: &str) -> Result<()> {
    let unit = format!("homeostat-trial-{owner}");
    let mut after_end = format!("ExecStopPost={} end-left-trial", quoted(program.as_os_str()));
    for argument in arguments {
        after_end.push(' ');
        after_end.push_str(&quoted(argument));
    }
    // A unit has none of the descriptors of who starts it, but root can open them.
    let (mut said, says) = io::pipe()?;
    let report = format!("/proc/{}/fd/{}", std::process::id(), says.as_raw_fd());
    let mut command = Command::new("systemd-run");
    command.args(["--quiet", "--collect", "--service-type=notify", "--unit", &unit]);
    // A rollback by `ExecStopPost` is a stop, too.
    command.args(["--property=TimeoutStopSec=90", "--property=LimitNOFILE=65536", "--property"]);
    command.arg(after_end).arg("--").arg(program);
    command.args(["hold-trial", "--watched", "--report", &report]);
    let output = command.args(arguments.iter().map(unexpanded)).stdin(Stdio::null()).output();
    let output = output.context("cannot run systemd-run")?;
    if output.status.success() {
        return Ok(());
    }
    drop(says);
    let mut reason = String::new();
    said.read_to_string(&mut reason)?;
    if !reason.is_empty() {
        return Err(Relayed(reason).into());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(helped(
        format!("the trial has no holder: {reason}"),
        format!("`journalctl -u {unit}` may say why"),
    ))
}

/// An argument as a property of a transient unit has it. Specifiers (`%`) are not expanded there.
fn quoted(argument: &OsStr) -> String {
    let text = unexpanded(argument).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

/// An argument of a command of a unit, in which variables would be replaced.
fn unexpanded(argument: impl AsRef<OsStr>) -> String {
    argument.as_ref().to_string_lossy().replace('$', "$$")
}

fn start_detached(program: &Path, arguments: &[OsString]) -> Result<()> {
    let (mut said, says) = io::pipe()?;
    let mut command = Command::new(program);
    command.arg("hold-trial").args(arguments).current_dir("/");
    command.stdin(Stdio::null()).stdout(says.try_clone()?).stderr(says);
    // They are for the service that this process may be a part of.
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
    command.spawn().context("cannot start the holder of the trial")?;
    // Its ends of the pipe go when it is ready, or has failed.
    drop(command);
    let mut text = String::new();
    said.read_to_string(&mut text)?;
    match text.strip_suffix(READY) {
        Some(warnings) => io::stderr().write_all(warnings.as_bytes()).map_err(Into::into),
        None => Err(Relayed(text).into()),
    }
}

/// Waits until a holder whose trial has ended is gone, so that the next command finds the lock free.
pub(super) fn wait_for_end(socket: &Path) {
    for _ in 0..LOOKS {
        if Client::try_connect(socket).is_none() {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// The holder, or the process that watches it.
pub(super) fn run(args: &HoldArgs, global: Global) -> Result<ExitCode> {
    if !args.watched {
        return watch(&args.end, global);
    }
    // Opened now: later on, the process of that path may be another one.
    let report = args.report.as_ref().map(|path| File::options().write(true).open(path));
    let held = hold(&args.end, global);
    if let (Err(error), Some(Ok(mut report))) = (&held, report) {
        // The command that began the trial may have ended.
        let _ = failure::write(error, &mut report);
    }
    held
}

fn watch(args: &EndArgs, global: Global) -> Result<ExitCode> {
    // The operator's session may end, and takes all of its processes with it.
    rustix::process::setsid().context("cannot leave the session")?;
    let mut holder = Command::new(std::env::current_exe()?);
    holder.args(std::env::args_os().skip(1)).arg("--watched");
    let mut holder = holder.spawn().context("cannot start the holder of the trial")?;
    be_silent()?;
    if holder.wait()?.success() {
        unpin(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    end_left_trial(args, global)
}

/// Brings back what was before a trial, if its holder has not done so, and takes away what was made for the holder.
pub(super) fn end_left_trial(args: &EndArgs, global: Global) -> Result<ExitCode> {
    let ended = enter(args, global).and_then(|context| roll_back_left(&context));
    unpin(args)?;
    ended
}

fn unpin(args: &EndArgs) -> Result<()> {
    args.pinned.as_deref().map(homeostat_netns::unpin).transpose()?;
    Ok(())
}

fn enter(args: &EndArgs, global: Global) -> Result<Context> {
    let context = Context::enter(global, &Settings::default())?.writing();
    match &args.pinned {
        Some(path) => context.in_pinned(path),
        None => Ok(context),
    }
}

fn roll_back_left(context: &Context) -> Result<ExitCode> {
    let mut tries = 0;
    loop {
        tries += 1;
        let ledger = SqliteLedger::open(&context.caller.state_dir);
        let ended = ledger.map_err(Into::into).and_then(|ledger| {
            left_trial::roll_back(context, &(Arc::new(ledger) as Arc<dyn Ledger>))
        });
        match ended {
            Ok(Left::Nothing) => return Ok(ExitCode::SUCCESS),
            // The process that has the lock rolls back.
            Ok(Left::Locked) if tries == TRIES => return Ok(ExitCode::SUCCESS),
            Err(error) if tries == TRIES => return Err(error),
            Ok(Left::Locked) | Err(_) => std::thread::sleep(RETRY),
        }
    }
}

fn hold(args: &EndArgs, global: Global) -> Result<ExitCode> {
    raise_open_files();
    let context = enter(args, global)?;
    let ledger: Arc<dyn Ledger> = Arc::new(SqliteLedger::open(&context.caller.state_dir)?);
    let confirmed = ConfirmedDocuments::of(&context.caller.state_dir, &context.caller.owner);
    let before = confirmed.newest_in(&context.top_scope()?.name);
    let before_text =
        before.as_ref().map_or_else(nothing_declared, |entry| confirmed.load(entry))?;
    let mut pieces = Pieces::open(&context)?;
    let before_text = pieces.join(Arc::new(before_text))?;
    let reports = plan(&context, &before_text)?;
    if before.is_none() && owns_anything(&reports) {
        return Err(helped(
            format!(
                "`{}` owns something here, and no confirmed document says how it was",
                context.caller.owner
            ),
            "apply the document that is in force once more, without --confirm-within; then try the other one",
        ));
    }
    if is_unit() {
        log::init(LogForm::Text, context.detail);
    }
    let options = Options {
        pieces: Some(pieces),
        role: Role::HoldTrial { guarded: has(&reports, Kind::Held) },
        on_stop: Some(homeostat_document::OnStop::Leave),
        ready: Some(Box::new(|| {
            if !is_unit() {
                // The process that started it may have ended.
                let _ = io::stdout().write_all(READY.as_bytes());
                let _ = be_silent();
            }
        })),
        ..Options::default()
    };
    let daemon = Daemon::new(context, Box::new(NoProvider), before_text, ledger, options);
    runtime()?.block_on(Box::pin(daemon.run()))?;
    Ok(ExitCode::SUCCESS)
}

fn owns_anything(reports: &[SourceReport]) -> bool {
    has(reports, Kind::Change) || has(reports, Kind::Held)
}

fn has(reports: &[SourceReport], kind: Kind) -> bool {
    let mut found = false;
    for SourceReport { report, .. } in reports {
        report.explain(kind, &mut |_| found = true);
    }
    found
}

/// Whether systemd has started this process, and so keeps its log.
fn is_unit() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Closes what this process inherited.
fn be_silent() -> Result<()> {
    let nowhere = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

/// A holder has no document that could be read again.
struct NoProvider;

impl DocumentProvider for NoProvider {}

impl Provider for NoProvider {
    type DesiredState = Document;
    type Error = anyhow::Error;

    fn answer(&mut self) -> Later<'_, Answer<Document, anyhow::Error>> {
        let why = helped(
            "no daemon runs here, only the holder of a trial, which has no document of its own",
            "`homeostat confirm` or `homeostat rollback` ends the trial; then start `homeostat run DOC`",
        );
        Box::pin(std::future::ready(Answer::Unknown { why }))
    }
}
