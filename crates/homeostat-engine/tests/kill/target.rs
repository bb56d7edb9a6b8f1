//! A target of real files: `knob-*` always exist and have no owner, everything
//! else is made and removed. Each write passes a boundary at which the process may die.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_engine::{
    Action, Change, ChangeList, Coverage, Desired as _, Draft, Edit, Error, Fails, Failure, Focus,
    Ledger, LedgerKey, Line, Outcome, Outcomes, Owner, Page, Pages, Reader, Retry, Reversibility,
    ScopeLock, See, Seen, Source, SqliteLedger, Step, Table, View, Work, Writer,
};

pub(crate) type DesiredState = Table<String, u32>;

/// Dies at the boundary with this number, counted from one.
pub(crate) struct Fuse {
    at: Option<u64>,
    passed: AtomicU64,
}

impl Fuse {
    pub(crate) fn new(at: Option<u64>) -> Arc<Self> {
        Arc::new(Fuse { at, passed: AtomicU64::new(0) })
    }

    /// How many boundaries were passed.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    fn pass(&self) {
        let number = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        if self.at == Some(number) {
            std::process::abort();
        }
    }
}

/// The real ledger, with a boundary before and after each write.
pub(crate) struct Fused {
    pub(crate) ledger: SqliteLedger,
    pub(crate) fuse: Arc<Fuse>,
}

impl Pages for Fused {
    fn page(&self, place: &LedgerKey) -> Result<Page, Error> {
        self.ledger.page(place)
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        self.ledger.places(owner)
    }
}

impl Ledger for Fused {
    fn write(&self, place: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        self.fuse.pass();
        let written = self.ledger.write(place, edits);
        self.fuse.pass();
        written
    }
}

#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) directory: PathBuf,
    pub(crate) fuse: Arc<Fuse>,
}

/// This knob holds multiples of ten.
pub(crate) const COARSE: &str = "knob-coarse";

/// What the target keeps of a number.
fn kept(key: &str, number: u32) -> u32 {
    if key == COARSE { number.next_multiple_of(10) } else { number }
}

pub(crate) struct Write {
    key: String,
    action: Action,
    to: Option<u32>,
}

impl Step<DesiredState> for Write {
    fn key(&self, _: &DesiredState) -> String {
        self.key.clone()
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        self.action
    }

    fn explain(&self, _: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let (action, key) = (self.action, self.key.clone());
        emit(Line::new(action, key));
    }
}

impl Source for Files {
    const NAME: &'static str = "files";
    const FAILS: Fails = Fails::Independent;
    const COVERAGE: Coverage = Coverage::None;

    type Key = String;
    type Object = u32;
    type Desired = DesiredState;
    type Step = Write;
    type Moment = ();
    type Reader = Files;
    type Writer = Files;

    fn reader(&self) -> Result<Files, Failure> {
        Ok(self.clone())
    }

    fn writer(&self, _: &ScopeLock) -> Result<Files, Failure> {
        Ok(self.clone())
    }

    fn plan(
        &self,
        desired: &DesiredState,
        (): &(),
        changes: ChangeList<String, u32>,
    ) -> Draft<Self> {
        let step = |change: &Change<String, u32>| {
            let (action, to) = match change {
                Change::Create { slot } => (Action::Create, Some(desired.object(*slot))),
                Change::Update { slot, .. } => (Action::Update, Some(desired.object(*slot))),
                Change::Delete { .. } | Change::GiveBack { .. } => (Action::Delete, None),
                Change::Release { restore, .. } => (Action::Delete, *restore),
            };
            Write { key: change.key(desired), action, to }
        };
        Draft {
            steps: changes.into_iter().map(|change| step(&change)).collect(),
            ..Draft::default()
        }
    }
}

/// What a directory holds, by name.
pub(crate) fn contents(directory: &Path) -> Vec<(String, u32)> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut all: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let number = std::fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), number.parse().unwrap())
        })
        .collect();
    all.sort();
    all
}

impl Reader<Files> for Files {
    async fn observe(
        &mut self,
        view: &View<'_, Files>,
        see: &mut See<'_, String, u32>,
    ) -> Result<(), Failure> {
        let focus: &Focus<String> = view.focus;
        for (key, object) in contents(&self.directory) {
            let owner = if key.starts_with("knob-") { Owner::Nobody } else { Owner::Unmarked };
            if focus.covers(&key) {
                see(Seen::Present { key, object, owner });
            }
        }
        Ok(())
    }
}

impl Writer<Files> for Files {
    async fn apply(&self, work: Work<'_, Files>, out: &dyn Outcomes<u32>) {
        for (at, step) in work.iter() {
            out.put(at..at + 1, self.run(step));
        }
    }
}

impl Files {
    fn run(&self, step: &Write) -> Outcome<u32> {
        let path = self.directory.join(&step.key);
        let done = match step.to {
            Some(number) => {
                self.at_boundary(|| std::fs::write(&path, kept(&step.key, number).to_string()))
            }
            // A knob that is given up stays.
            None if step.key.starts_with("knob-") => Ok(()),
            None => self.at_boundary(|| std::fs::remove_file(&path)),
        };
        match (done, step.to) {
            (Err(error), _) => Outcome::Failed(Failure::from_error(&error, Retry::Soon)),
            (Ok(()), Some(number)) if kept(&step.key, number) != number => {
                Outcome::Settled { held: kept(&step.key, number) }
            }
            (Ok(()), _) => Outcome::Applied { now: None },
        }
    }

    fn at_boundary(&self, write: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
        self.fuse.pass();
        let done = write();
        self.fuse.pass();
        done
    }
}
