//! `homeostat import`: prints a document that says what the configuration of another tool says, and lists what it leaves
//! out.

mod draft;
mod ifupdown;
mod ini;
mod netplan;
mod networkd;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use self::draft::{Draft, Left};
use crate::cli::Global;
use crate::failure::helped;
use crate::output::line::plain;
use crate::output::stream;
use crate::registry::{self, READER};

/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// Whose configuration it is
    #[arg(value_enum, value_name = "TOOL")]
    tool: Tool,
    /// Its files. For netplan and networkd also directories
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tool {
    /// YAML files of /etc/netplan
    Netplan,
    /// .network and .netdev files of systemd-networkd
    Networkd,
    /// /etc/network/interfaces, of ifupdown and ifupdown2
    Ifupdown,
}

/// A file of the other tool.
struct Foreign {
    path: PathBuf,
    text: String,
}

impl Foreign {
    /// What messages call it.
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn extension(&self) -> &str {
        self.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
    }
}

/// Prints the document, and what it leaves out also on stderr.
pub(crate) fn run(args: &ImportArgs, global: &Global) -> Result<ExitCode> {
    let files = read_all(args)?;
    let draft = match args.tool {
        Tool::Netplan => netplan::import(&files)?,
        Tool::Networkd => networkd::import(&files)?,
        Tool::Ifupdown => ifupdown::import(&files)?,
    };
    let text = document(args, &files, &draft)?;
    stream::print(global.color, |to| to.write_all(text.as_bytes()))?;
    let mut stderr = stream::stderr(global.color);
    for Left { place, why } in &draft.left {
        writeln!(stderr, "left out: {}: {}", plain(place), plain(why))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_all(args: &ImportArgs) -> Result<Vec<Foreign>> {
    let mut files = Vec::new();
    for path in &args.files {
        if !path.is_dir() {
            files.push(read(path)?);
            continue;
        }
        let extensions: &[&str] = match args.tool {
            Tool::Netplan => &["yaml"],
            Tool::Networkd => &["network", "netdev"],
            Tool::Ifupdown => &[""],
        };
        let whole = || format!("cannot read {}", path.display());
        let entries = std::fs::read_dir(path).with_context(whole)?;
        let mut inside: Vec<PathBuf> =
            entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        inside.retain(|path| {
            let extension = path.extension().and_then(|text| text.to_str()).unwrap_or_default();
            path.is_file() && extensions.contains(&extension)
        });
        inside.sort();
        if inside.is_empty() {
            return Err(helped(
                format!("{} has no file of {}", path.display(), args.tool.name()),
                "name the files, or the directory that they are in",
            ));
        }
        for path in inside {
            files.push(read(&path)?);
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Foreign> {
    let whole = || format!("cannot read {}", path.display());
    let length = std::fs::metadata(path).with_context(whole)?.len();
    if length > MAX_BYTES {
        let error = format!("{} is larger than 1 MiB", path.display());
        return Err(helped(error, "no configuration of a network is: name another file"));
    }
    let text = std::fs::read_to_string(path).with_context(whole)?;
    Ok(Foreign { path: path.to_owned(), text })
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Netplan => "netplan",
            Tool::Networkd => "networkd",
            Tool::Ifupdown => "ifupdown",
        }
    }
}

/// The text of the document. What it would be refused for is a mistake of the files: it is told with the document as
/// it would be.
fn document(args: &ImportArgs, files: &[Foreign], draft: &Draft) -> Result<String> {
    let names: Vec<String> = files.iter().map(|file| plain(&file.name())).collect();
    let mut text = format!("# From {} ({}).\n", args.tool.name(), names.join(", "));
    if !draft.left.is_empty() {
        text += "# Left out:\n";
    }
    for Left { place, why } in &draft.left {
        text.extend(["#   ", &plain(place), ": ", &plain(why), "\n"]);
    }
    text += "\n";
    text += &toml::to_string(&draft.sections())?;
    let read = READER.parse("the imported document", homeostat_document::Format::Toml, &text);
    let checked = crate::provider::understand(read).and_then(|document| {
        registry::resolve(&document, homeostat_registry::Lists::Skip)?;
        Ok(())
    });
    checked.context("what these files say makes no document")?;
    Ok(text)
}
