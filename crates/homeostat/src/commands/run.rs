//! `homeostat run`: the daemon.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use homeostat_engine::{LateLedger, Ledger};
use homeostat_kit::provider::Answer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cli::{Global, RunArgs};
use crate::commands::runtime;
use crate::context::Context;
use crate::daemon::{Daemon, End, Options, Readers, log};
use crate::provider;

/// Each namespace takes about ten descriptors, and the usual limit is 1024. Programs that are started get the limit
/// too: `nft` does not use `select`, for which it is low.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Without it, fewer namespaces can be kept.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The exit code when the process of `--netns PID` has ended.
const PROCESS_ENDED: u8 = 3;

/// Keeps the machine as declared until it is stopped.
pub(crate) fn run(args: &RunArgs, global: Global) -> Result<ExitCode> {
    raise_open_files();
    let arguments = &args.documents.documents;
    let mut provider = provider::open(arguments)?;
    let runtime = runtime()?;
    let document = match runtime.block_on(provider.answer()) {
        Answer::DesiredState(document) => document,
        Answer::Unknown { why } => return Err(why),
        Answer::Nothing => return Err(anyhow!("the provider has no document")),
    };
    let context = Context::enter(global, &document.settings)?.writing();
    log::init(args.log, context.detail);
    let (ledger, unwritable) = LateLedger::open(&context.state_dir)?;
    if let Some(error) = unwritable {
        log::log_error(&error.into(), "started without a ledger that can be written");
    }
    let ledger: Arc<dyn Ledger> = Arc::new(ledger);
    let from: Vec<_> = arguments.iter().map(|path| path.to_string_lossy()).collect();
    let options = Options {
        from: from.join(" "),
        on_stop: args.on_stop,
        listen: args.listen,
        readers: args.status_group.as_deref().map(Readers::find).transpose()?,
    };
    let daemon = Daemon::new(context, provider, document, ledger, options).confined()?;
    Ok(match runtime.block_on(Box::pin(daemon.run()))? {
        End::Stopped => ExitCode::SUCCESS,
        End::ProcessEnded => ExitCode::from(PROCESS_ENDED),
    })
}
