//! Documents in files and directories, read again when they, or files that they name, have changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{Diagnostics, Document, Format};
use homeostat_engine::outcome::Later;
use homeostat_kit::finished_files::{QUIET, Unfinished};
use homeostat_kit::provider::{Answer, Provider};
use homeostat_registry::Lists;

use crate::failure::{DocumentErrors, helped};
use crate::referenced_files::ReferencedFiles;
use crate::registry;
use crate::watch::Watch;

/// Files and directories that are one document.
pub(crate) struct Files {
    paths: Vec<PathBuf>,
    /// What the last document that could be read names.
    referenced: ReferencedFiles,
    /// Opened before the first read, so that no change after it is missed.
    watch: Option<Watch>,
    /// What was being written when it was last read.
    unfinished: Option<PathBuf>,
}

impl Files {
    pub(super) fn new(paths: &[PathBuf]) -> Result<Self> {
        if paths.iter().any(|path| path.as_os_str() == "-") {
            return Err(helped(
                "the daemon reads its document again when it changes, and cannot do so from standard input",
                "write the document to a file",
            ));
        }
        let referenced = ReferencedFiles::default();
        Ok(Files { paths: paths.to_owned(), referenced, watch: None, unfinished: None })
    }

    /// The same files, which are read and watched anew.
    pub(super) fn again(&self) -> Result<Self> {
        Files::new(&self.paths)
    }

    fn read(&mut self) -> Result<Document> {
        let watch = match &mut self.watch {
            Some(watch) => watch,
            closed => closed.insert(Watch::documents(self.paths.clone())?),
        };
        let read = understand(registry::READER.load(&self.paths));
        if let Ok(document) = &read {
            self.referenced = ReferencedFiles::of(document);
        }
        watch.add_directories(self.referenced.directories());
        read
    }

    /// Reads all files while none of them is being written. One that was written a moment ago is waited for, so that
    /// who has just saved it can ask for it at once.
    async fn read_finished(&mut self) -> Result<Document> {
        self.unfinished = None;
        let mut may_wait = true;
        loop {
            let read = self.read();
            // After they were read: who has not touched them for so long has not done so meanwhile either.
            let texts = texts(&self.paths);
            let texts = texts.iter().map(PathBuf::as_path);
            match Unfinished::find(texts.chain(self.referenced.paths())) {
                None => return read,
                Some(Unfinished { due_in: Some(due_in), .. }) if may_wait => {
                    may_wait = false;
                    tokio::time::sleep(due_in).await;
                }
                Some(unfinished) => {
                    self.unfinished = Some(unfinished.path.clone());
                    return Err(unfinished.failure().into());
                }
            }
        }
    }
}

/// The files that may be documents.
fn texts(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut texts = Vec::new();
    for path in paths {
        match std::fs::read_dir(path) {
            Ok(entries) => {
                let paths = entries.flatten().map(|entry| entry.path());
                texts.extend(paths.filter(|path| Format::of(path).is_some()));
            }
            Err(_) => texts.push(path.clone()),
        }
    }
    texts
}

/// Waits until a file is finished.
async fn finished(path: Option<&Path>) {
    let Some(path) = path else { return std::future::pending().await };
    loop {
        tokio::time::sleep(QUIET).await;
        if Unfinished::find([path]).is_none() {
            return;
        }
    }
}

impl Provider for Files {
    type DesiredState = Document;
    type Error = anyhow::Error;

    fn answer(&mut self) -> Later<'_, Answer<Document, anyhow::Error>> {
        Box::pin(async {
            match self.read_finished().await {
                Ok(document) => Answer::DesiredState(Arc::new(document)),
                Err(why) => Answer::Unknown { why },
            }
        })
    }

    fn changed(&mut self) -> Later<'_, ()> {
        let Files { watch, unfinished, .. } = self;
        let Some(watch) = watch else { return Box::pin(std::future::pending()) };
        Box::pin(async {
            tokio::select! {
                () = watch.changed(QUIET) => {}
                () = finished(unfinished.as_deref()) => {}
            }
        })
    }
}

/// Reads the documents; every mistake in them is shown at once, those that only a source can see
/// included.
pub(crate) fn load(paths: &[PathBuf]) -> Result<Document> {
    let mut tries = TRIES;
    loop {
        let read = understand(registry::READER.load(paths));
        tries -= 1;
        match Unfinished::find_open(texts(paths).iter().map(PathBuf::as_path)) {
            None => return read,
            Some(unfinished) if tries == 0 => return Err(unfinished.failure().into()),
            Some(_) => std::thread::sleep(MOMENT),
        }
    }
}

/// A file that is open for writing is looked at so often, with a moment between. Most often nobody writes: a program with
/// threads that has just written and closed it starts another program, which has it open for the moment before its start.
const TRIES: u32 = 20;
const MOMENT: Duration = Duration::from_millis(25);

/// A document, or every mistake in it.
pub(crate) fn understand(read: Result<Document, Diagnostics>) -> Result<Document> {
    read.map_err(|diagnostics| {
        let more =
            diagnostics.readable().and_then(|part| registry::resolve(part, Lists::Read).err());
        DocumentErrors::from(diagnostics).and_also(more).into()
    })
}
