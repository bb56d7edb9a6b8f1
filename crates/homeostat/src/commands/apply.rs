//! `homeostat apply`: plan, ask, apply, verify, report.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::{Document, Format};
use homeostat_engine::{Entry, Finding, Kind, Ledger, SqliteLedger, Strictness, WaitsOn};

use crate::cli::{ApplyArgs, FormArgs, Global};
use crate::client::Client;
use crate::commands::left_trial::{self, Left};
use crate::commands::plan::plan;
use crate::commands::saved::{self, Saved};
use crate::commands::{block_on, hand_over, holder};
use crate::confirmed::{self, ConfirmedDocuments, Origin};
use crate::context::Context;
use crate::failure::{self, helped};
use crate::machine::{Drivers, Machine};
use crate::operator;
use crate::orders::{OrderGate, OrderedAction, Right};
use crate::output::digest::Digest;
use crate::output::progress::Bar;
use crate::output::text::{Closing, Detail, Drawing, Length};
use crate::output::{SourceReport, is_converged, json, stream, summary, text};
use crate::person::Person;
use crate::pieces;
use crate::provider::load;
use crate::referenced_files::ReferencedFiles;

/// Makes the machine as declared.
pub(crate) fn run(args: &ApplyArgs, global: Global) -> Result<ExitCode> {
    let asked = Asked::read(args)?;
    let document = asked.document()?;
    let holder_arguments = holder::arguments(&global);
    let mut context = Context::enter(global, &document.settings)?;
    let document = pieces::join(&context, document)?;
    if args.strict {
        context.caller.strictness = Strictness::Strict;
    }
    if context.detail != Detail::Quiet {
        context.caller.progress = Some(Arc::new(Bar::default()));
    }
    if context.right == Right::Describe {
        return describe(&asked, &context, &document);
    }
    let needs_a_yes = !args.yes && asked.saved.is_none();
    if needs_a_yes && !std::io::stdin().is_terminal() {
        refuse_changes(&context, &document)?;
    }
    let context = context.writing();
    let files = ReferencedFiles::of(&document);
    let ledger: Arc<dyn Ledger> = Arc::new(SqliteLedger::open(&context.caller.state_dir)?);
    let unlocked = loop {
        let left = left_trial::roll_back(&context, &ledger)?;
        let unlocked = Machine::bind(&context, &document, &*ledger)?.unlock(&ledger);
        // The holder of a trial may have ended just between the two.
        let is_free = unlocked.as_ref().is_ok_and(Drivers::has_top_lock);
        if left == Left::Nothing || !is_free {
            break unlocked;
        }
    };
    let drivers = match unlocked {
        Ok(drivers) if args.trial().is_some() => {
            if args.strict {
                refuse_unresolved(&block_on(drivers.plan())??)?;
            }
            // The holder takes the lock.
            drop(drivers);
            let start = || holder::start(&context, holder_arguments);
            let code = hand_over::to_daemon(&asked, &context, &document, start)?;
            holder::wait_for_end(&context.socket);
            return Ok(code);
        }
        Ok(drivers) => drivers,
        Err(error) => return hand_over::instead(error, &asked, &context, &document),
    };
    let reports = block_on(async {
        if let Some(saved) = &asked.saved {
            saved.check(&drivers.plan().await?)?;
        } else if needs_a_yes {
            ask(&context, &drivers, args.form).await?;
        }
        if args.strict {
            refuse_unresolved(&drivers.plan().await?)?;
        }
        let gate = OrderGate::where_no_daemon_runs(&context.caller, &document.settings);
        let actions = context.leave.actions();
        if gate.must_know(&context.right, &actions) {
            let ordered = OrderedAction::of_plan(actions, &drivers.plan().await?)?;
            gate.check(&context.right, ordered).await?;
        }
        drivers.converge().await
    })??;
    if let Err(error) = asked.confirm(&context, &document, &files) {
        failure::warn(&error, context.color);
    }
    let printed = stream::print(context.color, |to| match args.form.drawing(context.detail) {
        None => json::report(&reports, to),
        Some(drawing) => text::report(&reports, drawing, to),
    });
    let message = "the changes were made, but the report cannot be written to standard output";
    printed.context(message)?;
    Ok(if is_converged(&reports) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks what an order for this apply must say: the daemon, or the machine itself. It ends in that error.
fn describe(asked: &Asked<'_>, context: &Context, document: &Document) -> Result<ExitCode> {
    if let Some(client) = Client::try_connect(&context.socket) {
        let files = asked.args.documents.documents.clone();
        let (request, _) = hand_over::request(asked, context, &files)?;
        client.by_right(&context.right).ask(request)?;
        return Ok(ExitCode::FAILURE);
    }
    let gate = OrderGate::where_no_daemon_runs(&context.caller, &document.settings);
    let ordered = OrderedAction::of_plan(context.leave.actions(), &plan(context, document)?)?;
    block_on(gate.check(&context.right, ordered))?.map(|_| ExitCode::FAILURE)
}

/// In strict mode nothing is applied if something rests on what is neither there nor made, or can never be.
fn refuse_unresolved(reports: &[SourceReport]) -> Result<()> {
    let (mut made, mut waiting, mut refused) = (BTreeSet::new(), Vec::new(), Vec::new());
    for SourceReport { report, ledger_key, .. } in reports {
        report.explain(Kind::Change, &mut |entry| {
            let Entry::Change(line, _) = entry else { return };
            made.extend(line.provides.into_iter().map(|one| in_scope(one, &ledger_key.scope)));
        });
        report.explain(Kind::Pending, &mut |entry| {
            let Entry::Finding { key, finding: Finding::Pending { on } } = entry else { return };
            if matches!(on, WaitsOn::Link { .. } | WaitsOn::Namespace(_)) {
                let words = format!("`{key}` waits on {on}");
                waiting.push((in_scope(on, &ledger_key.scope), words));
            }
        });
        report.explain(Kind::Failed, &mut |entry| {
            refused.push(format!("`{}`: {}", entry.key(), entry.reason()));
        });
    }
    let waiting = waiting.into_iter().filter(|(needed, _)| !made.contains(needed));
    let all: Vec<String> = waiting.map(|(_, words)| words).chain(refused).collect();
    let Some(first) = all.first() else { return Ok(()) };
    let more = match all.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Err(helped(
        format!("nothing was applied, since --strict is given: {first}{more}"),
        "`homeostat plan` shows all of it; without --strict the rest is applied",
    ))
}

/// The same, as every scope would name it.
fn in_scope(on: WaitsOn, scope: &str) -> WaitsOn {
    match on {
        WaitsOn::Link { name, namespace } => {
            WaitsOn::Link { name, namespace: namespace.or_else(|| Some(scope.to_owned())) }
        }
        on => on,
    }
}

/// What is to be applied: documents, or a saved plan.
pub(super) struct Asked<'a> {
    pub(super) args: &'a ApplyArgs,
    pub(super) saved: Option<Saved>,
}

impl<'a> Asked<'a> {
    fn read(args: &'a ApplyArgs) -> Result<Self> {
        let paths = &args.documents.documents;
        for path in paths {
            if let Some(saved) = saved::read(path)? {
                return match paths.len() {
                    1 => Ok(Asked { args, saved: Some(saved) }),
                    _ => Err(helped(
                        format!("{} is a saved plan, which is applied alone", path.display()),
                        "name it alone, or only documents",
                    )),
                };
            }
        }
        let is_other = |path: &&PathBuf| path.is_file() && Format::of(path).is_none();
        match paths.iter().find(is_other) {
            Some(other) => Err(helped(
                format!("`{}` is neither a document nor a saved plan", other.display()),
                "a document ends in .toml, .yaml, .yml or .json; `homeostat plan --out` saves a plan",
            )),
            None => Ok(Asked { args, saved: None }),
        }
    }

    /// Keeps the document: its pass has run.
    fn confirm(
        &self,
        context: &Context,
        document: &Document,
        files: &ReferencedFiles,
    ) -> Result<()> {
        let from = self.args.documents.documents.iter();
        let origin = Origin {
            from: from.map(|path| confirmed::absolute(path)).collect(),
            scope: context.top_scope()?.name,
            applied_by: Person::current(),
            confirmed_by: None,
        };
        let confirmed = ConfirmedDocuments::of(&context.caller.state_dir, &context.caller.owner);
        confirmed.add(document, files, origin).map(drop)
    }

    fn document(&self) -> Result<Document> {
        match &self.saved {
            Some(saved) => saved.document(),
            None => load(&self.args.documents.documents),
        }
    }
}

/// Shows the plan and waits for a yes. The plan is made again after it: if something moved
/// meanwhile, that is shown and asked for again.
async fn ask(context: &Context, drivers: &Drivers<'_>, form: FormArgs) -> Result<()> {
    let mut agreed = None;
    loop {
        let reports = drivers.plan().await?;
        let mut digest = Digest::default();
        json::plan(&reports, &mut digest)?;
        let shown = digest.finish();
        if summary(&reports).total() == 0 || agreed == Some(shown) {
            return Ok(());
        }
        if agreed.is_some() {
            writeln!(stream::stderr(context.color), "The machine moved meanwhile.")?;
        }
        confirm(context, &reports, form)?;
        agreed = Some(shown);
    }
}

/// Without a terminal, changes are refused before anything is opened for writing.
fn refuse_changes(context: &Context, document: &Document) -> Result<()> {
    if summary(&plan(context, document)?).total() == 0 {
        return Ok(());
    }
    let help = "look at `homeostat plan`, then add --yes";
    Err(helped("there is no terminal to ask on", help))
}

/// Shows a plan and waits for a yes.
pub(super) fn confirm(context: &Context, reports: &[SourceReport], form: FormArgs) -> Result<()> {
    let length = if form.full && !form.json { Length::Full } else { Length::Cut };
    let mut stderr = stream::stderr(context.color);
    text::plan(reports, Drawing { detail: Detail::Normal, length }, Closing::Plan, &mut stderr)?;
    for warning in operator::warnings(context, reports) {
        writeln!(stderr, "warning: {warning}")?;
    }
    write!(stderr, "Apply? Only `yes` goes on: ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(helped("not applied", "nothing was changed")),
    }
}
