//! What clients notice when members are killed, stopped, full or set back.

use std::fs;
use std::time::Duration;

use homeostat_etcd::EtcdStore;
use homeostat_store::{
    Error, Keys, Renewal, Revision, Store as _, Transaction, WatchEvent, Watching,
};
use rustix::process::Signal;

use crate::cluster::{Cluster, endpoint, put, value};

/// What a watch tells next, apart from signs of life.
async fn next(watch: &mut Watching) -> Result<(Revision, String), String> {
    loop {
        match watch.next().await {
            Ok(WatchEvent::Changed { revision, key, .. }) => return Ok((revision, key)),
            Ok(WatchEvent::Progress { .. }) => {}
            Ok(event) => return Err(format!("{event:?}")),
            Err(failure) => return Err(failure.error),
        }
    }
}

/// The watch after a revision, from whichever member answers.
async fn watch(store: &EtcdStore, after: Revision) -> Watching {
    loop {
        if let Ok(watch) = store.watch(Keys::Below("/".into()), after).await {
            return watch;
        }
    }
}

#[test]
fn a_killed_member_is_passed_over_and_its_watches_go_on_at_another() {
    let (mut cluster, runtime) = Cluster::start(3);
    let store = EtcdStore::new(cluster.config());
    for nth in 0..3 {
        runtime.block_on(async {
            let first = put(&store, "/a", "before").await;
            let mut broken = watch(&store, first).await;
            let asked = store.status().await.unwrap().member;
            let killed = (0..3).find(|nth| endpoint(*nth).to_string() == asked).unwrap();
            cluster.kill(killed);
            next(&mut broken).await.unwrap_err();
            // A write while they elect a leader may fail. It is known not to be made, or in doubt; here both end well.
            let written = loop {
                let written = store.commit(Transaction::new().put("/a", format!("{nth}"))).await;
                if written.is_ok() {
                    break value(&store, "/a").await;
                }
            };
            assert_eq!(written, Some(format!("{nth}").into_bytes()));
            let mut resumed = watch(&store, first).await;
            let (revision, key) = next(&mut resumed).await.unwrap();
            assert!(revision > first && key == "/a");
            assert_ne!(store.status().await.unwrap().member, asked);
            cluster.run(killed);
            cluster.until_written().await;
        });
    }
}

#[test]
fn a_stopped_member_costs_a_call_no_more_than_its_deadline() {
    let (cluster, runtime) = Cluster::start(3);
    let store = EtcdStore::new(cluster.config().with_deadline(Duration::from_mins(1)));
    runtime.block_on(async {
        put(&store, "/a", "1").await;
        let asked = store.status().await.unwrap().member;
        let stopped = (0..3).find(|nth| endpoint(*nth).to_string() == asked).unwrap();
        cluster.signal(stopped, Signal::STOP);
        assert_eq!(value(&store, "/a").await.as_deref(), Some(&b"1"[..]));
        assert_ne!(store.status().await.unwrap().member, asked);
        cluster.signal(stopped, Signal::CONT);
    });
}

#[test]
fn a_write_without_an_answer_is_in_doubt_and_a_read_is_not() {
    let (cluster, runtime) = Cluster::start(1);
    let store = EtcdStore::new(cluster.config().with_deadline(Duration::from_secs(1)));
    runtime.block_on(async {
        put(&store, "/a", "1").await;
        cluster.signal(0, Signal::STOP);
        let error = store.commit(Transaction::new().put("/a", "2")).await.unwrap_err();
        assert!(error.is_in_doubt(), "{error}");
        let error = store.list(Keys::One("/a".into())).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        cluster.signal(0, Signal::CONT);
        // The member has read the request by now, or never will: the next answer has it or not, for good.
        let patient = cluster.client_of(0);
        let after = value(&*patient, "/a").await;
        assert!([&b"1"[..], b"2"].contains(&after.as_deref().unwrap()), "{after:?}");
    });
}

#[test]
fn nobody_is_asked_where_nobody_listens() {
    let (mut cluster, runtime) = Cluster::start(1);
    cluster.kill(0);
    let store = EtcdStore::new(cluster.config());
    runtime.block_on(async {
        let error = store.commit(Transaction::new().put("/a", "1")).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("127.0.0.1:2379") && text.contains("refused"), "{text}");
        assert!(!error.is_in_doubt());
    });
}

