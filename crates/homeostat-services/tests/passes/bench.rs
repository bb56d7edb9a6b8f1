//! What the tests share: a machine with units that do nothing, and a source with a ledger that survives "restarts".

use std::fs;
use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Explain, Focus, Kind, LedgerKey, LedgerPage, MemoryLedger, Observer,
    OnRelease, Ownership, PassInput, Report, Source as _, pass,
};
use homeostat_services::{DesiredState, Key, Services};
use homeostat_testkit::booted::{BootedSystemd, debian_root};

/// A program that says that it is ready at once and never ends. Each start and each stop leaves a line.
const SERVICE: &str = "[Service]
Type=exec
ExecStartPre=sh -c 'echo start %n >> /run/starts'
ExecStart=sleep infinity
ExecStopPost=sh -c 'echo stop %n >> /run/starts'
[Install]
WantedBy=multi-user.target
";

pub(crate) struct Machine(pub(crate) BootedSystemd);

impl Machine {
    /// A machine with these units, all of them inactive and disabled.
    pub(crate) fn with_units(names: &[&str]) -> Self {
        let machine = debian_root().and_then(|root| BootedSystemd::boot(&root));
        let machine = Machine(machine.unwrap_or_else(|error| panic!("{error}")));
        for name in names {
            machine.write(&format!("etc/systemd/system/{name}.service"), SERVICE);
        }
        machine.write("run/starts", "");
        machine.systemctl("daemon-reload");
        machine
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs `systemctl`, which must succeed.
    pub(crate) fn systemctl(&self, line: &str) {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn run(&self, line: &str) -> std::process::Output {
        let argv: Vec<&str> = std::iter::once("systemctl").chain(line.split(' ')).collect();
        self.0.run(&argv).unwrap()
    }

    /// What `systemctl` prints, whatever it exits with.
    pub(crate) fn says(&self, line: &str) -> String {
        String::from_utf8_lossy(&self.run(line).stdout).trim_end().to_owned()
    }

    pub(crate) fn starts(&self) -> String {
        fs::read_to_string(self.0.path().join("run/starts")).unwrap()
    }

    pub(crate) fn source(&self) -> Services {
        Services { root: self.0.path(), ..Services::of_the_system() }
    }
}

/// A source with its ledger.
pub(crate) struct Bench {
    pub(crate) source: Services,
    pub(crate) config: Config<Key>,
    ledger: Arc<MemoryLedger>,
}

impl Bench {
    pub(crate) fn new(machine: &Machine) -> Self {
        Bench { source: machine.source(), config: Config::default(), ledger: Arc::default() }
    }

    pub(crate) fn restoring(mut self) -> Self {
        self.config.on_release = OnRelease::Restore;
        self
    }

    /// One full pass of a fresh process: only the ledger is left of the ones before.
    pub(crate) fn pass(&self, desired: &DesiredState) -> Report<Services> {
        let (source, desired, config) = (&self.source, Arc::new(desired.clone()), &self.config);
        let ownership = &Ownership::Checkpoint;
        let input = PassInput { source, desired, ownership, focus: Focus::All, config };
        block_on(async {
            let mut observer = Observer::open(source, "test").unwrap();
            let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
            let mut page = LedgerPage::open(self.ledger.clone(), ledger_key()).unwrap();
            pass(&input, &mut observer, &writer, &mut page).await.unwrap()
        })
    }

    /// What a pass says, one line each.
    pub(crate) fn lines(&self, desired: &DesiredState) -> Vec<String> {
        lines(&self.pass(desired))
    }
}

fn ledger_key() -> LedgerKey {
    LedgerKey::new("test", "services", "test").with_identity("1")
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// `unit aspect` and its value.
pub(crate) fn desired(values: &[(&str, bool)]) -> DesiredState {
    let key = |text: &str| format!("service {text}").parse::<Key>().unwrap();
    DesiredState::new(values.iter().map(|(text, value)| (key(text), *value)))
}

fn lines(explain: &dyn Explain) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Change) {
        explain.explain(kind, &mut |entry| {
            lines.push(match entry {
                Entry::Change(line, _) | Entry::Applied(line, _) => {
                    let text = |value: Option<serde_json::Value>| {
                        value.map_or("nothing".to_owned(), |value| value.to_string())
                    };
                    let (before, after) = (text(line.before), text(line.after));
                    format!("{} {}: {before} -> {after}", line.action.sign(), line.key)
                }
                other => format!("{} {}: {}", kind.list(), other.key(), other.reason()),
            });
        });
    }
    lines
}
