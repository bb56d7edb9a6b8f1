//! The laws of stores over one and three members.

use std::sync::Arc;
use std::time::Duration;

use homeostat_store::laws::{self, Stage};
use homeostat_store::{BootTime, Keys, Store as _};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::cluster::{Cluster, put};

fn stage(cluster: &Cluster, other: usize, prefix: &str) -> Stage {
    Stage {
        one: cluster.client_of(0),
        other: cluster.client_of(other),
        prefix: prefix.to_owned(),
        clock: Arc::new(BootTime),
        shortest: Duration::from_secs(2),
    }
}

/// Random writes, by fixed seeds.
async fn replay(cluster: &Cluster, other: usize, cases: u8) {
    for case in 0..cases {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[case; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let acts = laws::acts().new_tree(&mut runner).unwrap().current();
        let stage = stage(cluster, other, &format!("/random/{case}/"));
        laws::replay(&stage, &acts).await.unwrap_or_else(|broken| panic!("{case}: {broken}"));
    }
}

#[test]
fn they_hold_for_one_member() {
    let (cluster, runtime) = Cluster::start(1);
    runtime.block_on(async {
        laws::all(&stage(&cluster, 0, "/laws/")).await.unwrap();
        laws::regression(&stage(&cluster, 0, "/future/")).await.unwrap();
        replay(&cluster, 0, 8).await;
        let store = cluster.client_of(0);
        let compact = async |revision| store.compact(revision).await.unwrap();
        laws::compaction(&stage(&cluster, 0, "/compacted/"), compact).await.unwrap();
    });
}

#[test]
fn they_hold_for_clients_of_two_of_three_members() {
    let (cluster, runtime) = Cluster::start(3);
    runtime.block_on(async {
        laws::all(&stage(&cluster, 1, "/laws/")).await.unwrap();
        replay(&cluster, 2, 4).await;
    });
}

/// More than one page, and what `etcdctl` says of it.
#[test]
fn a_long_list_is_of_one_revision_and_complete() {
    let (cluster, runtime) = Cluster::start(1);
    let store = cluster.client_of(0);
    runtime.block_on(async {
        for nth in 0..24 {
            let transaction = (0..50).fold(homeostat_store::Transaction::new(), |all, one| {
                all.put(format!("/many/{nth:02}{one:02}"), format!("{nth} {one}"))
            });
            let _ = store.commit(transaction).await.unwrap();
        }
        put(&*store, "/manyother", "").await;
        let listed = store.list(Keys::Below("/many/".into())).await.unwrap();
        let ours: Vec<_> = listed
            .values
            .iter()
            .flat_map(|(key, entry)| [key.clone(), String::from_utf8(entry.value.clone()).unwrap()])
            .collect();
        assert_eq!(ours.len(), 2 * 24 * 50);
        let judged = cluster.etcdctl(&["get", "--prefix", "/many/"]);
        assert_eq!(ours, judged.lines().collect::<Vec<_>>());
    });
}
