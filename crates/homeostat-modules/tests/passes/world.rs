//! A tree of modules and a program that loads into it, and a source with a ledger that survives "restarts".

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Explain, Finding, Focus, LedgerKey, LedgerPage, MemoryLedger, Observer,
    OnRelease, Ownership, PassInput, Report, Source as _, pass,
};
use homeostat_modules::{DesiredState, Key, Modules, Roots};
use homeostat_testkit::entries::entry_lines;
use tempfile::TempDir;

/// It knows all modules but `nosuch`, and another one behind an alias. It logs what it is asked for.
const MODPROBE: &str = r#"#!/bin/sh
echo "$*" >> ROOT/log
case "$2" in
    nosuch) echo "modprobe: FATAL: Module nosuch not found in directory /lib/modules/6.1" >&2; exit 1;;
    denied) echo "modprobe: ERROR: could not insert 'denied': Operation not permitted" >&2; exit 1;;
    net_pf_10) set -- -- ipv6;;
esac
test ! -e "ROOT/refuse/$2" || exit 1
mkdir -p "ROOT/module/$2" && echo live > "ROOT/module/$2/initstate"
"#;

pub(crate) struct World {
    root: TempDir,
    ledger: Arc<MemoryLedger>,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = World { root: tempfile::tempdir().unwrap(), ledger: Arc::default() };
        fs::create_dir(world.path("module")).unwrap();
        fs::create_dir(world.path("refuse")).unwrap();
        let script = MODPROBE.replace("ROOT", &world.root.path().display().to_string());
        fs::write(world.path("modprobe"), script).unwrap();
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(world.path("modprobe"), executable).unwrap();
        world
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn source(&self) -> Modules {
        Modules {
            roots: Roots {
                loaded: self.path("module"),
                built_in: self.path("modules.builtin"),
                modprobe: self.path("modprobe"),
            },
        }
    }

    /// What `modprobe` was asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// The modules that are loaded.
    pub(crate) fn loaded(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("module")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// One full pass of a fresh process.
    pub(crate) fn pass(&self, desired: &DesiredState) -> Report<Modules> {
        let source = self.source();
        let mut config = Config::<Key>::default();
        config.on_release = OnRelease::Restore;
        let desired = Arc::new(desired.clone());
        let ownership = &Ownership::Checkpoint;
        let input =
            PassInput { source: &source, desired, ownership, focus: Focus::All, config: &config };
        let mut page = LedgerPage::open(
            self.ledger.clone(),
            LedgerKey::new("test", "modules", "test").with_identity("1"),
        )
        .unwrap();
        let mut observer = Observer::open(&source, "test").unwrap();
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        block_on(async { pass(&input, &mut observer, &writer, &mut page).await.unwrap() })
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn desired(names: &str) -> DesiredState {
    DesiredState::new(names.split_whitespace().map(|name| name.parse().unwrap()))
}

pub(crate) fn report_lines(explain: &dyn Explain) -> Vec<String> {
    entry_lines(explain, |entry| match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => {
            let note = line.note.map(|note| format!(" ({note})")).unwrap_or_default();
            format!("{} {}{note}", line.action.sign(), line.key)
        }
        Entry::Finding { key, finding: Finding::Failed { failure, .. } } => {
            let help = failure.help.as_deref().unwrap_or_default().to_owned();
            format!("failed {key}: {} ({help})", failure.error)
        }
        other => format!("{other:?}"),
    })
}
