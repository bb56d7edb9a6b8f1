//! The documents that were confirmed, each with every file that it names, in the state directory. When a document turns
//! out to be broken, the machine is kept by the last one that was confirmed.
//!
//! `confirmed/OWNER/N/` is one of them: `entry.json` says what it is, `texts/` has the documents, and `files/` the files
//! that they name, each at its own absolute path. It is written beside its place and renamed, so it is there whole or
//! not at all.
//!
//! The document of an open trial is kept in the same way, in `.trial`: it is there before anything is written to the
//! machine. A confirmed trial is renamed to its number, one that was rolled back to `.rolled-back/ID`, with `end.json`,
//! which says why and what could not be brought back. While `.trial` is there, the state before it is not back yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use homeostat_document::{Document, Format, Settings, SourceText, copy_below};
use homeostat_fleet::records::Accepted;
use serde::{Deserialize, Serialize};

use crate::checks::Check;
use crate::daemon::clock::{Stamp, boot_id};
use crate::failure::helped;
use crate::person::Person;
use crate::provider::fleet::is_url;
use crate::provider::understand;
use crate::referenced_files::ReferencedFiles;
use crate::registry::{READER, is_on_disk};
use crate::undo_file;
use crate::wire::{Leave, RolledBack};

/// How many confirmed documents are kept, and how many trials that were rolled back.
pub(crate) const KEPT: usize = 20;

/// Below the state directory.
const DIRECTORY: &str = "confirmed";
/// One that is being written. No number is hidden.
const NEW: &str = ".new";
/// One that is being removed.
const GONE: &str = ".gone";
/// The document of an open trial, and those of the last ones that were rolled back.
const TRIAL: &str = ".trial";
const ROLLED_BACK: &str = ".rolled-back";
const UNDO: &str = "undo";
const ENTRY_FILE: &str = "entry.json";
const TRIAL_FILE: &str = "trial.json";
const END_FILE: &str = "end.json";

/// The confirmed documents of one owner.
#[derive(Clone, Debug)]
pub(crate) struct ConfirmedDocuments {
    directory: PathBuf,
}

/// One of them, without its texts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Entry {
    #[serde(skip)]
    pub(crate) number: u64,
    #[serde(flatten)]
    pub(crate) origin: Origin,
    pub(crate) confirmed_at: String,
    #[serde(default)]
    pub(crate) confirmed_by_checks: Vec<Check>,
    documents: Vec<DocumentText>,
}

/// Where a document came from, and who wanted it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Origin {
    /// The arguments that named it, as absolute paths.
    pub(crate) from: Vec<PathBuf>,
    /// What its top level is for.
    pub(crate) scope: String,
    pub(crate) applied_by: Person,
    /// Who confirmed it; nothing if it was confirmed by its first pass.
    pub(crate) confirmed_by: Option<Person>,
}

/// Who or what confirms a trial.
#[derive(Clone, Debug)]
pub(crate) enum Confirmer {
    Person(Person),
    Checks(Vec<Check>),
    /// Its passes: everything is as declared.
    Passes,
}

impl fmt::Display for Confirmer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Confirmer::Person(person) => write!(f, "{person}"),
            Confirmer::Checks(checks) => {
                let checks: Vec<_> = checks.iter().map(ToString::to_string).collect();
                write!(f, "its checks ({})", checks.join(", "))
            }
            Confirmer::Passes => f.write_str("its first pass"),
        }
    }
}

impl Entry {
    /// The names of the pieces that were part of it.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &str> {
        self.documents.iter().filter_map(|document| document.piece.as_deref())
    }

    pub(crate) fn confirmer(&self) -> Confirmer {
        match &self.origin.confirmed_by {
            Some(person) => Confirmer::Person(person.clone()),
            None if self.confirmed_by_checks.is_empty() => Confirmer::Passes,
            None => Confirmer::Checks(self.confirmed_by_checks.clone()),
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct TrialRecord {
    pub(crate) id: u64,
    /// The confirmed document that it returns to; without one, nothing is declared.
    pub(crate) before: Option<u64>,
    /// The boot in which it was begun.
    pub(crate) boot: String,
    pub(crate) began_at: String,
    /// Whether guards held deletes back before the trial: then they hold them back in the rollback, too.
    #[serde(default)]
    pub(crate) guarded: bool,
    /// Whether it might take along what others have: then its rollback may, too.
    #[serde(default)]
    pub(crate) cascades: bool,
    /// Whether it might delete more than the budget.
    #[serde(default)]
    pub(crate) mass_delete: bool,
    /// Whether a client handed its document over: the files of the daemon, if there are any, have another one.
    #[serde(default)]
    pub(crate) handed: bool,
    /// What a fleet assigned, if that is what is tried.
    #[serde(default)]
    pub(crate) assignment: Option<Accepted>,
}

impl TrialRecord {
    /// What guards let through when it is confirmed: what was put off until then was allowed when it began.
    pub(crate) fn granted(&self) -> Leave {
        Leave { mass_delete: self.mass_delete, cascades: self.cascades, losses: false }
    }

    /// What guards let through in its rollback.
    pub(crate) fn leave(&self) -> Leave {
        Leave { mass_delete: !self.guarded, cascades: self.cascades, losses: false }
    }

    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == boot_id()
    }

    /// Why no process holds it any more.
    pub(crate) fn why_left(&self) -> &'static str {
        if self.is_of_this_boot() {
            "the process that held it ended"
        } else {
            "the machine was booted"
        }
    }
}

