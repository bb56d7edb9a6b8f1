//! Members of etcd in a directory and a network namespace of the test. They end with it.
#![expect(clippy::disallowed_methods, reason = "it starts etcd, and etcdctl to judge it")]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::namespace::Namespace;

/// Members in a namespace of their own, which the calling thread is in: together on its loopback, or each in a network of its
/// own behind a bridge, where it can be cut off.
#[derive(Debug)]
pub struct Members {
    children: Vec<Option<Child>>,
    options: Vec<String>,
    tls: Option<ClientFiles>,
    layout: Layout,
    directory: TempDir,
    namespace: Namespace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Together,
    Apart,
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
        Self::start_in(Layout::Together, count, options, tls)
    }

    /// The same, each in a network of its own: [`cut`](Self::cut) takes a member off the others and off all clients.
    pub fn start_apart(
        count: usize,
        options: &[&str],
        tls: impl FnOnce(&Path) -> Option<ClientFiles>,
    ) -> io::Result<Self> {
        Self::start_in(Layout::Apart, count, options, tls)
    }

    fn start_in(
        layout: Layout,
        count: usize,
        options: &[&str],
        tls: impl FnOnce(&Path) -> Option<ClientFiles>,
    ) -> io::Result<Self> {
        let namespace = Namespace::enter().map_err(io::Error::other)?;
        let ip = |args: &str| {
            let args: Vec<&str> = args.split(' ').collect();
            namespace.ip(&args).map_err(io::Error::other)
        };
        ip("link set lo up")?;
        if layout == Layout::Apart {
            ip("link add br0 type bridge")?;
            ip("address add 10.98.0.254/24 dev br0")?;
            ip("link set br0 up")?;
        }
        let directory = tempfile::tempdir()?;
        let tls = tls(directory.path());
        let at = directory.path().display().to_string();
        let options = options.iter().map(|option| option.replace("DIR", &at)).collect();
        let mut children = Vec::new();
        children.resize_with(count, || None);
        let mut members = Members { children, options, tls, layout, directory, namespace };
        (0..count).try_for_each(|nth| members.run(nth))?;
        Ok(members)
    }

    /// Starts a member, or starts it again.
    pub fn run(&mut self, nth: usize) -> io::Result<()> {
        let peer = |nth: usize| match self.layout {
            Layout::Together => format!("http://127.0.0.1:{}", 2380 + nth * 10),
            Layout::Apart => format!("http://10.98.0.{}:2380", nth + 1),
        };
        let client = format!("{}://{}", self.scheme(), self.address(nth));
        let all: Vec<_> = (0..self.count()).map(|nth| format!("m{nth}={}", peer(nth))).collect();
        let log = File::options().create(true).append(true).open(self.path("etcd.log"))?;
        let mut command = match self.layout {
            Layout::Together => Command::new("etcd"),
            Layout::Apart => {
                // It waits for its link; what it writes is no line of ours.
                let script = "ip link set lo up; read -r _ || true; exec etcd \"$@\"";
                let mut command = Command::new("unshare");
                command.args(["--net", "sh", "-ec", script, "etcd"]);
                command
            }
        };
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
            .stdin(if self.layout == Layout::Apart { Stdio::piped() } else { Stdio::null() });
        let mut started = command.spawn().map_err(|error| {
            io::Error::other(format!("etcd cannot be started ({error}): run `cargo xtask setup`"))
        })?;
        if self.layout == Layout::Apart {
            self.connect(nth, &mut started)?;
        }
        if let Some(child) = self.children.get_mut(nth) {
            *child = Some(started);
        }
        Ok(())
    }

    /// Gives a member that waits for it its link to the bridge.
    fn connect(&self, nth: usize, child: &mut Child) -> io::Result<()> {
        let pid = child.id().to_string();
        let own = std::fs::read_link("/proc/thread-self/ns/net")?;
        while std::fs::read_link(format!("/proc/{pid}/ns/net"))? == own {
            if child.try_wait()?.is_some() {
                return Err(io::Error::other("`unshare --net` has failed: run the test as root"));
            }
        }
        let ip = |args: &str| {
            let args: Vec<&str> = args.split(' ').collect();
            self.namespace.ip(&args).map_err(io::Error::other)
        };
        // The one of a member that was killed goes with its network, some time after it.
        let link = format!("to-m{nth}");
        let _ = ip(&format!("link delete {link}"));
        ip(&format!("link add {link} type veth peer name eth0 netns {pid}"))?;
        ip(&format!("link set {link} up master br0"))?;
        let inside = format!("ip address add 10.98.0.{}/24 dev eth0; ip link set eth0 up", nth + 1);
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &pid, "--net", "sh", "-ec", &inside]);
        if !enter.status()?.success() {
            return Err(io::Error::other("a member has no address"));
        }
        // Closing it lets the member go on.
        drop(child.stdin.take());
        Ok(())
    }

    /// Takes a member off the others and off all clients. Nobody is told: packets are lost.
    pub fn cut(&self, nth: usize) -> io::Result<()> {
        let link = format!("to-m{nth}");
        self.namespace.ip(&["link", "set", &link, "down"]).map_err(io::Error::other)
    }

    /// Lets a member that was cut off come back.
    pub fn rejoin(&self, nth: usize) -> io::Result<()> {
        let link = format!("to-m{nth}");
        self.namespace.ip(&["link", "set", &link, "up"]).map_err(io::Error::other)
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

    /// The process of a member that runs.
    #[must_use]
    pub fn pid(&self, nth: usize) -> Option<u32> {
        self.children.get(nth)?.as_ref().map(Child::id)
    }

    /// `etcdctl`, which judges independently of our code: what it prints.
    pub fn etcdctl(&self, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3");
        command.arg(format!("--endpoints={}://{}", self.scheme(), self.address(0)));
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

    /// Where a member of these listens.
    #[must_use]
    pub fn address(&self, nth: usize) -> String {
        match self.layout {
            Layout::Together => Self::endpoint(nth),
            Layout::Apart => format!("10.98.0.{}:2379", nth + 1),
        }
    }

    /// Where a member listens that is together with the others.
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
