//! A process is killed after every system call that writes, and the next one goes on: each path is old or new, never
//! something else, and in the end all of them are new.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_engine::{
    Alone, Config, Explain as _, Focus, LedgerPage, Observer, OnRelease, PassInput, Source as _,
    SqliteLedger, pass,
};
use homeostat_files::{Files, Store, Tap};

use crate::bench::{
    Declared, OWNERSHIP, block_on, desired, filed, make_directory, names, report_lines,
};

const CHILD: &str = "FILES_TEST_SWAP";

/// One file is changed, one changes its mode, one is made, one goes, one is taken over, and one is moved away; a directory
/// comes.
const OLD: [Declared<'_>; 4] = [
    Declared::File("/etc/a", "old a\n"),
    Declared::WithMode("/etc/b", "b\n", 0o644),
    Declared::File("/etc/d", "old d\n"),
    Declared::File("/etc/z", "old z\n"),
];
const NEW: [Declared<'_>; 7] = [
    Declared::Directory("/etc/new", 0o755),
    Declared::Exclusive("/etc/only"),
    Declared::File("/etc/a", "new a\n"),
    Declared::WithMode("/etc/b", "b\n", 0o600),
    Declared::File("/etc/new/c", "new c\n"),
    Declared::Adopted("/etc/theirs", "ours\n"),
    Declared::File("/etc/z", "new z\n"),
];

struct Life<'a> {
    directory: &'a Path,
    source: Files,
    restores: bool,
}

impl<'a> Life<'a> {
    /// A process with its root and its state in a directory.
    fn start(directory: &'a Path, tap: Option<Tap>) -> Self {
        for name in ["root", "root/etc", "state"] {
            make_directory(&directory.join(name));
        }
        let store = Store::open(&directory.join("state")).unwrap();
        let source = Files::new("web", store).below(directory.join("root"));
        let source = tap.map_or(source.clone(), |tap| source.tapped(tap));
        Life { directory, source, restores: false }
    }

    /// Passes until nothing is left to do.
    fn converge(&self, declared: &[Declared<'_>]) {
        let ledger = Arc::new(SqliteLedger::open(&self.directory.join("state")).unwrap());
        let mut page = LedgerPage::open(ledger, filed()).unwrap();
        let writer = self.source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let mut observer = Observer::open(&self.source, "test").unwrap();
        let mut config = Config::default();
        config.on_release = if self.restores { OnRelease::Restore } else { OnRelease::Leave };
        let desired = Arc::new(desired(&self.source, declared));
        let mut last = Vec::new();
        let is_converged = (0..3).any(|_| {
            let (source, focus) = (&self.source, Focus::All);
            let (ownership, desired, config) = (&OWNERSHIP, Arc::clone(&desired), &config);
            let input = PassInput { source, desired, ownership, focus, config };
            let report = block_on(pass(&input, &mut observer, &writer, &mut page)).unwrap();
            last = report_lines(&report);
            report.is_converged()
        });
        assert!(is_converged, "{last:#?}");
    }

    /// What a path holds: text and mode.
    fn held(&self, path: &str) -> Option<(String, u32)> {
        held(&self.directory.join("root").join(path))
    }
}

fn held(path: &Path) -> Option<(String, u32)> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    Some((fs::read_to_string(path).ok()?, mode))
}

fn text(text: &str, mode: u32) -> (String, u32) {
    (text.to_owned(), mode)
}