/// A trial with the document that is tried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedTrial {
    pub(crate) record: TrialRecord,
    pub(crate) origin: Origin,
}

/// What became of the trial of an assignment. One that was left open is rolled back before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AssignmentEnd {
    Confirmed,
    RolledBack { why: String },
}

/// A trial that was rolled back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndedTrial {
    pub(crate) trial: RecordedTrial,
    pub(crate) ended_at: String,
    pub(crate) end: RolledBack,
}

#[derive(Deserialize, Serialize)]
struct EndRecord {
    ended_at: String,
    #[serde(flatten)]
    end: RolledBack,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct DocumentText {
    name: String,
    directory: PathBuf,
    format: Format,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    piece: Option<String>,
}

impl ConfirmedDocuments {
    /// The settings of the newest one that can be read.
    pub(crate) fn last_settings(&self) -> Settings {
        let newest = self.entries().ok().and_then(|mut entries| entries.pop());
        let document = newest.and_then(|newest| self.load(&newest).ok());
        document.map(|document| document.settings).unwrap_or_default()
    }

    /// Those of an owner.
    pub(crate) fn of(state_dir: &Path, owner: &str) -> Self {
        ConfirmedDocuments { directory: state_dir.join(DIRECTORY).join(owner) }
    }

    /// Those of every owner that has some.
    pub(crate) fn of_all(state_dir: &Path) -> Vec<Self> {
        let owners = fs::read_dir(state_dir.join(DIRECTORY)).into_iter().flatten().flatten();
        owners.map(|owner| ConfirmedDocuments { directory: owner.path() }).collect()
    }

    /// The newest one of these that came from the same arguments and is for the same scope.
    pub(crate) fn newest_from(&self, from: &[PathBuf], scope: &str) -> Option<Entry> {
        let numbers = self.numbers().into_iter().rev();
        let mut entries = numbers.filter_map(|number| self.entry(number).ok());
        entries.find(|entry| entry.origin.from == from && entry.origin.scope == scope)
    }

    /// What may be in force in place of a document that cannot be taken from these arguments, the best first: what was last
    /// taken from them or tried and confirmed, then what came from elsewhere.
    pub(crate) fn in_place_of(&self, from: &[PathBuf], scope: &str) -> Vec<Entry> {
        let numbers = self.numbers().into_iter().rev();
        let entries = numbers.filter_map(|number| self.entry(number).ok());
        let is_own = |entry: &Entry| entry.origin.from == from || self.is_handed(entry);
        let here = entries.filter(|entry| entry.origin.scope == scope);
        let (mut own, others): (Vec<_>, Vec<_>) = here.partition(is_own);
        own.extend(others);
        own
    }

    /// All of them, the oldest first.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>> {
        loop {
            let numbers = self.numbers();
            let read = numbers.iter().map(|number| self.entry(*number)).collect();
            // Another process may have replaced one since they were listed; numbers only grow.
            if numbers.iter().all(|number| self.place(*number).exists()) {
                return read;
            }
        }
    }

    fn numbers(&self) -> BTreeSet<u64> {
        numbered(&self.directory)
    }

    fn place(&self, number: u64) -> PathBuf {
        self.directory.join(number.to_string())
    }

