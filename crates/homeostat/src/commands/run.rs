//! `homeostat run`: the daemon.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use homeostat_engine::{Ledger, SqliteLedger};

use crate::cli::{Global, RunArgs};
use crate::commands::{block_on, load, not_built};
use crate::context::Context;
use crate::daemon::{Daemon, Readers};
use crate::failure::Helped;

/// Keeps the machine as declared until it is stopped.
pub(crate) fn run(args: &RunArgs, global: Global) -> Result<ExitCode> {
    let paths = &args.documents.documents;
    if let Some(store) = paths.iter().find(|path| path.to_string_lossy().starts_with("etcd:")) {
        return Err(not_built(&format!("`run {}`", store.display())));
    }
    if paths.iter().any(|path| path.as_os_str() == "-") {
        return Err(Helped::error(
            "the daemon reads its document again when it changes, and cannot do so from standard input",
            "write the document to a file",
        ));
    }
    let document = load(paths)?;
    let context = Context::enter(global, &document.settings)?;
    context.open_desk();
    let ledger: Arc<dyn Ledger> = Arc::new(SqliteLedger::open(&context.state_dir)?);
    let policy = args.on_stop.map(Into::into);
    let daemon = Daemon::new(context, (paths.clone(), document), ledger).stopping(policy);
    let readers = args.status_group.as_deref().map(Readers::find).transpose()?;
    let daemon = daemon.logging(args.log).listening(args.listen).read_by(readers).confined()?;
    block_on(Box::pin(daemon.run()))??;
    Ok(ExitCode::SUCCESS)
}
