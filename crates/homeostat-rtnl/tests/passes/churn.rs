//! Observes while another process changes thousands of routes a second.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use homeostat_engine::{
    Alone, Config, Failure, Focus, Hint, Holdings, Observer, Outcome, Outcomes, Ownership,
    PassInput, Plan, Source as _, Work, outcome::Later, pass,
};

use homeostat_netlink::uapi::{
    NLM_F_CREATE, NLM_F_EXCL, RTA_DST, RTA_OIF, RTM_DELROUTE, RTM_GETROUTE, RTM_NEWROUTE,
};
use homeostat_netlink::{Batch, Connection, Dumped, Family};
use homeostat_rtnl::{Object, Rtnl};

use crate::bench::{Bench, block_on, cable, desired, explained, ip};

const BIRD: u8 = 12;

/// Makes or removes so many foreign routes of a family to `dst`.
fn foreign(batch: &mut Batch, kind: u16, family: u8, dst: impl Fn(u16) -> Vec<u8>) {
    batch.clear();
    for number in 0..512 {
        let dst = dst(number);
        let bits = u8::try_from(dst.len() * 8).unwrap();
        let mut message = batch.message(kind, NLM_F_CREATE | NLM_F_EXCL);
        message.fixed(&[family, bits, 0, 0, 254, BIRD, 0, 1, 0, 0, 0, 0]);
        message.attr(RTA_DST, &dst).attr_u32(RTA_OIF, 1);
        message.finish().unwrap();
    }
}

/// Churns foreign routes of both families on the loopback link until the work is done.
fn under_churn<T>(work: impl FnOnce() -> T) -> T {
    let mut connection = Connection::open(Family::Route).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_over);
    let churn = thread::spawn(move || {
        let (mut batch, mut rounds) = (Batch::new(), 0_u64);
        while !end.load(Ordering::Relaxed) {
            for kind in [RTM_NEWROUTE, RTM_DELROUTE] {
                foreign(&mut batch, kind, 2, |number| {
                    let [high, low] = number.to_be_bytes();
                    vec![11, 0, high, low]
                });
                connection.run(&mut batch, &mut |_, _| {}).unwrap();
                foreign(&mut batch, kind, 10, |number| {
                    let [high, low] = number.to_be_bytes();
                    [&[0x20, 1, 0xd, 0xb8, 0, 9][..], &[0; 8], &[high, low]].concat()
                });
                connection.run(&mut batch, &mut |_, _| {}).unwrap();
            }
            rounds += 1;
        }
        rounds
    });
    let done = work();
    is_over.store(true, Ordering::Relaxed);
    assert!(churn.join().unwrap() > 0, "nothing was churned");
    done
}

/// A namespace with some thousand routes of ours, so that a dump takes many receives.
fn crowd() -> (homeostat_testkit::namespace::Namespace, homeostat_rtnl::DesiredState, Bench) {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    let v4 = (0..2000).map(|n| format!("route 20.{}.{}.0/24", n / 250, n % 250));
    let v6 = (0..2000).map(|n| format!("route 2001:db8:{n:x}::/48 metric 5"));
    let keys: Vec<String> = v4.chain(v6).collect();
    let entries: Vec<_> = keys.iter().map(|key| (key.as_str(), "dev va")).collect();
    let (desired, mut bench) = (desired(&entries), Bench::new());
    bench.converge(&desired);
    (namespace, desired, bench)
}

#[test]
fn the_kernel_marks_no_route_dump_as_torn_however_much_changes() {
    let (_namespace, ..) = crowd();
    let restarts = under_churn(|| {
        let mut connection = Connection::open(Family::Route).unwrap();
        let (mut request, mut restarts) = (Batch::new(), 0);
        for family in [2, 10] {
            request.clear();
            let mut message = request.message(RTM_GETROUTE, 0);
            message.fixed(&[family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            message.finish().unwrap();
            for _ in 0..30 {
                let mut each = |dumped: Dumped<'_>| {
                    restarts += usize::from(matches!(dumped, Dumped::Restart));
                };
                connection.dump(&mut request, &mut each).unwrap();
            }
        }
        restarts
    });
    assert_eq!(restarts, 0, "it does: then looks begin again, and this note is wrong");
}

#[test]
fn foreign_churn_does_not_starve_us_nor_lets_us_write_what_is_there() {
    let (_namespace, desired, mut bench) = crowd();
    under_churn(|| {
        for _ in 0..10 {
            let report = bench.pass(&desired);
            assert_eq!(report.plan().steps.len(), 0, "{:#?}", explained(&report));
        }
    });
    bench.assert_quiet(&desired);
}

/// The outcomes of the steps are not looked at.
struct Unasked;

impl Outcomes<Object> for Unasked {
    fn put(&self, _steps: Range<usize>, _outcome: Outcome<Object>) {}

    fn intent(&self, _step: usize) -> Later<'_, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn note(&self, _: usize) -> Later<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn dispatched<'a>(&'a self, _step: usize, _task: &'a str) -> Later<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }
}

#[test]
fn a_look_at_a_few_keys_after_many_unheard_writes_asks_for_a_look_at_everything() {
    let _namespace = cable();
    let keys: Vec<String> =
        (0..2000).map(|n| format!("route 20.{}.{}.0/24", n / 250, n % 250)).collect();
    let entries: Vec<_> = keys.iter().map(|key| (key.as_str(), "type blackhole")).collect();
    let (source, desired, config) = (Rtnl::here(), Arc::new(desired(&entries)), Config::default());
    let order = |focus| PassInput {
        source: &source,
        desired: Arc::clone(&desired),
        ownership: &Ownership::Marked,
        focus,
        config: &config,
    };
    block_on(async {
        let mut observer = Observer::open(&source, "test").unwrap();
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let nothing = Holdings::default();
        let plan = pass::plan(&order(Focus::All), &mut observer, &nothing).await.unwrap();
        let Plan { desired, moment, steps, .. } = &plan;
        let work = Work { desired: &**desired, moment: &**moment, first: 0, steps };
        homeostat_engine::Writer::<Rtnl>::apply(&writer, work, &Unasked).await;
        let few = Focus::Keys([keys[0].parse().unwrap()].into());
        let plan = pass::plan(&order(few), &mut observer, &nothing).await.unwrap();
        assert_eq!(plan.steps.len(), 0, "the kernel was asked, not the shadow");
        let hint = tokio::time::timeout(Duration::from_secs(20), observer.hint()).await;
        assert_eq!(hint.unwrap(), Ok(Hint::Lost));
    });
}