    pub(crate) fn entry(&self, number: u64) -> Result<Entry> {
        let place = self.place(number);
        if !place.is_dir() {
            return Err(helped(
                format!("there is no confirmed document {number}"),
                "`homeostat history` lists those that are kept",
            ));
        }
        let whole = || format!("cannot read the confirmed document {}", place.display());
        let entry: Entry = read_json(&place.join(ENTRY_FILE)).with_context(whole)?;
        Ok(Entry { number, ..entry })
    }

    pub(crate) fn texts(&self, entry: &Entry) -> Result<Vec<SourceText>> {
        texts(&self.place(entry.number), entry)
            .with_context(|| format!("cannot read the confirmed document {}", entry.number))
    }

    /// The files that one of them names, by their paths. What is no text is shown with marks in its place.
    pub(crate) fn files(&self, entry: &Entry) -> Result<BTreeMap<String, String>> {
        let root = self.place(entry.number).join("files");
        let mut found = BTreeMap::new();
        for path in files_below(&root)? {
            let name = Path::new("/").join(path.strip_prefix(&root).unwrap_or(&path));
            let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
            found.insert(name.display().to_string(), text);
        }
        Ok(found)
    }

    /// Reads one of them as a document. The files that it names are the copies that were made when it was confirmed.
    pub(crate) fn load(&self, entry: &Entry) -> Result<Document> {
        let files = self.place(entry.number).join("files");
        understand(READER.restore_with_files(&files, self.texts(entry)?))
    }

    pub(crate) fn newest_in(&self, scope: &str) -> Option<Entry> {
        let numbers = self.numbers().into_iter().rev();
        let mut entries = numbers.filter_map(|number| self.entry(number).ok());
        entries.find(|entry| entry.origin.scope == scope)
    }

    /// Whether this is the newest document for a scope, with the files that it names.
    pub(crate) fn is_newest_in(
        &self,
        scope: &str,
        document: &Document,
        files: &ReferencedFiles,
    ) -> bool {
        self.newest_in(scope)
            .is_some_and(|entry| is_same(&self.place(entry.number), &entry, document, files))
    }

    /// The document that was handed over, tried and confirmed after the one that these arguments still name, with the
    /// files that it names: what is in force, until the files change.
    pub(crate) fn newer_than(
        &self,
        from: &[PathBuf],
        scope: &str,
        document: &Document,
        files: &ReferencedFiles,
    ) -> Option<Entry> {
        let newest = self.newest_in(scope).filter(|newest| self.is_handed(newest))?;
        let numbers = self.numbers().into_iter().rev();
        let mut entries = numbers.filter_map(|number| self.entry(number).ok());
        let own = entries.find(|entry| {
            entry.origin.from == from && entry.origin.scope == scope && !self.is_handed(entry)
        })?;
        let place = self.place(own.number);
        // Pieces have come and gone since: they are part of whatever is in force.
        let is_own =
            texts(&place, &own).is_ok_and(|then| own_texts(then).eq(own_texts_of(document)));
        (is_own && are_kept(&place, document, files)).then_some(newest)
    }

    /// Whether a client handed it over for a trial.
    fn is_handed(&self, entry: &Entry) -> bool {
        let record = read_json(&self.place(entry.number).join(TRIAL_FILE));
        record.is_ok_and(|record: TrialRecord| record.handed)
    }

    /// The document that a trial returns to.
    pub(crate) fn before(&self, trial: &TrialRecord) -> Result<Document> {
        match trial.before {
            Some(number) => self.load(&self.entry(number)?),
            None => nothing_declared(),
        }
    }

    /// The trial that is open, or was open when its holder ended.
    pub(crate) fn open_trial(&self) -> Option<RecordedTrial> {
        read_trial(&self.directory.join(TRIAL)).ok()
    }

    /// What became of the trial of an assignment; nothing, if it has not begun or is not known any more.
    pub(crate) fn end_of(&self, assignment: &Accepted) -> Option<AssignmentEnd> {
        let is_it = |record: &TrialRecord| record.assignment.as_ref() == Some(assignment);
        if let Some(open) = self.open_trial().filter(|open| is_it(&open.record)) {
            let why = open.record.why_left().to_owned();
            return Some(AssignmentEnd::RolledBack { why });
        }
        let mut ended = self.rolled_back().into_iter();
        if let Some(ended) = ended.find(|ended| is_it(&ended.trial.record)) {
            return Some(AssignmentEnd::RolledBack { why: ended.end.why });
        }
        let mut numbers = self.numbers().into_iter();
        let is_confirmed = |number: u64| {
            read_json(&self.place(number).join(TRIAL_FILE)).is_ok_and(|record| is_it(&record))
        };
        numbers.any(is_confirmed).then_some(AssignmentEnd::Confirmed)
    }

