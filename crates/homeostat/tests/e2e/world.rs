//! A world of its own for one test: a network namespace, a directory, and the binary in both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use homeostat_testkit::namespace::Namespace;
use homeostat_testkit::script::write_script;
use serde_json::Value;
use snapbox::{Assert, IntoData};
use tempfile::TempDir;

use crate::program::{self, HOMEOSTAT, Holder};

/// The document that most tests speak of.
pub(crate) const DOCUMENT: &str = "host.toml";

/// What a fresh namespace takes over from the host, brought to the kernel's own defaults.
const INHERITED: [(&str, &str); 5] = [
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/lo/rp_filter", "0"),
    ("net/ipv4/conf/all/accept_redirects", "1"),
];

/// Where a test lives. Its thread is in the namespace as long as it lasts.
pub(crate) struct World {
    pub(crate) namespace: Namespace,
    directory: TempDir,
    /// The process that keeps a mount namespace with its own `/run/netns`.
    names: Option<Holder>,
}

impl World {
    /// An empty one.
    pub(crate) fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "end-to-end tests need root: run `sudo -E cargo test -p homeostat`, or `cargo xtask \
             test` as root"
        );
        let namespace = Namespace::enter().unwrap_or_else(|error| panic!("{error}"));
        let directory = tempfile::Builder::new().prefix("homeostat-e2e-").tempdir().unwrap();
        let world = World { namespace, directory, names: None };
        for (key, value) in INHERITED {
            world.meddle(key, value);
        }
        world
    }

    /// One with [`DOCUMENT`] in it.
    pub(crate) fn with(document: &str) -> Self {
        let world = Self::new();
        world.write(DOCUMENT, document);
        world
    }

    /// Names that are made from now on stay in this world.
    pub(crate) fn with_own_names(mut self) -> Self {
        let script = "mount -t tmpfs run /run\nmkdir /run/netns";
        self.names = Some(Holder::start("--mount", script));
        self
    }

    /// Where a path of this world's own mount namespace is found from outside.
    pub(crate) fn outside(&self, path: &str) -> String {
        self.names
            .as_ref()
            .map_or_else(|| path.to_owned(), |names| format!("/proc/{}/root{path}", names.pid()))
    }

    /// The directory in which the program runs.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes a script that can be run at once.
    pub(crate) fn write_program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_script(&path, text).unwrap();
        path
    }

    /// The state directory; nothing makes it but the program.
    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// The ledger's file.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.state().join("ledger.db")
    }

    /// Any program in this world.
    pub(crate) fn command(&self, program: &str) -> Command {
        let Some(names) = &self.names else {
            let mut command = program::command(program);
            command.current_dir(self.path());
            return command;
        };
        let mut command = program::command("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", names.pid()));
        command.args(["env", "-C"]).arg(self.path()).arg(program);
        command
    }

    /// The binary without a state directory: for what has none, and for sandboxes, whose own is new.
    pub(crate) fn bare(&self, args: &str) -> Command {
        let mut command = self.command(HOMEOSTAT);
        command.args(args.split_whitespace());
        command
    }

    /// The binary with the state directory of this world.
    pub(crate) fn homeostat(&self, args: &str) -> Command {
        let mut command = self.bare(args);
        command.arg("--state-dir").arg(self.state());
        command
    }

    /// Runs the binary with the state directory of this world.
    #[track_caller]
    pub(crate) fn run(&self, args: &str) -> Ran {
        self.finish(self.homeostat(args))
    }

    /// Applies [`DOCUMENT`], which must work.
    #[track_caller]
    pub(crate) fn apply(&self, document: &str) {
        self.write(DOCUMENT, document);
        self.run("apply --yes host.toml").exits(0);
    }

    /// What the plan of [`DOCUMENT`] holds as JSON.
    #[track_caller]
    pub(crate) fn plan(&self) -> Value {
        self.run("plan --json host.toml").json(0)
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn finish(&self, mut command: Command) -> Ran {
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        self.ran(&output)
    }

    /// Runs a command with this on its standard input.
    #[track_caller]
    pub(crate) fn finish_with(&self, mut command: Command, input: &str) -> Ran {
        let file = self.write("input", input);
        command.stdin(fs::File::open(file).unwrap());
        self.finish(command)
    }

    /// What a program left, with the directory's changing name taken out.
    pub(crate) fn ran(&self, output: &Output) -> Ran {
        let mut ran = Ran::of(output);
        for text in [&mut ran.stdout, &mut ran.stderr] {
            *text = text.replace(self.path().to_str().unwrap(), "@DIR");
        }
        ran
    }
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Ran { code: output.status.code(), stdout, stderr }
    }

    /// How it ended.
    pub(crate) fn code(&self) -> Option<i32> {
        self.code
    }

    /// It ended with this code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// It ended with this code and printed this, and nothing on stderr.
    #[track_caller]
    pub(crate) fn says(self, code: i32, expected: impl IntoData) {
        let ran = self.exits(code);
        Assert::new().action_env("SNAPSHOTS").eq(ran.stdout, expected.into_data());
        assert_eq!(ran.stderr, "");
    }

    /// It failed with this on stderr, and printed nothing else.
    #[track_caller]
    pub(crate) fn fails(self, expected: impl IntoData) {
        let ran = self.exits(1);
        Assert::new().action_env("SNAPSHOTS").eq(ran.stderr, expected.into_data());
        assert_eq!(ran.stdout, "");
    }

    /// It ended with this code and printed JSON.
    #[track_caller]
    pub(crate) fn json(self, code: i32) -> Value {
        let ran = self.exits(code);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
    }

    /// The last line of what it printed.
    pub(crate) fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }
}
