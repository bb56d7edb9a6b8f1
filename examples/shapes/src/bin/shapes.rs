//! Keeps the shapes of a service the way a document declares them.
//!
//! `shapes SERVICE DOCUMENT [STATE]` runs until it is interrupted and follows changes of the document;
//! `shapes --once SERVICE DOCUMENT [STATE]` makes one pass. With a state directory the ledger survives
//! the program, which is what checkpoints need.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use homeostat_engine::{
    Alone, Bound, Control as _, Entry, Event, EventKind, Events, Explain as _, Hints, Kind, Ledger,
    Loop, LoopDeps, MemoryLedger, OnStop, Pace, Session, SqliteLedger,
};
use homeostat_kit::provider::{Every, File, Latest, Provider};
use homeostat_kit::simple::{Adapted, place};
use homeostat_shapes::client::Client;
use homeostat_shapes::document::{Document, Ownership};
use homeostat_shapes::source::Shapes;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let is_once = args.first().is_some_and(|first| first == "--once");
    args.drain(..usize::from(is_once));
    let [service, document, state @ ..] = &args[..] else {
        bail!("usage: shapes [--once] SERVICE DOCUMENT [STATE]");
    };
    let client = Client::new(service.parse().context("SERVICE is an address and a port")?);
    let mut binder = Binder { client, last: None };
    let ledger = ledger(state.first())?;
    if is_once {
        let text = fs::read_to_string(document).with_context(|| format!("`{document}`"))?;
        return once(binder.bound(&text.parse()?)?, ledger).await;
    }
    keep(&mut binder, Path::new(document), ledger).await
}

fn ledger(state: Option<&String>) -> anyhow::Result<Arc<dyn Ledger>> {
    Ok(match state {
        Some(directory) => Arc::new(SqliteLedger::open(Path::new(directory))?.offloaded()),
        None => Arc::new(MemoryLedger::default()),
    })
}

/// Binds documents to the service. Desired states of one owner share a source, and with it what is under way.
struct Binder {
    client: Client,
    last: Option<(String, Ownership, Adapted<Shapes>)>,
}

impl Binder {
    fn bound(&mut self, document: &Document) -> anyhow::Result<Bound<Adapted<Shapes>>> {
        let strategy = document.strategy()?;
        let (owner, ownership) = (&document.owner, document.ownership);
        let known = self.last.take().filter(|last| (&last.0, last.1) == (owner, ownership));
        let fresh = || Shapes { client: self.client.clone(), strategy: strategy.clone() };
        let source = known.map_or_else(|| Adapted::new(fresh()), |last| last.2);
        self.last = Some((owner.clone(), ownership, source.clone()));
        Ok(source.bind(&strategy, document.desired_states()?, place::<Shapes>(owner, "service"))?)
    }
}

async fn once(bound: Bound<Adapted<Shapes>>, ledger: Arc<dyn Ledger>) -> anyhow::Result<()> {
    let lock = Alone::i_am_the_only_writer();
    let mut session = Session::open(&bound, &lock, ledger, Hints::Ignore).await?;
    let report = session.pass(&bound).await?;
    let mut lines = Vec::new();
    report.explain(Kind::Applied, &mut |entry| {
        if let Entry::Applied(line, _) = entry {
            lines.push(format!("{} {}\n", line.action.sign(), line.key));
        }
    });
    io::stdout().write_all(lines.concat().as_bytes())?;
    if !report.is_converged() {
        bail!("not everything is as declared");
    }
    Ok(())
}

async fn keep(binder: &mut Binder, path: &Path, ledger: Arc<dyn Ledger>) -> anyhow::Result<()> {
    let parse = |text: &str| {
        text.parse::<Document>().map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    };
    let file = File::new(path, parse);
    let mut desired_states = Latest::new(Every::new(Duration::from_secs(1), file));
    let first = next_bound(&mut desired_states, binder).await?;
    let (lock, events) = (Arc::new(Alone::i_am_the_only_writer()), Events::default());
    let mut published = events.subscribe();
    let deps = LoopDeps::new(lock, ledger).with_events(events);
    let pace = Pace::of::<Adapted<Shapes>>(u64::from(std::process::id()));
    let (kept, handle) = Loop::new(first, deps, pace);
    let running = tokio::spawn(kept.run());
    loop {
        tokio::select! {
            next = next_bound(&mut desired_states, binder) => {
                handle.put(next?)?;
            }
            event = published.recv() => event.iter().try_for_each(print)?,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                handle.stop(OnStop::Leave).await;
                return Ok(running.await?);
            }
        }
    }
}

/// The next document, bound to the service. A document that cannot be used is reported, and the one before stays in force.
async fn next_bound(
    documents: &mut Latest<impl Provider<DesiredState = Document>>,
    binder: &mut Binder,
) -> io::Result<Bound<Adapted<Shapes>>> {
    loop {
        let document = documents.next_desired().await.map_err(anyhow::Error::msg);
        match document.and_then(|document| binder.bound(&document)) {
            Ok(bound) => return Ok(bound),
            Err(error) => writeln!(io::stdout(), "! {error:#}")?,
        }
    }
}

fn print(event: &Event) -> io::Result<()> {
    let line = match &event.kind {
        EventKind::StepApplied { action, key, .. } => format!("{} {key}", action.sign()),
        EventKind::StepFailed { key, failure, .. } => format!("! {key}: {failure}"),
        EventKind::Conflict { key, owner } => format!("! {key}: belongs to {owner}"),
        EventKind::Failed { failure } => format!("! {failure}"),
        _ => return Ok(()),
    };
    writeln!(io::stdout(), "{line}")
}