    /// The trials that were rolled back, the oldest first.
    pub(crate) fn rolled_back(&self) -> Vec<EndedTrial> {
        let read = |id: u64| {
            let place = self.rolled_back_place(id);
            let EndRecord { ended_at, end } = read_json(&place.join(END_FILE)).ok()?;
            Some(EndedTrial { trial: read_trial(&place).ok()?, ended_at, end })
        };
        self.rolled_back_ids().into_iter().filter_map(read).collect()
    }

    fn rolled_back_ids(&self) -> BTreeSet<u64> {
        numbered(&self.directory.join(ROLLED_BACK))
    }

    fn rolled_back_place(&self, id: u64) -> PathBuf {
        self.directory.join(ROLLED_BACK).join(id.to_string())
    }

    /// The number of the next trial: larger than those of all trials and documents that are kept.
    pub(crate) fn next_trial(&self) -> u64 {
        let last = self.rolled_back_ids().last().copied();
        last.max(self.numbers().last().copied()).map_or(1, |last| last + 1)
    }

    /// Keeps the document of a trial before anything of it is written to the machine.
    pub(crate) fn begin_trial(
        &self,
        document: &Document,
        files: &ReferencedFiles,
        origin: Origin,
        trial: &TrialRecord,
    ) -> Result<()> {
        let whole = || format!("cannot record the trial in {}", self.directory.display());
        let new = self.directory.join(NEW);
        self.write(&new, document, files, origin).with_context(whole)?;
        write_json(&new, TRIAL_FILE, trial).with_context(whole)?;
        files.check_unchanged(document)?;
        self.rename(NEW, TRIAL).with_context(whole)
    }

    /// Where the open trial records what it takes from others.
    pub(crate) fn undo_file(&self) -> PathBuf {
        self.directory.join(TRIAL).join(UNDO)
    }

    /// The trial's document is confirmed. Returns its number.
    pub(crate) fn confirm_trial(&self, by: Confirmer) -> Result<u64> {
        let whole = || format!("cannot confirm the trial in {}", self.directory.display());
        let trial = self.directory.join(TRIAL);
        let mut entry: Entry = read_json(&trial.join(ENTRY_FILE)).with_context(whole)?;
        match by {
            Confirmer::Person(person) => entry.origin.confirmed_by = Some(person),
            Confirmer::Checks(checks) => entry.confirmed_by_checks = checks,
            Confirmer::Passes => {}
        }
        entry.confirmed_at = Stamp::now().to_string();
        write_json(&trial, ENTRY_FILE, &entry).with_context(whole)?;
        let number = self.numbers().last().map_or(1, |newest| newest + 1);
        self.rename(TRIAL, &number.to_string()).with_context(whole)?;
        // From here on nothing that the trial took is restored. Before, a crash would have lost what a rollback needs.
        let place = self.place(number);
        let _ = fs::remove_file(place.join(UNDO));
        let texts = texts(&place, &entry).unwrap_or_default();
        self.forget_refusals(&texts, &files_below(&place.join("files")).unwrap_or_default());
        self.remove_old();
        Ok(number)
    }

    /// A document that was rolled back once is confirmed: it may be taken by itself again.
    fn forget_refusals(&self, texts: &[SourceText], files: &[PathBuf]) {
        for id in self.rolled_back_ids() {
            let place = self.rolled_back_place(id);
            if holds(&place, texts, files) {
                let _ = fs::remove_dir_all(place.join("texts"));
            }
        }
    }

    /// The trial was rolled back. Its document is remembered, so that it is not taken again by itself.
    pub(crate) fn end_trial(&self, end: &RolledBack) -> Result<()> {
        let whole = || format!("cannot end the trial in {}", self.directory.display());
        let trial = self.directory.join(TRIAL);
        let TrialRecord { id, .. } = read_json(&trial.join(TRIAL_FILE)).with_context(whole)?;
        let record = EndRecord { ended_at: Stamp::now().to_string(), end: end.clone() };
        write_json(&trial, END_FILE, &record).with_context(whole)?;
        let ended = self.directory.join(ROLLED_BACK);
        make_directory(&ended).with_context(whole)?;
        self.rename(TRIAL, &format!("{ROLLED_BACK}/{id}")).with_context(whole)?;
        sync_directory(&ended).with_context(whole)?;
        for old in self.rolled_back_ids().iter().rev().skip(KEPT) {
            // One more that is kept does no harm.
            let _ = fs::remove_dir_all(self.rolled_back_place(*old));
        }
        Ok(())
    }

