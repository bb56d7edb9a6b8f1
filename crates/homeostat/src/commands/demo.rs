//! `homeostat demo`: a router in a sandbox, kept as declared while a saboteur damages it. Nothing of
//! the host is touched.
//!
//! The daemon runs on this thread, as `homeostat run` has it. The tour is on another: the saboteur
//! writes to the kernel, and a listener of its own measures when things are back.

mod balancer;
mod firewall;
mod judge;
mod kernel_events;
mod kernel_state;
mod latencies;
mod sabotage;
mod saboteur;
mod tour;

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use homeostat_document::{Diagnostics, Document, Format, Settings};
use homeostat_engine::outcome::Later;
use homeostat_engine::{Ledger, MemoryLedger};
use homeostat_kit::provider::{Answer, Provider};
use homeostat_registry::{Caller, Mark, Memory};

use crate::cli::{DemoArgs, Global};
use crate::commands::block_on;
use crate::context::Context;
use crate::daemon::{Daemon, Options};
use crate::machine::Machine;
use crate::output::line::BOLD;
use crate::output::text::{Closing, Detail, Drawing, Length};
use crate::output::{is_converged, stream, text};
use crate::provider::DocumentProvider;
use crate::registry::READER;
use balancer::Balancer;
use saboteur::FOREIGN;
use tour::{Tour, Wall};

const DOCUMENT: &str = include_str!("demo/router.toml");
const FOREIGN_DOCUMENT: &str = include_str!("demo/bird.toml");

/// Routes that differ in their number only.
const MORE_ROUTES: u8 = 32;

/// When the last act begins at the latest: the whole takes less than a minute.
const END: Duration = Duration::from_secs(45);

/// For people to follow the show.
const PAUSE: Duration = Duration::from_millis(600);

/// For programs: beyond the least time between two passes over one key, which is no latency.
const SHORT_PAUSE: Duration = Duration::from_millis(250);

