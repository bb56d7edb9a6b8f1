//! The loop over real tables with nobody to tell it of changes: the timer heals what hints would have.
//!
//! The loop and the test share a thread, so that the loop moves only while the test waits.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, ChangeList, Config, Coverage, Draft, Events, Fails, Failure, Handle, Loop, Means,
    MemoryLedger, Outcomes, Ownership, Pace, Place, ScopeLock, See, Source, View, Work,
};
use homeostat_nft::{Key, Mark, Moment, Nft, Object, Reader, Step, Wish, Writer};

use crate::world::{World, by_hand, done, listed, nft};

const TEXT: &str = "table inet a {
    set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }; }
    chain x { type filter hook input priority 0; policy drop; tcp dport 22 accept; ip saddr @s accept; }
}
table ip b { chain y { udp dport 53 accept; }; }";

/// What becomes of the hints.
#[derive(Clone, Copy)]
enum Ears {
    /// There is no subscription.
    None,
    /// There is one, and nothing of it comes through.
    Stopped,
}

/// However busy the machine is, what takes longer does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// Without a hint every loss waits for the timer.
async fn heals_by_timer(ears: Ears) {
    let world = World::new();
    let source = Deaf { nft: Nft::here(Mark::new("test")), ears };
    let (handle, looped) = looped(source, world.wish(TEXT));
    tokio::spawn(looped.run());
    handle.wait_for(|status| status.is_converged).await.unwrap();
    let whole = listed();
    let rule = handle_of("tcp dport 22");
    let sabotage = [
        "flush ruleset".to_owned(),
        format!("delete rule inet a x handle {rule}"),
        "flush set inet a s".to_owned(),
        "add chain inet a x { policy accept; }".to_owned(),
    ];
    // A flushed ruleset comes back with other handles, so that the deleted rule comes first.
    for act in [1, 2, 3, 0].map(|nth: usize| &sabotage[nth]) {
        by_hand(act);
        assert_ne!(listed(), whole, "{act}");
        let healed = async {
            while listed() != whole {
                handle.changed().await.unwrap();
            }
        };
        let seen = tokio::time::timeout(PATIENCE, healed).await;
        assert!(seen.is_ok(), "{act} is never healed: {:#?}", handle.status());
    }
    let counts = handle.status().counts;
    assert_eq!((counts.focused, counts.drift_by_hint), (0, 0), "nobody told");
    assert!(counts.drift_by_resync >= 4, "{counts:?}");
}

#[test]
fn without_hints_the_timer_heals() {
    done(heals_by_timer(Ears::None));
}

#[test]
fn with_all_hints_lost_the_timer_heals() {
    done(heals_by_timer(Ears::Stopped));
}

fn handle_of(words: &str) -> String {
    let listing = nft(&["-a", "list", "table", "inet", "a"], "").unwrap();
    let line = listing.lines().find(|line| line.contains(words)).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

fn looped(source: Deaf, wish: Arc<Wish>) -> (Handle<Deaf>, Loop<Deaf>) {
    let text = || "test".to_owned();
    let place = Place { owner: text(), source: text(), scope: text(), identity: text() };
    let (ownership, config, nothing) = (Ownership::Marked, Config::default(), None);
    let bound = Bound { source, wish, ownership, config, place, nothing };
    let lock = Arc::new(Alone::i_am_the_only_writer());
    let means =
        Means { lock, ledger: Arc::new(MemoryLedger::default()), events: Events::default() };
    let every = Pace::of::<Deaf>(1).with_resync(Duration::from_millis(100)).unwrap();
    let (looped, handle) = Loop::new(bound, means, every);
    (handle, looped)
}

/// The source with nobody to tell it of changes.
struct Deaf {
    nft: Nft,
    ears: Ears,
}

struct Blinkered(Reader);
struct Hands(Writer);

impl Source for Deaf {
    const NAME: &'static str = "deaf";
    const FAILS: Fails = Nft::FAILS;
    const COVERAGE: Coverage = Coverage::None;

    type Key = Key;
    type Object = Object;
    type Desired = Wish;
    type Step = Step;
    type Moment = Moment;
    type Reader = Blinkered;
    type Writer = Hands;

    fn reader(&self) -> Result<Blinkered, Failure> {
        let reader = match self.ears {
            Ears::None => self.nft.reader_without_hints(),
            Ears::Stopped => self.nft.reader(),
        };
        reader.map(Blinkered)
    }

    fn writer(&self, lock: &ScopeLock) -> Result<Hands, Failure> {
        self.nft.writer(lock).map(Hands)
    }

    fn plan(&self, wish: &Wish, moment: &Moment, changes: ChangeList<Key, Object>) -> Draft<Self> {
        let Draft { steps, pending, refused, conflicts } = self.nft.plan(wish, moment, changes);
        Draft { steps, pending, refused, conflicts }
    }
}

impl homeostat_engine::Reader<Deaf> for Blinkered {
    async fn observe(
        &mut self,
        view: &View<'_, Deaf>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        let View { focus, wish, records } = *view;
        homeostat_engine::Reader::observe(&mut self.0, &View { focus, wish, records }, see).await
    }
}

impl homeostat_engine::Writer<Deaf> for Hands {
    async fn apply(&self, work: Work<'_, Deaf>, out: &dyn Outcomes<Object>) {
        let Work { wish, moment, first, steps } = work;
        homeostat_engine::Writer::apply(&self.0, Work { wish, moment, first, steps }, out).await;
    }
}
