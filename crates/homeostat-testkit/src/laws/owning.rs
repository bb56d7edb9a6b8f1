//! Laws 5 and 8: ownership.

use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::{Alone, Edit, MemoryLedger, Owner, Ownership, Seen, Source, Step as _};

use super::harness::{Ability, DesiredState, Disturbance, Harness, Key};
use super::scene::{self, Scene, keys};
use super::verdict::{Broken, Verdict};
use crate::ledger::Tapped;

/// Keys that were recorded, each with the number of writes to the target until then.
type Log = Arc<Mutex<Vec<(u64, String)>>>;

/// Law 8.
pub(super) async fn intents_are_durable<H: Harness>(harness: &mut H) -> Result<(), Broken> {
    let log = Log::default();
    let mut scene = Scene::with_ledger(harness, 8, |harness| logging(harness, log.clone()))?;
    let desired = scene.desired(DesiredState::First);
    let untouched = (scene.harness.meter())();
    let report = scene.pass(&desired).await?;
    let log = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for step in &report.plan().steps {
        let key = step.key(&desired);
        let recorded = scene.book.holdings().records.contains_key(&key);
        let early = log.contains(&(untouched, key.to_string()));
        scene.demand(!recorded || early, || {
            format!("`{key}` was written before its intent was durable")
        })?;
    }
    everything_made_is_known(&scene, &desired).await
}

fn logging<H: Harness>(harness: &H, log: Log) -> Tapped<MemoryLedger> {
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
async fn everything_made_is_known<H: Harness>(
    scene: &Scene<'_, H>,
    desired: &scene::Desired<H>,
) -> Result<(), Broken> {
    let declared = keys(&**desired);
    let seen = scene.look(desired).await.map_err(|failure| scene.broken(&failure))?;
    for one in seen {
        let Seen::Present { key, owner, .. } = one else { continue };
        let known = owner == Owner::Ours || is_ours_unseen(scene, &key);
        scene.demand(known || !declared.contains(&key), || {
            format!("`{key}` was made, carries no mark ({owner}), and has no record")
        })?;
    }
    Ok(())
}

fn is_ours_unseen<H: Harness>(scene: &Scene<'_, H>, key: &Key<H>) -> bool {
    match &scene.ownership {
        Ownership::Exclusive(_) => true,
        Ownership::Prefix(prefix) => prefix.matches(key),
        Ownership::Marked | Ownership::Checkpoint => {
            scene.book.holdings().records.contains_key(key)
        }
    }
}

/// Law 5.
pub(super) async fn only_owned_objects_go<H: Harness>(
    harness: &mut H,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    opening_writes_nothing(&Scene::open(harness, 5)?)?;
    strangers_stay(Scene::open(harness, 5)?, verdict).await?;
    what_is_gone_is_not_deleted(Scene::open(harness, 5)?, verdict).await
}

fn opening_writes_nothing<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    let (before, writes) = (scene.harness.snapshot(), (scene.harness.meter())());
    scene.source.reader().map_err(|failure| scene.broken(&failure))?;
    let lock = Alone::i_am_the_only_writer();
    scene.source.writer(&lock).map_err(|failure| scene.broken(&failure))?;
    let same = (scene.harness.meter())() == writes && scene.harness.snapshot() == before;
    scene.demand(same, || "something was written before the first full observe".to_owned())
}

async fn strangers_stay<H: Harness>(
    mut scene: Scene<'_, H>,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    let shared = !matches!(scene.ownership, Ownership::Exclusive(_));
    let strangers = shared.then(|| scene.disturb(Disturbance::Stranger)).flatten();
    let Some(strangers) = strangers else {
        verdict.skip(5, "a foreign object that nobody declares");
        return Ok(());
    };
    for which in
        [DesiredState::Nothing, DesiredState::First, DesiredState::Second, DesiredState::Nothing]
    {
        let desired = scene.desired(which);
        scene.pass(&desired).await?;
        let now = scene.harness.snapshot();
        let gone = strangers.iter().find(|(key, text)| now.get(*key) != Some(text));
        scene.demand(gone.is_none(), || format!("{gone:?} was not ours, and is not as it was"))?;
    }
    let nothing = scene.desired(DesiredState::Nothing);
    let left = scene.plan(&nothing).await?.steps.len();
    scene.demand(left == 0, || format!("{left} objects of ours are left that nobody declares"))
}

async fn what_is_gone_is_not_deleted<H: Harness>(
    mut scene: Scene<'_, H>,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    let [first, nothing] =
        [DesiredState::First, DesiredState::Nothing].map(|which| scene.desired(which));
    scene.pass(&first).await?;
    let Some(key) = keys(&*first).pop() else { return Ok(()) };
    if scene.harness.disturb(Disturbance::Remove(&key)) == Ability::Unable {
        verdict.skip(5, "an object of ours that vanished");
        return Ok(());
    }
    let report = scene.pass(&nothing).await?;
    let tried = report.plan().steps.iter().any(|step| step.key(&nothing) == key);
    scene.demand(!tried, || format!("`{key}` was not seen, and was deleted"))
}
