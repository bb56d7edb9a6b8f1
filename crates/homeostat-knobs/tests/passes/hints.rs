//! Which changes of knobs inotify reports, and which it does not.

use std::time::Duration;

use homeostat_engine::{Focus, Hint, Observer, plan};
use homeostat_knobs::{DesiredState, Key, Knobs};

use crate::bench::{Bench, block_on, desired, fresh_network, meddle};

/// Lets the observer see the desired state once, so that its files are watched.
async fn look(bench: &Bench, observer: &mut Observer<Knobs>, desired: &DesiredState) {
    let held = bench.page();
    plan(&bench.order(desired, Focus::All), observer, held.holdings()).await.unwrap();
}

/// The hint that is there by now, if any. The clock is held, so that "none" needs no waiting: time
/// only moves on when nothing is left to do.
async fn hint(observer: &mut Observer<Knobs>) -> Option<Hint<Key>> {
    let patience = Duration::from_hours(1);
    let waited = tokio::time::timeout(patience, observer.hint()).await;
    waited.ok().map(Result::unwrap)
}

fn keys(texts: &[&str]) -> Hint<Key> {
    Hint::keys(texts.iter().map(|text| Key::sysctl(text).unwrap()))
}

const FORWARD: &str = "net.ipv4.ip_forward";
const LO: &str = "net.ipv4.conf.lo.forwarding";

#[test]
fn a_direct_write_is_a_hint_and_a_coupled_change_is_not() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    block_on(async {
        tokio::time::pause();
        let mut observer = bench.observer();
        look(&bench, &mut observer, &desired(&[(LO, "0")])).await;
        assert_eq!(hint(&mut observer).await, None, "looking is not writing");
        meddle("ipv4/conf/lo/forwarding", "1");
        assert_eq!(hint(&mut observer).await, Some(keys(&[LO])));
        meddle("ipv4/ip_forward", "1");
        meddle("ipv4/ip_forward", "0");
        assert_eq!(hint(&mut observer).await, None, "it changed twice, without a hint");
    });
}

#[test]
fn hints_of_several_knobs_are_merged() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    block_on(async {
        tokio::time::pause();
        let mut observer = bench.observer();
        look(&bench, &mut observer, &desired(&[(FORWARD, "0"), (LO, "0")])).await;
        for value in ["1", "0", "1"] {
            meddle("ipv4/ip_forward", value);
            meddle("ipv4/conf/lo/forwarding", value);
        }
        assert_eq!(hint(&mut observer).await, Some(keys(&[LO, FORWARD])));
        assert_eq!(hint(&mut observer).await, None);
    });
}

#[test]
fn a_knob_that_left_the_desired_state_gives_no_hints() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    block_on(async {
        tokio::time::pause();
        let mut observer = bench.observer();
        look(&bench, &mut observer, &desired(&[(FORWARD, "0"), (LO, "0")])).await;
        look(&bench, &mut observer, &desired(&[(LO, "0")])).await;
        meddle("ipv4/ip_forward", "1");
        assert_eq!(hint(&mut observer).await, None);
        meddle("ipv4/conf/lo/forwarding", "0");
        assert_eq!(hint(&mut observer).await, Some(keys(&[LO])));
    });
}

#[test]
fn a_link_that_is_made_again_is_watched_again() {
    let network = fresh_network();
    let bench = Bench::of_the_kernel();
    let key = "net.ipv4.conf.v0.rp_filter";
    let desired = desired(&[(key, "0")]);
    block_on(async {
        tokio::time::pause();
        let mut observer = bench.observer();
        for _ in 0..2 {
            network.ip("link add v0 type veth peer name v1");
            look(&bench, &mut observer, &desired).await;
            while hint(&mut observer).await.is_some() {}
            meddle("ipv4/conf/v0/rp_filter", "1");
            assert_eq!(hint(&mut observer).await, Some(keys(&[key])));
            network.ip("link del v0");
        }
    });
}

#[test]
fn too_many_notices_are_lost_and_said_to_be() {
    let _network = fresh_network();
    let most: usize = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let bench = Bench::of_the_kernel();
    block_on(async {
        tokio::time::pause();
        let mut observer = bench.observer();
        look(&bench, &mut observer, &desired(&[(FORWARD, "0"), (LO, "0")])).await;
        // Two files in turn: equal notices in a row are merged by the kernel.
        for _ in 0..=most / 2 {
            meddle("ipv4/conf/lo/forwarding", "0");
            meddle("ipv4/ip_forward", "0");
        }
        let mut seen = Vec::new();
        while let Some(hint) = hint(&mut observer).await {
            seen.push(hint);
        }
        assert!(seen.contains(&Hint::Lost), "{} hints", seen.len());
    });
}

#[test]
fn without_a_runtime_there_is_an_error_and_no_panic() {
    let _network = fresh_network();
    let bench = Bench::of_the_kernel();
    let mut observer = bench.observer();
    let mut hint = std::pin::pin!(observer.hint());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(failure)) = hint.as_mut().poll(&mut context) else {
        panic!("it waits for nothing");
    };
    assert!(failure.error.contains("runtime"), "{failure}");
}
