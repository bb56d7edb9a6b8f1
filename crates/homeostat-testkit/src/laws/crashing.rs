//! Crashes at any point of a pass, and what the next process makes of them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use homeostat_engine::{Explain as _, Focus};

use super::fixture::{Fixture, Snapshot, Suite, keys};
use super::harness::{AsyncHarness, DesiredState};
use super::verdict::Broken;
use crate::ledger::Cut;

/// More points than any small desired state has.
const MOST: u64 = 300;

/// What to do about what a crash leaves behind.
const MARK_FIRST: &str = "set the mark in the creating call, or have the ledger record the intent before it; \
    in an `Api`: say `Marking::AfterCreate`";

/// How many passes may follow a crash: an answer may still be under way to the dead process.
const PASSES: usize = 3;

/// Where a process dies.
#[derive(Clone, Copy, Debug)]
enum Point {
    Ledger(Cut),
    /// When the source waits for the n-th time.
    Wait(u64),
}

type Points = fn(u64) -> Point;

/// The desired states of one life.
const LIFE: [DesiredState; 3] = [DesiredState::First, DesiredState::Second, DesiredState::Nothing];

/// The declared keys that the target holds, for each desired state of a life.
type Made = [Vec<String>; 3];

/// Laws 5 and 8 over a crash.
pub(super) async fn every_crash_is_made_good<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<usize, Broken> {
    let kinds: [Points; 3] =
        [|nth| Point::Ledger(Cut::Before(nth)), |nth| Point::Ledger(Cut::After(nth)), Point::Wait];
    let made = undisturbed(suite.open(8).await?).await?;
    let mut points = 0;
    for kind in kinds {
        for nth in 1..=MOST {
            let fixture = suite.open(8).await?;
            if !live(fixture, kind(nth), &made).await? {
                break;
            }
            points += 1;
        }
    }
    Ok(points)
}

/// What the target holds of each desired state when no process dies.
async fn undisturbed<H: AsyncHarness>(mut fixture: Fixture<'_, H>) -> Result<Made, Broken> {
    let mut made = Made::default();
    for (which, made) in LIFE.into_iter().zip(&mut made) {
        let desired = fixture.desired(which);
        fixture.pass(&desired).await?;
        let now = fixture.harness.snapshot().await;
        let declared = keys(&*desired).into_iter().map(|key| key.to_string());
        *made = declared.filter(|key| now.contains_key(key)).collect();
    }
    Ok(made)
}

/// One life, in which each pass dies at the same point. Returns whether any of them did.
async fn live<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
    point: Point,
    made: &Made,
) -> Result<bool, Broken> {
    let mut has_died = false;
    let strangers = fixture.add_stranger().await;
    let strangers = strangers.unwrap_or_default();
    for (which, made) in LIFE.into_iter().zip(made) {
        has_died |= die(&mut fixture, which, point).await;
        fixture.restart()?;
        recover(&mut fixture, which, point).await?;
        let now = fixture.harness.snapshot().await;
        let missing = made.iter().find(|key| !now.contains_key(*key));
        demand!(
            fixture,
            missing.is_none(),
            "after a crash ({point:?}), {missing:?} was not made, and the source says that all is as declared",
            "report in `observe` what the target holds: a record or a mark that comes before the create says only \
                what was meant"
        );
        let touched = strangers.iter().find(|(key, text)| now.get(*key) != Some(text));
        demand!(
            fixture,
            touched.is_none(),
            "after a crash ({point:?}), {touched:?} was touched",
            "take for ours only what carries our mark or has a record that proves it"
        );
    }
    let left: Snapshot = fixture.harness.snapshot().await;
    let left = left.keys().find(|key| !strangers.contains_key(*key) && !is_original(&fixture, key));
    demand!(
        fixture,
        left.is_none(),
        "after a crash ({point:?}), {left:?} was left behind for good",
        MARK_FIRST
    );
    Ok(has_died)
}

/// Whether a key was there before us: values that always exist stay.
fn is_original<H: AsyncHarness>(fixture: &Fixture<'_, H>, key: &str) -> bool {
    fixture.originals.contains_key(key)
}

async fn die<H: AsyncHarness>(
    fixture: &mut Fixture<'_, H>,
    which: DesiredState,
    point: Point,
) -> bool {
    let desired = fixture.desired(which);
    let ledger = std::sync::Arc::clone(&fixture.ledger);
    let waits = match point {
        Point::Ledger(cut) => {
            ledger.die_at(cut);
            u64::MAX
        }
        Point::Wait(nth) => nth,
    };
    let mut left = waits;
    let has_ended = {
        let mut pass = pin!(fixture.try_pass(&desired, Focus::All));
        poll_fn(|context| match pass.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => {
                left -= 1;
                if left == 0 { Poll::Ready(false) } else { Poll::Pending }
            }
        })
        .await
    };
    ledger.revive() || !has_ended
}

async fn recover<H: AsyncHarness>(
    fixture: &mut Fixture<'_, H>,
    which: DesiredState,
    point: Point,
) -> Result<(), Broken> {
    let desired = fixture.desired(which);
    for _ in 1..PASSES {
        if fixture.pass(&desired).await?.is_converged() {
            return Ok(());
        }
    }
    let converged = fixture.converge(&desired).await;
    converged.map(drop).map_err(|broken| {
        let how =
            format!("after a crash ({point:?}), the next process does not converge: {broken}");
        fixture.broken(&how, MARK_FIRST)
    })
}
