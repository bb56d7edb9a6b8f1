//! `homeostat demo`: a tour in a sandbox that touches nothing of the host.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::{Document, Format};
use homeostat_engine::{Ledger, MemoryLedger};

use crate::cli::Global;
use crate::commands::block_on;
use crate::context::Context;
use crate::machine::{Drivers, Machine};
use crate::output::text::{Closing, Detail, Drawing, Length};
use crate::output::{stream, text};

const DOCUMENT: &str = r#"[sysctl]
"net.ipv4.ip_forward" = 1
"net.ipv4.conf.all.rp_filter" = 2
"net.ipv4.tcp_rmem" = "4096 87380 16777216"
"#;

const SABOTAGED: &str = "/proc/sys/net/ipv4/ip_forward";

/// Runs the tour.
pub(crate) fn run(mut global: Global) -> Result<ExitCode> {
    global.sandbox = true;
    global.netns = None;
    let document = homeostat_document::parse("demo.toml", Format::Toml, DOCUMENT)?;
    let context = Context::enter(global, &document.settings)?;
    let mut stdout = stream::stdout(context.color);
    match block_on(tour(&context, &document, &mut stdout))? {
        Err(error) if !stream::is_closed_pipe(&error) => Err(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}

async fn tour(context: &Context, document: &Document, to: &mut dyn Write) -> Result<()> {
    let drawing = Drawing { detail: Detail::Normal, length: Length::Full };
    let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::default());
    let mut drivers = Machine::bind(context, document, &*ledger)?.unlock(&ledger)?;
    step(to, "A sandbox: our own network namespace, no privileges. The document:")?;
    writeln!(to, "{}", DOCUMENT.trim_end())?;
    step(to, "homeostat plan demo.toml")?;
    text::plan(&drivers.plan().await?, drawing, Closing::Plan, to)?;
    step(to, "homeostat apply demo.toml")?;
    text::report(&drivers.converge().await?, drawing, to)?;
    step(to, "homeostat plan demo.toml     (a second pass writes nothing)")?;
    text::plan(&drivers.plan().await?, drawing, Closing::Plan, to)?;
    sabotage(to)?;
    heal(&mut drivers, drawing, to).await
}

fn sabotage(to: &mut dyn Write) -> Result<()> {
    step(to, &format!("echo 0 > {SABOTAGED}     (somebody meddles)"))?;
    std::fs::write(SABOTAGED, "0\n").with_context(|| format!("cannot write {SABOTAGED}"))
}

async fn heal(drivers: &mut Drivers<'_>, drawing: Drawing, to: &mut dyn Write) -> Result<()> {
    step(to, "homeostat apply demo.toml     (drift is told from a changed document)")?;
    text::plan(&drivers.plan().await?, drawing, Closing::Plan, to)?;
    text::report(&drivers.converge().await?, drawing, to)?;
    step(to, "Nothing of the host was touched, and the sandbox is gone with this process.")?;
    Ok(to.flush()?)
}

fn step(to: &mut dyn Write, title: &str) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    writeln!(to, "\n{bold}# {title}{bold:#}")
}