    /// Forgets what a trial of another boot changed in the kernel: it went with the boot. What is on the disk did not.
    pub(crate) fn forget_undo_list(&self) -> Result<()> {
        let path = self.undo_file();
        if !path.exists() {
            return Ok(());
        }
        let mut lines = undo_file::read(&path);
        lines.retain(|taken| is_on_disk(&taken.source));
        let lines = lines.iter().map(|taken| Ok(serde_json::to_string(taken)? + "\n"));
        let text: String = lines.collect::<serde_json::Result<_>>()?;
        write_bytes(&self.directory.join(TRIAL), UNDO, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Forgets a trial of which nothing was written to the machine.
    pub(crate) fn discard_trial(&self) -> Result<()> {
        let whole = || format!("cannot discard the trial in {}", self.directory.display());
        self.rename(TRIAL, NEW).with_context(whole)
    }

    /// Whether this is the document of the trial that is open, or of one that was rolled back and not confirmed since,
    /// with the files that it names, wherever it lay when it was tried.
    pub(crate) fn is_unconfirmed(&self, document: &Document, files: &ReferencedFiles) -> bool {
        let texts = document.files.texts();
        let files: Vec<_> =
            files.paths().filter(|path| path.is_file()).map(Path::to_owned).collect();
        let rolled_back = self.rolled_back_ids().into_iter().map(|id| self.rolled_back_place(id));
        let mut places = rolled_back.chain([self.directory.join(TRIAL)]);
        places.any(|place| holds(&place, &texts, &files))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let to = self.directory.join(to);
        // A directory is renamed only over an empty one.
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        fs::rename(self.directory.join(from), to)?;
        sync_directory(&self.directory)
    }

    fn remove_old(&self) {
        for old in self.numbers().iter().rev().skip(KEPT) {
            self.remove(*old);
        }
    }

    /// Removes one of them, in one step for those who read and for a crash. One more that is kept does no harm.
    fn remove(&self, number: u64) {
        if self.rename(&number.to_string(), GONE).is_ok() {
            let _ = fs::remove_dir_all(self.directory.join(GONE));
        }
    }

    /// Keeps a document, unless it is the newest one already. The files that it names must still be as they were when
    /// it was bound. Returns its number.
    pub(crate) fn add(
        &self,
        document: &Document,
        files: &ReferencedFiles,
        origin: Origin,
    ) -> Result<u64> {
        let whole =
            || format!("cannot keep the confirmed document in {}", self.directory.display());
        let newest = self.numbers().last().copied();
        if let Some(newest) = newest.and_then(|newest| self.entry(newest).ok())
            && newest.origin.scope == origin.scope
            && is_same(&self.place(newest.number), &newest, document, files)
        {
            self.forget_refusals_of(document, files);
            return Ok(newest.number);
        }
        let new = self.directory.join(NEW);
        let replaced =
            newest.filter(|newest| self.differs_by_pieces(*newest, document, files, &origin));
        self.write(&new, document, files, origin).with_context(whole)?;
        files.check_unchanged(document)?;
        let number = newest.map_or(1, |newest| newest + 1);
        self.rename(NEW, &number.to_string()).with_context(whole)?;
        if let Some(replaced) = replaced {
            self.remove(replaced);
        }
        self.forget_refusals_of(document, files);
        self.remove_old();
        Ok(number)
    }

    /// Whether the newest document is this one with other pieces. Then it is replaced: pieces come and go by the thousand,
    /// and must not drive what a person wrote out of the history.
    fn differs_by_pieces(
        &self,
        newest: u64,
        document: &Document,
        files: &ReferencedFiles,
        origin: &Origin,
    ) -> bool {
        let place = self.place(newest);
        let Ok(entry) = self.entry(newest) else { return false };
        let kept = place.join("files");
        let is_changed = |path: &Path| {
            let copy = copy_below(&kept, &original(document, path));
            copy.exists() && !is_same_file(path, &copy)
        };
        !place.join(TRIAL_FILE).exists()
            && entry.origin.scope == origin.scope
            && entry.origin.from == origin.from
            && texts(&place, &entry).is_ok_and(|then| own_texts(then).eq(own_texts_of(document)))
            && !files.paths().any(is_changed)
    }

    /// The texts of the pieces of the newest document, and where they are kept: of thousands, most are in the next
    /// one, too.
    fn kept_pieces(&self) -> HashMap<String, PathBuf> {
        let newest = self.numbers().last().and_then(|newest| self.entry(*newest).ok());
        let Some(entry) = newest else { return HashMap::new() };
        let place = self.place(entry.number);
        let texts = texts(&place, &entry).unwrap_or_default().into_iter().enumerate();
        let pieces = texts.filter(|(_, text)| text.piece.is_some());
        let kept = |(index, text): (usize, SourceText)| {
            (text.text, place.join("texts").join(index.to_string()))
        };
        pieces.map(kept).collect()
    }

    fn forget_refusals_of(&self, document: &Document, files: &ReferencedFiles) {
        let files = files.paths().filter(|path| path.is_file()).map(Path::to_owned);
        self.forget_refusals(&document.files.texts(), &files.collect::<Vec<_>>());
    }

    fn write(
        &self,
        new: &Path,
        document: &Document,
        files: &ReferencedFiles,
        origin: Origin,
    ) -> Result<()> {
        let texts: Vec<_> = document.files.texts().into_iter().map(from_root).collect();
        let known = self.kept_pieces();
        make_directory(&self.directory)?;
        // What a process left that ended while it wrote.
        if new.exists() {
            fs::remove_dir_all(new)?;
        }
        let (kept_texts, kept_files) = (new.join("texts"), new.join("files"));
        make_directory(&kept_texts)?;
        make_directory(&kept_files)?;
        for (index, SourceText { text, .. }) in texts.iter().enumerate() {
            let place = kept_texts.join(index.to_string());
            // What is kept is never changed. A file system without links gets a copy.
            let linked = known.get(text).is_some_and(|known| fs::hard_link(known, &place).is_ok());
            if !linked {
                write_file(&place, &mut text.as_bytes())?;
            }
        }
        let mut directories = BTreeSet::from([kept_texts, kept_files.clone(), new.to_owned()]);
        let mut make = |directory: &Path| {
            let inside = directory.ancestors().take_while(|above| above.starts_with(new));
            directories.extend(inside.map(Path::to_owned));
            make_directory(directory)
        };
        for SourceText { directory, .. } in &texts {
            // Rulesets in a document are compiled in its directory, whether they include files or not.
            make(&copy_below(&kept_files, directory))?;
        }
        // A file that is absent is looked for, but is not part of the document.
        for path in files.paths().filter(|path| path.is_file()) {
            let copy = copy_below(&kept_files, &original(document, path));
            copy.parent().map(&mut make).transpose()?;
            write_file(&copy, &mut File::open(path)?)?;
        }
        let text = |SourceText { name, directory, format, piece, .. }: &SourceText| DocumentText {
            name: name.clone(),
            directory: directory.clone(),
            format: *format,
            piece: piece.clone(),
        };
        let entry = Entry {
            number: 0,
            origin,
            confirmed_at: Stamp::now().to_string(),
            confirmed_by_checks: Vec::new(),
            documents: texts.iter().map(text).collect(),
        };
        write_file(&new.join(ENTRY_FILE), &mut &*serde_json::to_vec_pretty(&entry)?)?;
        directories.iter().rev().try_for_each(|directory| sync_directory(directory))?;
        Ok(())
    }
}

pub(crate) fn nothing_declared() -> Result<Document> {
    understand(READER.restore(Vec::new()))
}

/// The directories in one that are called by a number.
fn numbered(directory: &Path) -> BTreeSet<u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(crate) fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Writes a file of a directory in one go, in place of one that may be there.
pub(crate) fn write_json(directory: &Path, name: &str, what: &impl Serialize) -> io::Result<()> {
    write_bytes(directory, name, &serde_json::to_vec_pretty(what)?)
}

/// The same for bytes.
pub(crate) fn write_bytes(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let written = directory.join(format!("{name}.new"));
    // One that a full disk left.
    let _ = fs::remove_file(&written);
    write_file(&written, &mut &*bytes)?;
    fs::rename(&written, directory.join(name))?;
    sync_directory(directory)
}

fn read_trial(place: &Path) -> io::Result<RecordedTrial> {
    let Entry { origin, .. } = read_json(&place.join(ENTRY_FILE))?;
    Ok(RecordedTrial { record: read_json(&place.join(TRIAL_FILE))?, origin })
}

/// Whether what is kept at a place has these texts, and names files with the same content, wherever they lie.
fn holds(place: &Path, now: &[SourceText], files: &[PathBuf]) -> bool {
    let then = read_json(&place.join(ENTRY_FILE)).and_then(|entry| texts(place, &entry));
    let Ok(then) = then else { return false };
    let own = |texts: &[SourceText]| -> Vec<String> {
        let own = texts.iter().filter(|text| text.piece.is_none());
        own.map(|text| text.text.clone()).collect()
    };
    if own(&then) != own(now) {
        return false;
    }
    // Those of pieces are not judged: pieces come and go whatever is tried.
    let has_pieces = then.iter().chain(now).any(|text| text.piece.is_some());
    let Ok(kept) = files_below(&place.join("files")) else { return false };
    let is_kept = |file: &PathBuf| {
        let mut twins = kept.iter().filter(|kept| kept.file_name() == file.file_name());
        twins.any(|kept| is_same_file(file, kept))
    };
    (has_pieces || files.len() == kept.len()) && files.iter().all(is_kept)
}

/// The texts of a document without its pieces.
fn own_texts(texts: Vec<SourceText>) -> impl Iterator<Item = SourceText> {
    texts.into_iter().filter(|text| text.piece.is_none())
}

fn own_texts_of(document: &Document) -> impl Iterator<Item = SourceText> {
    own_texts(document.files.texts()).map(from_root)
}

fn files_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut directories) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = directories.pop() {
        for inside in fs::read_dir(&directory)? {
            let path = inside?.path();
            let list = if path.is_dir() { &mut directories } else { &mut found };
            list.push(path);
        }
    }
    Ok(found)
}

