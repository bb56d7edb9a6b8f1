//! Documents in files and directories, read again when they, or files that they name, have changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{Diagnostics, Document};
use homeostat_engine::outcome::Later;
use homeostat_kit::provider::{Answer, Provider};
use homeostat_registry::Lists;

use crate::failure::{DocumentErrors, helped};
use crate::referenced_files::ReferencedFiles;
use crate::registry;
use crate::watch::Watch;

/// How long files must have been left alone before they are read again: they are not written in one go.
const QUIET: Duration = Duration::from_secs(1);

/// Files and directories that are one document.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    /// What the last document that could be read names.
    referenced: ReferencedFiles,
    /// Opened before the first read, so that no change after it is missed.
    watch: Option<Watch>,
}

impl Files {
    pub(super) fn new(paths: &[PathBuf]) -> Result<Self> {
        if paths.iter().any(|path| path.as_os_str() == "-") {
            return Err(helped(
                "the daemon reads its document again when it changes, and cannot do so from standard input",
                "write the document to a file",
            ));
        }
        Ok(Files { paths: paths.to_owned(), referenced: ReferencedFiles::default(), watch: None })
    }

    fn read(&mut self) -> Result<Document> {
        let watch = match &mut self.watch {
            Some(watch) => watch,
            closed => closed.insert(Watch::documents(self.paths.clone())?),
        };
        let read = load(&self.paths);
        if let Ok(document) = &read {
            self.referenced = ReferencedFiles::of(document);
        }
        watch.add_directories(self.referenced.directories());
        read
    }
}

impl Provider for Files {
    type DesiredState = Document;
    type Error = anyhow::Error;

    fn answer(&mut self) -> Later<'_, Answer<Document, anyhow::Error>> {
        Box::pin(async {
            match self.read() {
                Ok(document) => Answer::DesiredState(Arc::new(document)),
                Err(why) => Answer::Unknown { why },
            }
        })
    }

    fn changed(&mut self) -> Later<'_, ()> {
        match &mut self.watch {
            Some(watch) => Box::pin(watch.changed(QUIET)),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// Reads the documents; every mistake in them is shown at once, those that only a source can see
/// included.
pub(crate) fn load(paths: &[PathBuf]) -> Result<Document> {
    understand(registry::READER.load(paths))
}

/// A document, or every mistake in it.
pub(crate) fn understand(read: Result<Document, Diagnostics>) -> Result<Document> {
    read.map_err(|diagnostics| {
        let more =
            diagnostics.readable().and_then(|part| registry::resolve(part, Lists::Read).err());
        DocumentErrors::from(diagnostics).and_also(more).into()
    })
}
