//! A `/run` of the test's own, passes over it, and `ip` as the independent judge.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of these tests that starts programs"
)]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use homeostat_engine::{
    Alone, Cascades, Config, Entry, Explain, Finding, Focus, Kind, Ledger, LedgerKey, LedgerPage,
    MassDelete, MemoryLedger, Observer, Ownership, PassInput, Report, Source as _, pass,
};
use homeostat_namespaces::{DesiredState, Key, Mark, Namespaces, Protocol};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

/// The names of one test.
pub(crate) struct World {
    pub(crate) ledger: Arc<dyn Ledger>,
}

#[expect(clippy::unused_self, reason = "having a world proves that the names are not the host's")]
impl World {
    /// Hides the host's names from this thread and from all that it starts, and the other way round.
    pub(crate) fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests need root: use `sudo -E`");
        detach();
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).unwrap();
        mount("run", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
        World { ledger: Arc::new(MemoryLedger::default()) }
    }

    /// What `ip` prints; it must succeed.
    #[track_caller]
    pub(crate) fn ip(&self, args: &str) -> String {
        let output = Command::new("ip").args(args.split_whitespace()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {args}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A process inside a namespace, until it is waited for.
    pub(crate) fn guest(&self, name: &str) -> Guest {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, "sh", "-c", "echo ready; exec cat"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Guest(child)
    }

    /// The names that exist, by `ip`.
    pub(crate) fn names(&self) -> Vec<String> {
        let listed = self.ip("netns list");
        let names = listed.lines().filter_map(|line| line.split_whitespace().next());
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        names
    }

    /// One pass of a fresh process over a desired state of these names.
    pub(crate) fn pass(&self, names: &str) -> Report<Namespaces> {
        self.pass_for(desired(names), Cascades::Hold)
    }

    /// One pass with the operator's word on what is inside.
    pub(crate) fn pass_for(&self, desired: DesiredState, cascades: Cascades) -> Report<Namespaces> {
        let source = source();
        let mut config = Config::default();
        (config.guards.mass_delete, config.guards.cascades) = (MassDelete::Allow, cascades);
        let order = PassInput {
            source: &source,
            desired: Arc::new(desired),
            ownership: &Ownership::Checkpoint,
            focus: Focus::All,
            config: &config,
        };
        let mut observer = Observer::open(&source, "host").unwrap();
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let mut page = LedgerPage::open(self.ledger.clone(), place()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(pass(&order, &mut observer, &writer, &mut page)).unwrap()
    }
}

/// A process that ends with this value.
pub(crate) struct Guest(Child);

impl Guest {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // `cat` ends with its input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

pub(crate) fn place() -> LedgerKey {
    LedgerKey::new("default", Namespaces::NAME, "host").with_identity("here")
}

pub(crate) fn source() -> Namespaces {
    Namespaces::new(Mark::new(Protocol(76), "default"))
}

pub(crate) fn desired(names: &str) -> DesiredState {
    DesiredState::new(names.split_whitespace().map(key))
}

fn key(name: &str) -> Key {
    format!("namespace {name}").parse().unwrap()
}

/// What a report contains of one kind, a line each.
pub(crate) fn report_lines(report: &dyn Explain, kind: Kind) -> Vec<String> {
    let mut lines = Vec::new();
    report.explain(kind, &mut |entry| {
        lines.push(match entry {
            Entry::Applied(line, _) | Entry::Change(line, _) => {
                format!("{} {}", line.action.sign(), line.key)
            }
            Entry::Finding {
                key,
                finding: Finding::Held { why, .. } | Finding::Unknown { why },
            } => format!("{key}: {why}"),
            Entry::Finding { key, finding: Finding::Matched { .. } } => key,
            other => format!("{other:?}"),
        });
    });
    lines
}

#[expect(unsafe_code, reason = "rustix has no safe form of unshare")]
fn detach() {
    // SAFETY: only `CLONE_FILES` is unsound, and it is not asked for.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
}