fn texts(place: &Path, entry: &Entry) -> io::Result<Vec<SourceText>> {
    let text = |(index, document): (usize, &DocumentText)| {
        let DocumentText { name, directory, format, piece } = document.clone();
        let text = fs::read_to_string(place.join("texts").join(index.to_string()))?;
        Ok(SourceText { name, directory, format, piece, text })
    };
    entry.documents.iter().enumerate().map(text).collect()
}

/// Whether what is kept at a place is this document, with these files.
fn is_same(place: &Path, entry: &Entry, document: &Document, files: &ReferencedFiles) -> bool {
    let now = document.files.texts().into_iter().map(from_root);
    texts(place, entry).is_ok_and(|then| then.into_iter().eq(now))
        && are_kept(place, document, files)
}

/// Whether the copies at a place are those of these files, as they are now.
fn are_kept(place: &Path, document: &Document, files: &ReferencedFiles) -> bool {
    let kept = place.join("files");
    let is_kept = |path: &Path| is_same_file(path, &copy_below(&kept, &original(document, path)));
    files.paths().all(is_kept)
}

/// A text that is read from anywhere: what it names is named from the root.
pub(crate) fn from_root(text: SourceText) -> SourceText {
    let is_file = text.piece.is_none() && Path::new(&text.name).exists();
    let name =
        if is_file { absolute(Path::new(&text.name)).display().to_string() } else { text.name };
    let directory = match text.directory {
        directory if directory.as_os_str().is_empty() => absolute(Path::new(".")),
        directory => absolute(&directory),
    };
    SourceText { name, directory, ..text }
}

