//! What the tests share: a directory tree, and a set with a ledger that survives "restarts".

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Explain, Finding, Focus, Ledger, LedgerKey, LedgerPage, MemoryLedger,
    Observer, OnRelease, Ownership, PassInput, Phase, Plan, Reader as _, Report, Source as _,
    ledger_page, pass, plan,
};
use homeostat_files::{
    Account, Attributes, Content, DesiredState, DirectorySpec, Exclusive, FileSpec, Files, Key,
    Mode, Store,
};
use homeostat_testkit::entries::entry_lines;
use tempfile::TempDir;

pub(crate) struct Bench {
    pub(crate) temp: TempDir,
    pub(crate) source: Files,
    pub(crate) config: Config<Key>,
    pub(crate) ledger: Arc<dyn Ledger>,
}

pub(crate) const OWNERSHIP: Ownership = Ownership::Checkpoint;

impl Bench {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        for name in ["root", "root/etc", "state"] {
            make_directory(&temp.path().join(name));
        }
        let store = Store::open(&temp.path().join("state")).unwrap();
        let source = Files::new("web", store).below(temp.path().join("root"));
        Bench { temp, source, config: Config::default(), ledger: Arc::new(MemoryLedger::default()) }
    }

    pub(crate) fn restoring(mut self) -> Self {
        self.config.on_release = OnRelease::Restore;
        self
    }

    /// Where a path of the set is.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.temp.path().join("root").join(path.trim_start_matches('/'))
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.temp.path().join("state")
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    pub(crate) fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.at(path)).unwrap().permissions().mode() & 0o7777
    }

    /// The names in a directory.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        names(&self.at(path))
    }

    pub(crate) fn desired(&self, declare: &[Declared<'_>]) -> DesiredState {
        desired(&self.source, declare)
    }

    fn input(&self, desired: &DesiredState) -> PassInput<'_, Files> {
        let (source, desired, config) = (&self.source, Arc::new(desired.clone()), &self.config);
        PassInput { source, desired, ownership: &OWNERSHIP, focus: Focus::All, config }
    }

    pub(crate) fn plan(&self, desired: &DesiredState) -> Plan<Files> {
        let held = ledger_page::holdings::<Files>(&*self.ledger, &filed()).unwrap();
        let mut observer = Observer::open(&self.source, "test").unwrap();
        block_on(async { plan(&self.input(desired), &mut observer, &held).await.unwrap() })
    }

    /// A process that looks more than once.
    pub(crate) fn looking(&self) -> Looking<'_> {
        Looking { bench: self, observer: Observer::without_hints(&self.source, "test").unwrap() }
    }

    /// One full pass of a fresh process: only the ledger is left of the ones before.
    pub(crate) fn pass(&self, desired: &DesiredState) -> Report<Files> {
        let mut book = LedgerPage::open(Arc::clone(&self.ledger), filed()).unwrap();
        let mut observer = Observer::open(&self.source, "test").unwrap();
        let writer = self.source.writer(&Alone::i_am_the_only_writer()).unwrap();
        block_on(async {
            pass(&self.input(desired), &mut observer, &writer, &mut book).await.unwrap()
        })
    }

    /// The same of a process that reads inputs once.
    pub(crate) fn pass_once(&self, desired: &DesiredState) -> Report<Files> {
        let mut book = LedgerPage::open(Arc::clone(&self.ledger), filed()).unwrap();
        let mut observer = Observer::without_hints(&self.source, "test").unwrap();
        let writer = self.source.writer(&Alone::i_am_the_only_writer()).unwrap();
        block_on(async {
            pass(&self.input(desired), &mut observer, &writer, &mut book).await.unwrap()
        })
    }

    /// What happened so far.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        Observer::without_hints(&self.source, "test").unwrap().reader().phases()
    }

    #[track_caller]
    pub(crate) fn converge_once(&self, desired: &DesiredState) {
        let report = self.pass_once(desired);
        assert!(report.is_converged(), "{:#?}", report_lines(&report));
    }

    /// Passes until the program, which was just started, has read its files and answers.
    #[track_caller]
    pub(crate) fn converge_soon(&self, desired: &DesiredState) {
        let mut last = Vec::new();
        for _ in 0..500 {
            let report = self.pass(desired);
            if report.is_converged() {
                return;
            }
            last = report_lines(&report);
        }
        panic!("{last:#?}");
    }

    /// A pass that ends as declared.
    #[track_caller]
    pub(crate) fn converge(&self, desired: &DesiredState) -> Report<Files> {
        let report = self.pass(desired);
        assert!(report.is_converged(), "{:#?}", report_lines(&report));
        report
    }

    /// Expects that a pass has nothing to do.
    #[track_caller]
    pub(crate) fn assert_quiet(&self, desired: &DesiredState) {
        let report = self.converge(desired);
        assert!(report.plan().steps.is_empty(), "{:#?}", report_lines(&report));
    }
}