pub(crate) fn run(args: &DemoArgs, mut global: Global) -> Result<ExitCode> {
    global.sandbox = true;
    // In the sandbox the owner and the ledger are new, no matter which owner the host has.
    (global.netns, global.owner, global.protocol) = (None, None, None);
    let served = if balancer::is_installed() { balancer::SECTION } else { "" };
    let [bare, walled] = ["", firewall::SECTION].map(|wall| parse(&format!("{wall}{served}")));
    let context = Context::enter(global, &Settings::default())?;
    let is_watched = io::stdout().is_terminal() || args.forever;
    let length = tour::Length {
        end: (!args.forever).then_some(END),
        pause: if is_watched { PAUSE } else { SHORT_PAUSE },
    };
    let stdout = stream::stdout(context.color);
    match block_on(tour(context, [bare?, walled?], length, stdout))? {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if stream::is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// The document with its many routes, and with this section.
fn parse(section: &str) -> Result<Document, Diagnostics> {
    let mut document = format!("{DOCUMENT}{section}");
    for number in 0..MORE_ROUTES {
        let route = format!("to = \"10.64.{number}.0/24\"\nvia = \"192.0.2.3\"\ntable = 100");
        // Writing into text cannot fail.
        let _ = write!(document, "\n[[routes]]\n{route}\n");
    }
    READER.parse("demo.toml", Format::Toml, &document)
}

/// Shows the document: with its firewall, if that can be compiled here.
fn introduce(
    context: &Context,
    [bare, walled]: [Document; 2],
    ledger: &dyn Ledger,
    to: &mut impl Write,
) -> Result<(Document, Wall)> {
    let refused = Machine::bind(context, &walled, ledger).err();
    let section = if refused.is_none() { firewall::SECTION } else { "" };
    let is_served = balancer::is_installed();
    let served = if is_served { balancer::SECTION } else { "" };
    let text = format!("{DOCUMENT}{section}{served}");
    step(to, "A sandbox: our own network namespace, no privileges. The document:")?;
    writeln!(to, "{}\n\n# ... and {MORE_ROUTES} more routes", text.trim_end())?;
    if !is_served {
        writeln!(to, "# ... and no balancer, which needs HAProxy: install the package `haproxy`")?;
    }
    let Some(refused) = refused else { return Ok((walled, Wall::Stands)) };
    // A mistake is drawn with colour.
    let why = anstream::adapter::strip_str(&refused.root_cause().to_string()).to_string();
    let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ");
    writeln!(to, "# ... and no firewall, which needs `nft`: {why}")?;
    Ok((bare, Wall::Missing))
}

async fn tour(
    context: Context,
    documents: [Document; 2],
    length: tour::Length,
    mut to: impl Write + Send + 'static,
) -> Result<bool> {
    let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::default());
    let balancer = balancer::is_installed().then(Balancer::start).transpose()?;
    let (document, wall) = introduce(&context, documents, &*ledger, &mut to)?;
    build(&context, &document, &ledger, &mut to).await?;
    add_foreign(&context).await?;
    step(&mut to, "homeostat run demo.toml     (while another program sabotages it)")?;
    let stop = Arc::new(AtomicBool::new(false));
    let (finished, finish) = tokio::sync::oneshot::channel();
    let stopped = Arc::clone(&stop);
    let thread = std::thread::Builder::new().name("tour".into());
    thread.spawn(move || {
        let played = Tour::open(to, stopped, wall, balancer).and_then(|tour| tour.run(length));
        // The receiver is gone if the program is about to end.
        let _ = finished.send(played);
    })?;
    let document = Arc::new(document);
    let provider = Box::new(Unchanging(Arc::clone(&document)));
    let daemon = Daemon::new(context, provider, document, ledger, Options::default());
    let mut finish = finish;
    let played = tokio::select! {
        played = &mut finish => played,
        ended = daemon.run() => {
            ended?;
            stop.store(true, Ordering::Relaxed);
            finish.await
        }
    };
    played.map_err(|_| anyhow!("the demo's tour has ended before its time"))?
}

/// The demo's document never changes.
struct Unchanging(Arc<Document>);

impl DocumentProvider for Unchanging {}

impl Provider for Unchanging {
    type DesiredState = Document;
    type Error = anyhow::Error;

    fn answer(&mut self) -> Later<'_, Answer<Document, anyhow::Error>> {
        Box::pin(async { Answer::DesiredState(Arc::clone(&self.0)) })
    }
}

/// Shows the plan, applies it, and shows that nothing is left to do.
async fn build(
    context: &Context,
    document: &Document,
    ledger: &Arc<dyn Ledger>,
    to: &mut impl Write,
) -> Result<()> {
    let drawing = Drawing { detail: Detail::Normal, length: Length::Cut };
    let drivers = Machine::bind(context, document, &**ledger)?.unlock(ledger)?;
    step(to, "homeostat plan demo.toml")?;
    let again = Machine::bind(context, document, &**ledger)?;
    text::plan(&again.plan(&**ledger).await?, drawing, Closing::Plan, to)?;
    step(to, "homeostat apply demo.toml")?;
    text::report(&drivers.converge().await?, drawing, to)?;
    step(to, "homeostat plan demo.toml     (a second pass writes nothing)")?;
    let again = Machine::bind(context, document, &**ledger)?;
    text::plan(&again.plan(&**ledger).await?, drawing, Closing::Plan, to)?;
    Ok(())
}

/// Adds objects of another program, with a mark and a ledger of its own: the daemon must not touch them.
async fn add_foreign(context: &Context) -> Result<()> {
    let document = READER.parse("bird.toml", Format::Toml, FOREIGN_DOCUMENT)?;
    let mut context = context.clone();
    let (owner, memory) = ("bird".to_owned(), Memory::default());
    context.caller = Caller { owner, mark: Mark(FOREIGN), memory, ..context.caller };
    let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::default());
    let drivers = Machine::bind(&context, &document, &*ledger)?.unlock(&ledger)?;
    ensure!(is_converged(&drivers.converge().await?), "what is foreign cannot be made");
    Ok(())
}

fn step(to: &mut impl Write, title: &str) -> io::Result<()> {
    writeln!(to, "\n{BOLD}# {title}{BOLD:#}")
}