/// A path, what it held before, and what it holds afterwards.
type Transition = (&'static str, Option<(String, u32)>, Option<(String, u32)>);

fn transitions() -> [Transition; 7] {
    [
        ("etc/a", Some(text("old a\n", 0o644)), Some(text("new a\n", 0o644))),
        ("etc/b", Some(text("b\n", 0o644)), Some(text("b\n", 0o600))),
        ("etc/d", Some(text("old d\n", 0o644)), None),
        ("etc/new/c", None, Some(text("new c\n", 0o644))),
        ("etc/only/x", Some(text("x\n", 0o644)), None),
        ("etc/theirs", Some(text("theirs\n", 0o644)), Some(text("ours\n", 0o644))),
        ("etc/z", Some(text("old z\n", 0o644)), Some(text("new z\n", 0o644))),
    ]
}

/// Dies after the call with this number.
fn fuse(dies_at: u64) -> Tap {
    let passed = AtomicU64::new(0);
    Arc::new(move |_| {
        if passed.fetch_add(1, Ordering::SeqCst) + 1 == dies_at {
            std::process::abort();
        }
    })
}

/// Runs as another process that dies on the way; by itself it only shows that the way has an end.
#[test]
fn a_swap_that_nobody_cuts_short_ends() {
    if let Ok(order) = std::env::var(CHILD) {
        let (at, directory) = order.split_once(' ').unwrap();
        let tap = fuse(at.parse().unwrap());
        return Life::start(Path::new(directory), Some(tap)).converge(&NEW);
    }
    let temp = prepared();
    Life::start(temp.path(), None).converge(&NEW);
    assert_new(temp.path(), "nobody was killed");
}

/// A tree as the old desired state has it, with a file of somebody else.
fn prepared() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let life = Life::start(temp.path(), None);
    life.converge(&OLD);
    make_directory(&temp.path().join("root/etc/only"));
    for (path, text) in [("theirs", "theirs\n"), ("only/x", "x\n")] {
        let path = temp.path().join("root/etc").join(path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    temp
}

fn assert_new(directory: &Path, told: &str) {
    let life = Life::start(directory, None);
    for (path, _, new) in transitions() {
        assert_eq!(life.held(path), new, "{path}, {told}");
    }
    assert_eq!(
        names(&directory.join("root/etc")),
        ["a", "b", "new", "only", "theirs", "z"],
        "{told}"
    );
    assert!(names(&directory.join("root/etc/only")).is_empty(), "{told}");
    assert_eq!(names(&directory.join("root/etc/new")), ["c"], "{told}");
    assert!(!directory.join("state/sets/web/swap.json").exists(), "{told}");
}

#[expect(clippy::disallowed_methods, reason = "the one place where these tests start a program")]
fn child(at: u64, directory: &Path) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--exact").arg("crashes::a_swap_that_nobody_cuts_short_ends");
    command.env(CHILD, format!("{at} {}", directory.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
}

/// Kills a process after a call, and returns whether there was such a call.
fn killed(at: u64, directory: &Path) -> bool {
    let status = child(at, directory);
    assert!(status.success() || status.code().is_none(), "it failed before its end: {status}");
    !status.success()
}

#[test]
fn after_a_kill_at_any_call_each_path_is_old_or_new_and_the_next_process_ends_the_swap() {
    let mut mixed = 0;
    for at in 1..1000 {
        let temp = prepared();
        if !killed(at, temp.path()) {
            assert!(at > 50, "{at} calls");
            assert!(mixed > 5, "{mixed} kills were in the middle of the exchanges");
            return;
        }
        let told = format!("killed after call {at}");
        let life = Life::start(temp.path(), None);
        let mut news = 0;
        for (path, old, new) in transitions() {
            let now = life.held(path);
            assert!(now == old || now == new, "{path} holds {now:?}, {told}");
            news += u32::from(now == new);
        }
        mixed += u32::from(0 < news && news < 7);
        life.converge(&NEW);
        assert_new(temp.path(), &told);
        let life = Life { restores: true, ..life };
        life.converge(&[]);
        assert_eq!(life.held("etc/theirs"), Some(text("theirs\n", 0o644)), "the original, {told}");
        assert_eq!(life.held("etc/only/x"), Some(text("x\n", 0o644)), "moved away, {told}");
        assert_eq!(names(&temp.path().join("root/etc")), ["only", "theirs"], "{told}");
    }
    panic!("there is no end");
}

/// The next process does not finish what somebody has changed meanwhile: the others go back, too.
#[test]
fn a_swap_that_was_cut_short_goes_back_where_somebody_has_come_between() {
    let mut returned = 0;
    for at in 1..1000 {
        let temp = prepared();
        if !killed(at, temp.path()) {
            assert!(returned > 3, "{returned} swaps went back");
            return;
        }
        let life = Life::start(temp.path(), None);
        let held = || transitions().map(|(path, _, _)| life.held(path));
        let is_mixed = transitions().iter().zip(held()).any(|((_, old, _), now)| *old != now);
        if life.held("etc/z") != Some(text("old z\n", 0o644)) || !is_mixed {
            continue;
        }
        fs::write(temp.path().join("root/etc/z"), "mine\n").unwrap();
        // Opening the writer is what recovers.
        drop(life.source.writer(&Alone::i_am_the_only_writer()).unwrap());
        for (path, old, _) in transitions().into_iter().filter(|(path, _, _)| *path != "etc/z") {
            assert_eq!(life.held(path), old, "{path}, killed after call {at}");
        }
        assert_eq!(life.held("etc/z"), Some(text("mine\n", 0o644)), "killed after call {at}");
        returned += 1;
        life.converge(&NEW);
        assert_new(temp.path(), "after it went back");
    }
    panic!("there is no end");
}
