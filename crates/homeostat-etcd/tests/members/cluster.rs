//! Members of etcd in a directory and a network namespace of the test. They end with it.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of these tests that starts programs"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use homeostat_etcd::{Config, Endpoint, EtcdStore, TlsFiles};
use homeostat_store::{Committed, Keys, Revision, Store, Transaction};
use homeostat_testkit::namespace::Namespace;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// However busy the machine is, a member that has not answered by then is a failure.
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Cluster {
    members: Vec<Option<Child>>,
    options: Vec<String>,
    tls: Option<TlsFiles>,
    directory: TempDir,
    #[expect(dead_code, reason = "it proves that the thread is not in the host's namespace")]
    namespace: Namespace,
}

impl Cluster {
    /// Starts members, and waits until they can be written to.
    pub(crate) fn start(members: usize) -> (Self, Runtime) {
        Self::start_with(members, &[], |_| None)
    }

    /// The same with options, and with what clients need that `tls` makes in the directory of the test.
    pub(crate) fn start_with(
        members: usize,
        options: &[&str],
        tls: impl FnOnce(&Path) -> Option<TlsFiles>,
    ) -> (Self, Runtime) {
        let namespace = Namespace::enter().unwrap();
        namespace.ip(&["link", "set", "lo", "up"]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let tls = tls(directory.path());
        let options =
            options.iter().map(|option| option.replace("DIR", directory.path().to_str().unwrap()));
        let options = options.collect();
        let mut cluster = Cluster { members: Vec::new(), options, tls, directory, namespace };
        cluster.members.resize_with(members, || None);
        (0..members).for_each(|nth| cluster.run(nth));
        // Everything stays on this thread, which is in the namespace.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(cluster.until_written());
        (cluster, runtime)
    }

    /// Starts a member, or starts it again.
    pub(crate) fn run(&mut self, nth: usize) {
        let (scheme, peers) = (self.scheme(), self.members.len());
        let peer = |nth: usize| format!("http://127.0.0.1:{}", 2380 + nth * 10);
        let client = format!("{scheme}://127.0.0.1:{}", 2379 + nth * 10);
        let all: Vec<_> = (0..peers).map(|nth| format!("m{nth}={}", peer(nth))).collect();
        let log = File::options().create(true).append(true).open(self.path("etcd.log")).unwrap();
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{nth}"), "--initial-cluster-token", "test", "--pre-vote"])
            .arg("--data-dir")
            .arg(self.data(nth))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(nth), "--initial-advertise-peer-urls", &peer(nth)])
            .args(["--initial-cluster", &all.join(",")])
            .args(&self.options)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null());
        self.members[nth] = Some(command.spawn().expect("etcd is there: run `cargo xtask setup`"));
    }

    pub(crate) fn kill(&mut self, nth: usize) {
        let mut member = self.members[nth].take().unwrap();
        member.kill().unwrap();
        member.wait().unwrap();
    }

    /// Stops a member, or lets it go on.
    pub(crate) fn signal(&self, nth: usize, signal: Signal) {
        let pid = Pid::from_child(self.members[nth].as_ref().unwrap());
        kill_process(pid, signal).unwrap();
    }

    /// `etcdctl`, which judges independently of our code.
    pub(crate) fn etcdctl(&self, args: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3");
        command.arg(format!("--endpoints={}://{}", self.scheme(), endpoint(0)));
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca);
            let (certificate, key) = tls.client.as_ref().unwrap();
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        let ran = command.args(args).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "etcdctl {args:?}: {said}");
        String::from_utf8(ran.stdout).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn data(&self, nth: usize) -> PathBuf {
        self.path(&format!("m{nth}"))
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// A client that asks all members.
    pub(crate) fn config(&self) -> Config {
        let members = (0..self.members.len()).map(endpoint);
        let config = Config::new(members, "test");
        match &self.tls {
            Some(tls) => config.with_tls(tls.clone()),
            None => config,
        }
    }

    /// A client of one member.
    pub(crate) fn client_of(&self, nth: usize) -> Arc<EtcdStore> {
        let mut config = self.config();
        config.members = vec![endpoint(nth)];
        Arc::new(EtcdStore::new(config.with_deadline(PATIENCE)))
    }

    /// Waits until the members have a leader.
    pub(crate) async fn until_written(&self) {
        let waiting = async {
            for nth in 0..self.members.len() {
                let store = self.client_of(nth);
                while !store.status().await.is_ok_and(|status| status.has_leader) {}
                while store.commit(Transaction::new().put("/begun", "")).await.is_err() {}
            }
        };
        let log = || std::fs::read_to_string(self.path("etcd.log")).unwrap_or_default();
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{}", log()));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for mut member in self.members.drain(..).flatten() {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// Where a member listens.
pub(crate) fn endpoint(nth: usize) -> Endpoint {
    format!("127.0.0.1:{}", 2379 + nth * 10).parse().unwrap()
}

/// Puts a value, and returns when.
pub(crate) async fn put(store: &dyn Store, key: &str, value: impl Into<Vec<u8>>) -> Revision {
    match store.commit(Transaction::new().put(key, value)).await.unwrap() {
        Committed::Done { revision } => revision,
        refused @ Committed::Refused { .. } => panic!("{refused:?}"),
    }
}

/// The value at a key.
pub(crate) async fn value(store: &dyn Store, key: &str) -> Option<Vec<u8>> {
    let listed = store.list(Keys::One(key.to_owned())).await.unwrap();
    listed.values.get(key).map(|entry| entry.value.clone())
}
