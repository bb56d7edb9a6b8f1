//! Laws 5 and 8: ownership.

use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::{
    Alone, Desired as _, Edit, MemoryLedger, Owner, Ownership, Seen, Source, Step as _,
};

use super::fixture::{self, Fixture, Suite, keys};
use super::harness::{Ability, AsyncHarness, DesiredState, Disturbance, Key};
use super::verdict::Broken;
use crate::ledger::Tapped;

/// Keys that were recorded, each with the number of writes to the target until then.
type Log = Arc<Mutex<Vec<(u64, String)>>>;

/// Law 8.
pub(super) async fn intents_are_durable<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    let log = Log::default();
    let mut fixture = suite.open_with_ledger(8, |harness| logging(harness, log.clone())).await?;
    let desired = fixture.desired(DesiredState::First);
    let untouched = fixture.writes();
    let report = fixture.pass(&desired).await?;
    let log = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for step in &report.plan().steps {
        let key = step.key(&desired);
        let recorded = fixture.ledger_page.holdings().records.contains_key(&key);
        let early = log.contains(&(untouched, key.to_string()));
        demand!(
            fixture,
            !recorded || early,
            "`{key}` was written before its intent was durable",
            "return true from `Step::is_recorded` for what the target cannot mark, so that the intent is \
                written first; \
                in an `Api`: choose `Strategy::Checkpoint` where objects have no mark, and \
                `Marking::AfterCreate` where it comes later"
        );
    }
    everything_made_is_known(&fixture, &desired).await
}

fn logging<H: AsyncHarness>(harness: &H, log: Log) -> Tapped<MemoryLedger> {
    let meter = harness.meter();
    Tapped::new(MemoryLedger::default()).after(move |_, edits| {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend(edits.iter().filter_map(|edit| match edit {
            Edit::Put { key, .. } => Some((meter(), key.clone())),
            Edit::Drop { .. } | Edit::DesiredState(_) => None,
        }));
    })
}

/// On a new target we have created all objects of the desired state, so each has a mark or a record.
async fn everything_made_is_known<H: AsyncHarness>(
    fixture: &Fixture<'_, H>,
    desired: &fixture::Desired<H>,
) -> Result<(), Broken> {
    let declared = keys(&**desired);
    for one in fixture.look(desired).await?.0 {
        let Seen::Present { key, owner, .. } = one else { continue };
        let known = owner == Owner::Ours || is_ours_unseen(fixture, &key);
        let is_known = known || !declared.contains(&key);
        demand!(
            fixture,
            is_known,
            "`{key}` was made, carries no mark ({owner}), and has no record",
            "set the mark in the creating call, or return true from `Step::is_recorded`; \
                in an `Api`: let `create` write `Strategy::mark`, and `list` judge it by `Strategy::seen`, \
                or say `Marking::AfterCreate`"
        );
    }
    Ok(())
}

fn is_ours_unseen<H: AsyncHarness>(fixture: &Fixture<'_, H>, key: &Key<H>) -> bool {
    match &fixture.ownership {
        Ownership::Exclusive(_) => true,
        Ownership::Prefix(prefix) => {
            prefix.matches(&fixture.desired(DesiredState::First).name(key))
        }
        Ownership::Marked | Ownership::Checkpoint => {
            fixture.ledger_page.holdings().records.contains_key(key)
        }
    }
}

/// Law 5.
pub(super) async fn only_owned_objects_go<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    opening_writes_nothing(&suite.open(5).await?).await?;
    strangers_stay(suite.open(5).await?).await?;
    what_is_gone_is_not_deleted(suite.open(5).await?).await
}

async fn opening_writes_nothing<H: AsyncHarness>(fixture: &Fixture<'_, H>) -> Result<(), Broken> {
    let before = fixture.state().await;
    fixture.source.reader().map_err(|failure| fixture.failed(&failure))?;
    let lock = Alone::i_am_the_only_writer();
    fixture.source.writer(&lock).map_err(|failure| fixture.failed(&failure))?;
    let is_same = fixture.state().await == before;
    demand!(
        fixture,
        is_same,
        "something was written before the first full observe",
        "only connect in `reader` and `writer`; write in `apply`; \
            in an `Api`: in `create`, `update` and `delete`"
    );
    Ok(())
}

async fn strangers_stay<H: AsyncHarness>(mut fixture: Fixture<'_, H>) -> Result<(), Broken> {
    let strangers = fixture.add_stranger().await;
    let Some(strangers) = strangers else {
        fixture.skip("a foreign object that is not declared");
        return Ok(());
    };
    for which in
        [DesiredState::Nothing, DesiredState::First, DesiredState::Second, DesiredState::Nothing]
    {
        let desired = fixture.desired(which);
        fixture.pass(&desired).await?;
        let now = fixture.harness.snapshot().await;
        let gone = strangers.iter().find(|(key, text)| now.get(*key) != Some(text));
        demand!(
            fixture,
            gone.is_none(),
            "{gone:?} was not ours, and is not as it was",
            "report what does not carry our mark as `Owner::Foreign`, and check the mark in each write; \
                in an `Api`: list objects by `Strategy::seen`, and refuse with `Refusal::Conflict` what is \
                not ours"
        );
    }
    let nothing = fixture.desired(DesiredState::Nothing);
    let left = fixture.plan(&nothing).await?.steps.len();
    demand!(
        fixture,
        left == 0,
        "{left} objects of ours are left that are not declared",
        "report what carries our mark as `Owner::Ours`, whether it is declared or not"
    );
    Ok(())
}

async fn what_is_gone_is_not_deleted<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
) -> Result<(), Broken> {
    let [first, nothing] = fixture.first_and(DesiredState::Nothing);
    fixture.pass(&first).await?;
    let Some(key) = keys(&*first).pop() else { return Ok(()) };
    if fixture.harness.disturb(Disturbance::Remove(&key)).await == Ability::Unable {
        fixture.skip("an object of ours that vanished");
        return Ok(());
    }
    let report = fixture.pass(&nothing).await?;
    let tried = report.plan().steps.iter().any(|step| step.key(&nothing) == key);
    demand!(
        fixture,
        !tried,
        "`{key}` was not seen, and was deleted",
        "report what the target holds now, and not what it held before"
    );
    Ok(())
}
