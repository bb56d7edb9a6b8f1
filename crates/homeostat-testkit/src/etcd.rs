//! Members of etcd in a directory and a network namespace of the test. They end with it.
#![expect(clippy::disallowed_methods, reason = "it starts etcd, and etcdctl to judge it")]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::namespace::Namespace;

/// Members that listen on loopback of a namespace of their own, which the calling thread is in.
#[derive(Debug)]
pub struct Members {
    children: Vec<Option<Child>>,
    options: Vec<String>,
    tls: Option<ClientFiles>,
    directory: TempDir,
    namespace: Namespace,
}

/// What clients show to the members.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Members {
    /// Starts members. They need a moment until they can be written to. In options, `DIR` is the directory of the test, in
    /// which `tls` may make certificates.
    pub fn start(
        count: usize,
        options: &[&str],
        tls: impl FnOnce(&Path) -> Option<ClientFiles>,
    ) -> io::Result<Self> {
        let namespace = Namespace::enter().map_err(io::Error::other)?;
        namespace.ip(&["link", "set", "lo", "up"]).map_err(io::Error::other)?;
        let directory = tempfile::tempdir()?;
        let tls = tls(directory.path());
        let at = directory.path().display().to_string();
        let options = options.iter().map(|option| option.replace("DIR", &at)).collect();
        let mut children = Vec::new();
        children.resize_with(count, || None);
        let mut members = Members { children, options, tls, directory, namespace };
        (0..count).try_for_each(|nth| members.run(nth))?;
        Ok(members)
    }

    /// Starts a member, or starts it again.
    pub fn run(&mut self, nth: usize) -> io::Result<()> {
        let peer = |nth: usize| format!("http://127.0.0.1:{}", 2380 + nth * 10);
        let client = format!("{}://{}", self.scheme(), Self::endpoint(nth));
        let all: Vec<_> = (0..self.count()).map(|nth| format!("m{nth}={}", peer(nth))).collect();
        let log = File::options().create(true).append(true).open(self.path("etcd.log"))?;
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{nth}"), "--initial-cluster-token", "test", "--pre-vote"])
            .arg("--data-dir")
            .arg(self.data(nth))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(nth), "--initial-advertise-peer-urls", &peer(nth)])
            .args(["--initial-cluster", &all.join(",")])
            .args(&self.options)
            .stdout(log.try_clone()?)
            .stderr(log)
            .stdin(Stdio::null());
        let started = command.spawn().map_err(|error| {
            io::Error::other(format!("etcd cannot be started ({error}): run `cargo xtask setup`"))
        })?;
        if let Some(child) = self.children.get_mut(nth) {
            *child = Some(started);
        }
        Ok(())
    }

    /// Ends a member at once, as a power loss would.
    pub fn kill(&mut self, nth: usize) -> io::Result<()> {
        let Some(mut child) = self.children.get_mut(nth).and_then(Option::take) else {
            return Ok(());
        };
        child.kill()?;
        child.wait().map(drop)
    }

    /// Stops a member, or lets it go on.
    pub fn signal(&self, nth: usize, signal: Signal) -> io::Result<()> {
        let Some(child) = self.children.get(nth).and_then(Option::as_ref) else { return Ok(()) };
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// `etcdctl`, which judges independently of our code: what it prints.
    pub fn etcdctl(&self, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3");
        command.arg(format!("--endpoints={}://{}", self.scheme(), Self::endpoint(0)));
        if let Some(ClientFiles { ca, certificate, key }) = &self.tls {
            command.arg("--cacert").arg(ca).arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        let ran = command.args(args).output()?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&ran.stderr).into_owned();
        Err(io::Error::other(format!("etcdctl {args:?}: {words}")))
    }

    /// Where a member listens.
    #[must_use]
    pub fn endpoint(nth: usize) -> String {
        format!("127.0.0.1:{}", 2379 + nth * 10)
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.children.len()
    }

    #[must_use]
    pub fn tls(&self) -> Option<&ClientFiles> {
        self.tls.as_ref()
    }

    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A file in the directory of the test.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The data directory of a member.
    #[must_use]
    pub fn data(&self, nth: usize) -> PathBuf {
        self.path(&format!("m{nth}"))
    }

    /// What the members have logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("etcd.log")).unwrap_or_default()
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for mut child in self.children.drain(..).flatten() {
            // A process that has ended needs no signal.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