/// etcd accepts such a watch and says nothing until it has caught up with the revision.
#[test]
fn a_store_that_was_restored_from_an_older_backup_is_noticed() {
    let (mut cluster, runtime) = Cluster::start(1);
    let store = cluster.client_of(0);
    let backup = cluster.path("backup");
    let last = runtime.block_on(async {
        put(&*store, "/a", "old").await;
        cluster.etcdctl(&["snapshot", "save", backup.to_str().unwrap()]);
        for _ in 0..20 {
            put(&*store, "/a", "new").await;
        }
        put(&*store, "/a", "newest").await
    });
    cluster.kill(0);
    fs::remove_dir_all(cluster.data(0)).unwrap();
    let data = cluster.data(0);
    cluster.etcdctl(&[
        "snapshot",
        "restore",
        backup.to_str().unwrap(),
        "--data-dir",
        data.to_str().unwrap(),
        "--name",
        "m0",
        "--initial-cluster",
        "m0=http://127.0.0.1:2380",
        "--initial-cluster-token",
        "test",
        "--initial-advertise-peer-urls",
        "http://127.0.0.1:2380",
    ]);
    cluster.run(0);
    runtime.block_on(async {
        cluster.until_written().await;
        let mut watch = watch(&store, last).await;
        assert_eq!(next(&mut watch).await.unwrap_err(), "Regressed");
        assert_eq!(value(&*store, "/a").await.as_deref(), Some(&b"old"[..]));
    });
}

#[test]
fn a_full_store_refuses_writes_and_can_be_read() {
    let (cluster, runtime) = Cluster::start_with(1, &["--quota-backend-bytes=4194304"], |_| None);
    let store = cluster.client_of(0);
    runtime.block_on(async {
        put(&*store, "/small", "kept").await;
        let large = vec![b'x'; 1 << 20];
        let error = loop {
            if let Err(error) = store.commit(Transaction::new().put("/large", &large[..])).await {
                break error;
            }
        };
        assert_eq!(error, Error::NoSpace);
        assert_eq!(value(&*store, "/small").await.as_deref(), Some(&b"kept"[..]));
        assert_eq!(store.grant(Duration::from_secs(5)).await.unwrap_err(), Error::NoSpace);
        assert!(store.status().await.unwrap().has_leader);
    });
}

#[test]
fn a_request_that_is_too_large_is_refused_and_a_large_answer_arrives() {
    let (cluster, runtime) = Cluster::start(1);
    let store = cluster.client_of(0);
    runtime.block_on(async {
        let begun = store.list(Keys::Below("/".into())).await.unwrap().revision;
        let error = store.commit(Transaction::new().put("/a", vec![0; 2 << 20])).await.unwrap_err();
        assert!(matches!(&error, Error::Refused { why } if why.contains("larger than")), "{error}");
        for nth in 0..8 {
            put(&*store, &format!("/large/{nth}"), vec![nth; 1 << 20]).await;
        }
        let mut watch = watch(&store, begun).await;
        for nth in 0..8 {
            assert_eq!(next(&mut watch).await.unwrap().1, format!("/large/{nth}"));
        }
        let listed = store.list(Keys::Below("/large/".into())).await.unwrap();
        let sizes: Vec<_> = listed.values.values().map(|entry| entry.value.len()).collect();
        assert_eq!(sizes, [1 << 20; 8]);
    });
}

/// The connections of this thread's namespace to members that this process has, by the ports of this end. Members have some
/// to themselves.
fn connections() -> Vec<String> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = descriptors.filter_map(|it| fs::read_link(it.path()).ok());
    let own: Vec<String> = links.map(|it| it.to_string_lossy().into_owned()).collect();
    let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let open = rows.filter(|row| row[3] == "01" && own.contains(&format!("socket:[{}]", row[9])));
    open.map(|row| row[1].to_owned()).collect()
}

#[test]
fn a_store_that_loses_its_leader_keeps_its_connections() {
    let (cluster, runtime) = Cluster::start(3);
    runtime.block_on(async {
        let store = EtcdStore::new(cluster.config());
        let first = put(&store, "/a", "1").await;
        let lease = store.grant(Duration::from_mins(5)).await.unwrap();
        let asked = store.status().await.unwrap().member;
        let asked = (0..3).find(|nth| endpoint(*nth).to_string() == asked).unwrap();
        let mut watching = watch(&store, first).await;
        let before = connections();
        assert_eq!(before.len(), 1, "{before:?}");
        let others: Vec<usize> = (0..3).filter(|nth| *nth != asked).collect();
        for other in &others {
            cluster.signal(*other, Signal::STOP);
        }
        // A watch is told when there is no leader.
        assert!(next(&mut watching).await.unwrap_err().contains("no leader"));
        for _ in 0..20 {
            let error = store.commit(Transaction::new().put("/a", "2")).await.unwrap_err();
            assert_eq!(error, Error::NoLeader);
            assert_eq!(store.list(Keys::One("/a".into())).await.unwrap_err(), Error::NoLeader);
            let opened = store.watch(Keys::Below("/".into()), first).await;
            assert_eq!(opened.err(), Some(Error::NoLeader));
        }
        assert_eq!(connections(), before);
        for other in &others {
            cluster.signal(*other, Signal::CONT);
        }
        while store.list(Keys::One("/a".into())).await.is_err() {}
        assert!(matches!(store.renew(lease.id).await, Ok(Renewal::Lasts(_))));
        assert_eq!(connections(), before);
        // It goes on after what it had seen.
        let mut resumed = watch(&store, first).await;
        let written = put(&store, "/a", "3").await;
        assert_eq!(next(&mut resumed).await.unwrap(), (written, "/a".to_owned()));
    });
}
