//! Members of etcd, and clients of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use homeostat_etcd::{Config, Endpoint, EtcdStore, TlsFiles};
use homeostat_store::{Committed, Keys, Revision, Store, Transaction};
use homeostat_testkit::etcd::{ClientFiles, Members};
use rustix::process::Signal;
use tokio::runtime::Runtime;

/// However busy the machine is, a member that has not answered by then is a failure.
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Cluster {
    members: Members,
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
        let files = |directory: &Path| {
            let TlsFiles { ca, client, .. } = tls(directory)?;
            let (certificate, key) = client?;
            Some(ClientFiles { ca, certificate, key })
        };
        let cluster = Cluster { members: Members::start(members, options, files).unwrap() };
        // Everything stays on this thread, which is in the namespace.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(cluster.until_written());
        (cluster, runtime)
    }

    /// Starts a member, or starts it again.
    pub(crate) fn run(&mut self, nth: usize) {
        self.members.run(nth).unwrap();
    }

    pub(crate) fn kill(&mut self, nth: usize) {
        self.members.kill(nth).unwrap();
    }

    /// Stops a member, or lets it go on.
    pub(crate) fn signal(&self, nth: usize, signal: Signal) {
        self.members.signal(nth, signal).unwrap();
    }

    pub(crate) fn etcdctl(&self, args: &[&str]) -> String {
        self.members.etcdctl(args).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.members.path(name)
    }

    pub(crate) fn data(&self, nth: usize) -> PathBuf {
        self.members.data(nth)
    }

    /// A client that asks all members.
    pub(crate) fn config(&self) -> Config {
        let config = Config::new((0..self.members.count()).map(endpoint), "test");
        match self.members.tls() {
            Some(ClientFiles { ca, certificate, key }) => {
                config.with_tls(TlsFiles::new(ca).with_client(certificate, key))
            }
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
            for nth in 0..self.members.count() {
                let store = self.client_of(nth);
                while !store.status().await.is_ok_and(|status| status.has_leader) {}
                while store.commit(Transaction::new().put("/begun", "")).await.is_err() {}
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        waited.unwrap_or_else(|_| panic!("{}", self.members.log()));
    }
}

/// Where a member listens.
pub(crate) fn endpoint(nth: usize) -> Endpoint {
    Members::endpoint(nth).parse().unwrap()
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
