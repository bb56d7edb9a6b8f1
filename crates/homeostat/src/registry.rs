//! The only list of sources, and of the commands that belong to one of them. Nothing outside of it names a source.

mod guests;
mod import;

use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::Result;
use clap::Subcommand;
use homeostat_document::{Checker, Diagnostics, Document, DocumentReader, Finding};
use homeostat_registry::{Lists, Registration, Start};

use crate::cli::Global;
use crate::failure::DocumentErrors;
use crate::provider::fleet;

/// Every source, in the order in which they are driven: those that create scopes come first, then what all others need of
/// the kernel.
pub(crate) static SOURCES: &[Registration] = &[
    homeostat_namespaces::REGISTRATION,
    homeostat_modules::REGISTRATION,
    homeostat_nft::REGISTRATION,
    homeostat_rtnl::REGISTRATION,
    homeostat_ethtool::REGISTRATION,
    homeostat_qdisc::REGISTRATION,
    homeostat_knobs::REGISTRATION,
    homeostat_guests::REGISTRATION,
    homeostat_files::REGISTRATION,
    homeostat_services::REGISTRATION,
];

/// Commands of a source.
#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Start or stop a guest now, whatever is declared, and wait for the result
    #[command(
        after_help = "Exit: 0 done, 1 not done or unknown. If a daemon runs, it executes the command, and \
                            afterwards heals any difference from its document."
    )]
    Guest(guests::GuestArgs),
    /// Print a document that says what the configuration of netplan, networkd or ifupdown says
    #[command(
        after_help = "What it leaves out is listed on stderr, and as comments in the document. Nothing is read but the \
                            files, and nothing is changed. Exit: 0 printed, 1 error."
    )]
    Import(import::ImportArgs),
}

impl SourceCommand {
    pub(crate) fn run(&self, global: Global) -> Result<ExitCode> {
        match self {
            SourceCommand::Guest(args) => guests::run(args, global),
            SourceCommand::Import(args) => import::run(args, &global),
        }
    }
}

/// Reads documents with the sections of all sources, and with `[fleet]`.
pub(crate) static READER: LazyLock<DocumentReader> = LazyLock::new(|| {
    let mut sections: Vec<_> = SOURCES.iter().map(|source| source.sections).collect();
    sections.push(fleet::SECTIONS);
    DocumentReader::new(sections.leak())
});

/// A source by its name.
pub(crate) fn find(name: &str) -> Option<&'static Registration> {
    SOURCES.iter().find(|source| source.name() == name)
}

/// Whether the target of a source is on another machine.
pub(crate) fn is_remote(name: &str) -> bool {
    find(name).is_some_and(|source| source.remote.is_some())
}

/// Whether what a source writes outlives a boot: it belongs to the machine, not to a network.
pub(crate) fn is_on_disk(name: &str) -> bool {
    find(name).is_some_and(|source| source.own_scopes.is_some())
}

/// Whether the daemon is ready after the first pass of a source, also if it failed.
pub(crate) fn is_late(name: &str) -> bool {
    find(name).is_some_and(|source| source.start == Start::Late)
}

/// Checks every source's part of a document.
pub(crate) fn resolve(document: &Document, lists: Lists) -> Result<(), DocumentErrors> {
    let mut checker = Checker::new(document.files.clone());
    for (_, section) in document.scopes() {
        for source in SOURCES {
            (source.resolve)(section, lists, &mut checker);
        }
    }
    Ok(checker.into_result()?)
}

/// What is possible in a document and is probably not meant, one line each.
pub(crate) fn warnings(document: &Document) -> Vec<String> {
    let scopes = document.scopes().map(|(_, section)| section);
    let of = |section| SOURCES.iter().flat_map(move |source| (source.warnings)(section));
    let found = document.settings.warnings().into_iter().chain(scopes.flat_map(of));
    let found = Diagnostics::new(document.files.clone(), found.collect());
    found.iter().map(|one| line(&one)).collect()
}

fn line(warning: &Finding) -> String {
    let Finding { file, line, column, message, help, .. } = warning;
    let at = |number: &Option<usize>| number.map(|number| format!(":{number}")).unwrap_or_default();
    let help = help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
    format!("{file}{}{}: {message}{help}", at(line), at(column))
}

#[cfg(test)]
mod tests;
