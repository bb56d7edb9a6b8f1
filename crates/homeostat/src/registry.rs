//! The only list of sources, and of the commands that belong to one of them. Nothing outside of it names a source.

mod guests;

use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::Result;
use clap::Subcommand;
use homeostat_document::{Checker, Document, DocumentReader};
use homeostat_registry::{Lists, Registration, Start};

use crate::cli::Global;
use crate::failure::DocumentErrors;

/// Every source, in the order in which they are driven: those that create scopes come first.
pub(crate) static SOURCES: &[Registration] = &[
    homeostat_namespaces::REGISTRATION,
    homeostat_nft::REGISTRATION,
    homeostat_rtnl::REGISTRATION,
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
}

impl SourceCommand {
    pub(crate) fn run(&self, global: Global) -> Result<ExitCode> {
        match self {
            SourceCommand::Guest(args) => guests::run(args, global),
        }
    }
}

/// Reads documents with the sections of all sources.
pub(crate) static READER: LazyLock<DocumentReader> = LazyLock::new(|| {
    let sections: Vec<_> = SOURCES.iter().map(|source| source.sections).collect();
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

/// Whether the daemon is ready before a source has made its first pass.
pub(crate) fn is_late(name: &str) -> bool {
    find(name).is_some_and(|source| source.remote.is_some() || source.start == Start::Late)
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

#[cfg(test)]
mod tests;