pub(crate) struct Looking<'a> {
    bench: &'a Bench,
    observer: Observer<Files>,
}

impl Looking<'_> {
    pub(crate) fn look(&mut self, desired: &DesiredState) -> Plan<Files> {
        let held = ledger_page::holdings::<Files>(&*self.bench.ledger, &filed()).unwrap();
        let input = self.bench.input(desired);
        block_on(async { plan(&input, &mut self.observer, &held).await.unwrap() })
    }
}

/// A path in a short form.
#[derive(Clone, Copy)]
pub(crate) enum Declared<'a> {
    File(&'a str, &'a str),
    Adopted(&'a str, &'a str),
    Secret(&'a str, &'a str),
    WithMode(&'a str, &'a str, u16),
    OwnedBy(&'a str, &'a str, &'a str),
    Directory(&'a str, u16),
    Exclusive(&'a str),
}

pub(crate) fn desired(source: &Files, declare: &[Declared<'_>]) -> DesiredState {
    let (mut files, mut directories) = (BTreeMap::new(), BTreeMap::new());
    for declared in declare {
        let mut spec = |path: &str, text: &str, change: &dyn Fn(&mut FileSpec)| {
            let mut spec = FileSpec {
                content: Content::new(text.as_bytes()),
                attributes: Attributes::default(),
                secret: false,
                adopt: false,
            };
            change(&mut spec);
            files.insert(path.parse().unwrap(), spec);
        };
        match *declared {
            Declared::File(path, text) => spec(path, text, &|_| {}),
            Declared::Adopted(path, text) => spec(path, text, &|spec| spec.adopt = true),
            Declared::Secret(path, text) => spec(path, text, &|spec| spec.secret = true),
            Declared::WithMode(path, text, mode) => {
                spec(path, text, &|spec| spec.attributes.mode = Some(Mode(mode)));
            }
            Declared::OwnedBy(path, text, owner) => {
                spec(path, text, &|spec| spec.attributes.owner = Some(Account::declared(owner)));
            }
            Declared::Directory(path, mode) => {
                let attributes = Attributes { mode: Some(Mode(mode)), ..Attributes::default() };
                let spec = DirectorySpec { attributes, adopt: false, exclusive: None };
                directories.insert(path.parse().unwrap(), spec);
            }
            Declared::Exclusive(path) => {
                let exclusive = Some(Exclusive { except: vec!["*.keep".to_owned()] });
                let spec =
                    DirectorySpec { attributes: Attributes::default(), adopt: false, exclusive };
                directories.insert(path.parse().unwrap(), spec);
            }
        }
    }
    DesiredState::new(source.store.digests(), files, directories)
}

pub(crate) fn filed() -> LedgerKey {
    LedgerKey::new("test", "files", "files/web").with_identity("1")
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn make_directory(path: &Path) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn names(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Everything in a plan or a report, one line each.
pub(crate) fn report_lines(explain: &dyn Explain) -> Vec<String> {
    entry_lines(explain, |entry| line(&entry))
}

fn line(entry: &Entry) -> String {
    match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => {
            let note = line.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
            format!("{} {}{note}", line.action.sign(), line.key)
        }
        Entry::Finding { key, finding } => match finding {
            Finding::Failed { failure, .. } | Finding::NotShown { failure, .. } => {
                let help = failure.help.as_deref().unwrap_or_default();
                format!("! {key}: {}; {help}", failure.error)
            }
            Finding::Pending { on } => format!(". {key}: {on}"),
            Finding::Conflict { owner, .. } => format!("conflict {key}: {owner}"),
            Finding::Unknown { why } => format!("? {key}: {why}"),
            Finding::Matched { .. } => format!("= {key}"),
            other => format!("{key}: {other:?}"),
        },
        other => format!("{other:?}"),
    }
}