/// The path of a file that a document names. One that was restored names the copies that were kept with it.
fn original(document: &Document, path: &Path) -> PathBuf {
    let path = absolute(path);
    match path.strip_prefix(document.files.root()) {
        Ok(inside) => Path::new("/").join(inside),
        Err(_) => path,
    }
}

/// A path from the root. The documents in the state directory are read from anywhere.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    if is_url(path) {
        return path.to_owned();
    }
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Documents may hold what not everybody should read.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

pub(crate) fn write_file(path: &Path, from: &mut impl Read) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    io::copy(from, &mut file)?;
    file.sync_all()
}

pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Whether two files hold the same. Two that are not there do.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (File::open(one), File::open(other)) else {
        return !one.exists() && !other.exists();
    };
    let size = |file: &File| file.metadata().map(|file| file.len()).ok();
    size(&one) == size(&other) && is_same_content(one, other).unwrap_or(false)
}

fn is_same_content(mut one: File, mut other: File) -> io::Result<bool> {
    const PIECE: u64 = 1 << 16;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        left.clear();
        right.clear();
        one.by_ref().take(PIECE).read_to_end(&mut left)?;
        other.by_ref().take(PIECE).read_to_end(&mut right)?;
        if left != right || left.is_empty() {
            return Ok(left == right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            from: vec!["/etc/homeostat".into()],
            scope: "host".to_owned(),
            applied_by: Person::current(),
            confirmed_by: None,
        }
    }

    fn add(confirmed: &ConfirmedDocuments, directory: &Path) -> Result<u64> {
        let document = READER.load(&[directory.join("host.toml")]).unwrap();
        let files = ReferencedFiles::of(&document);
        confirmed.add(&document, &files, origin())
    }

    #[test]
    fn documents_are_kept_with_their_files_until_there_are_too_many() {
        let directory = tempfile::tempdir().unwrap();
        let (path, list) = (directory.path(), directory.path().join("all.routes"));
        let confirmed = ConfirmedDocuments::of(&path.join("state"), "homeostat");
        let text = "[[routes]]\nfrom-file = \"all.routes\"\n";
        fs::write(path.join("host.toml"), text).unwrap();
        let newest = u64::try_from(KEPT).unwrap() + 3;
        for number in 1..=newest {
            fs::write(&list, format!("blackhole 10.{number}.0.0/16\n")).unwrap();
            assert_eq!(add(&confirmed, path).unwrap(), number);
            assert_eq!(add(&confirmed, path).unwrap(), number, "the same again");
        }
        let numbers: Vec<u64> =
            confirmed.entries().unwrap().iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (newest - 19..=newest).collect::<Vec<_>>());
        fs::remove_file(&list).unwrap();
        let entry = confirmed.newest_from(&["/etc/homeostat".into()], "host").unwrap();
        let document = confirmed.load(&entry).unwrap();
        let named = ReferencedFiles::of(&document);
        let copy = named.paths().next().unwrap();
        assert!(copy.starts_with(path.join("state/confirmed/homeostat").join(newest.to_string())));
        assert_eq!(fs::read_to_string(copy).unwrap(), format!("blackhole 10.{newest}.0.0/16\n"));
        let mode = fs::metadata(copy).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it may hold what not everybody should read");
        assert_eq!(confirmed.newest_from(&["/etc/homeostat".into()], "blue"), None);
        assert_eq!(confirmed.newest_from(&["/etc/other".into()], "host"), None);
    }

    #[test]
    fn what_a_crash_left_half_written_is_never_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let confirmed = ConfirmedDocuments::of(&path.join("state"), "homeostat");
        fs::write(path.join("host.toml"), "[sysctl]\n").unwrap();
        let half = path.join("state/confirmed/homeostat/.new/texts");
        fs::create_dir_all(&half).unwrap();
        fs::write(half.join("0"), "[sys").unwrap();
        assert_eq!(confirmed.entries().unwrap(), []);
        assert_eq!(add(&confirmed, path).unwrap(), 1);
        let entry = confirmed.entry(1).unwrap();
        assert_eq!(confirmed.texts(&entry).unwrap()[0].text, "[sysctl]\n");
    }

    #[test]
    fn those_that_are_replaced_while_they_are_listed_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let confirmed = ConfirmedDocuments::of(&path.join("state"), "homeostat");
        fs::write(path.join("host.toml"), "[sysctl]\n").unwrap();
        assert_eq!(add(&confirmed, path).unwrap(), 1);
        let text = fs::read(confirmed.place(1).join(ENTRY_FILE)).unwrap();
        let last = 300;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..last {
                    let new = confirmed.directory.join(NEW);
                    fs::create_dir(&new).unwrap();
                    fs::write(new.join(ENTRY_FILE), &text).unwrap();
                    confirmed.rename(NEW, &(number + 1).to_string()).unwrap();
                    confirmed.remove(number);
                }
            });
            while confirmed.entries().unwrap().last().is_none_or(|entry| entry.number < last) {}
        });
        assert_eq!(confirmed.entries().unwrap().len(), 1);
    }

    #[test]
    fn files_that_changed_since_they_were_read_are_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let confirmed = ConfirmedDocuments::of(&path.join("state"), "homeostat");
        fs::write(path.join("host.toml"), "[[routes]]\nfrom-file = \"all.routes\"\n").unwrap();
        fs::write(path.join("all.routes"), "blackhole 10.1.0.0/16\n").unwrap();
        let document = READER.load(&[path.join("host.toml")]).unwrap();
        let files = ReferencedFiles::of(&document);
        fs::write(path.join("all.routes"), "blackhole 10.2.0.0/16\n").unwrap();
        assert!(confirmed.add(&document, &files, origin()).is_err());
        assert_eq!(confirmed.entries().unwrap(), []);
    }
}
