//! Whether steps answer for themselves what their source lists of their kind: how a rollback undoes them, and whether
//! something is lost.

use homeostat_engine::{Desired, Owner, Parking, Reversibility, Step, StepKind, Taking, Undo};

/// One step of a kind.
pub struct Example<S> {
    kind: &'static str,
    step: S,
    kept: Kept,
}

/// What the engine keeps by itself of the object of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Nothing,
    /// Its value before the first write: it belongs to nobody.
    Original,
    /// A snapshot: it is taken over from another owner.
    Snapshot,
}

impl<S> Example<S> {
    /// A step of the kind that the source lists with these words.
    pub fn new(kind: &'static str, step: S) -> Self {
        Example { kind, step, kept: Kept::Nothing }
    }

    /// One on a value that belongs to nobody: the ledger has what it was.
    pub fn on_a_value(kind: &'static str, step: S) -> Self {
        Example { kind, step, kept: Kept::Original }
    }

    /// One that takes its object over from another owner.
    pub fn adopting(kind: &'static str, step: S) -> Self {
        Example { kind, step, kept: Kept::Snapshot }
    }
}

/// Judges the list of a source by examples, of which there must be one of each kind. The error says which step answers
/// otherwise than its kind, or which kind has no example.
pub fn check<D: Desired, S: Step<D>>(
    kinds: &[StepKind],
    desired: &D,
    examples: impl IntoIterator<Item = Example<S>>,
) -> Result<(), String> {
    let mut shown = Vec::new();
    for Example { kind, step, kept } in examples {
        let Some(listed) = kinds.iter().find(|listed| listed.step == kind) else {
            return Err(format!("the source lists no steps of the kind `{kind}`"));
        };
        judge(listed, &step, desired, kept)
            .map_err(|otherwise| format!("`{kind}`: {otherwise}"))?;
        shown.push(kind);
    }
    match kinds.iter().find(|kind| !shown.contains(&kind.step)) {
        Some(missing) => Err(format!("there is no example of `{}`", missing.step)),
        None => Ok(()),
    }
}

fn judge<D: Desired, S: Step<D>>(
    kind: &StepKind,
    step: &S,
    desired: &D,
    kept: Kept,
) -> Result<(), String> {
    let class = step.reversibility(desired);
    match (&class, kind.loses) {
        (Reversibility::Reversible, Some(loses)) => {
            return Err(format!("the list says that `{loses}` is lost, the step loses nothing"));
        }
        (Reversibility::Irreversible(why), None) => {
            return Err(format!("the list says that nothing is lost, the step says: {why}"));
        }
        _ => {}
    }
    if kept == Kept::Original && !step.is_recorded() {
        return Err("the ledger has no record of it, and so no original".to_owned());
    }
    let undo = match undo_of(step, desired)? {
        Undo::FormerDesired if kept != Kept::Nothing => Undo::Record,
        undo => undo,
    };
    if undo == kind.undo {
        return Ok(());
    }
    Err(format!("listed as {:?}, the step itself is {undo:?} ({class:?})", kind.undo))
}

/// How a rollback undoes a step, as the step itself answers.
fn undo_of<D: Desired, S: Step<D>>(step: &S, desired: &D) -> Result<Undo, String> {
    let class = step.reversibility(desired);
    let undone = |instead: &S| match instead.reversibility(desired) {
        Reversibility::Reversible => Ok(()),
        other => Err(format!("what is done in its place is {other:?}")),
    };
    Ok(match step.parking() {
        Some(Parking::Nothing) => Undo::PutOff,
        Some(Parking::By(other)) => {
            undone(&other)?;
            Undo::Aside
        }
        Some(Parking::Instead(other)) => {
            undone(&other)?;
            let (mut is_listed, key) = (false, step.key(desired));
            other.records(desired, &mut |recorded, taking| {
                is_listed |= taking == Taking::Itself && recorded == key;
            });
            match class {
                _ if is_listed => Undo::MadeAgain,
                Reversibility::Irreversible(_) => Undo::Aside,
                _ => Undo::Record,
            }
        }
        None => match class {
            Reversibility::Irreversible(_) => Undo::Never,
            Reversibility::Compensable(_) => Undo::Repeat,
            Reversibility::Reversible if takes_foreign(step) => Undo::Record,
            Reversibility::Reversible => {
                let mut is_recorded = false;
                // The order of what returns is put right after it; it is no copy of the object.
                step.records(desired, &mut |_, taking| is_recorded |= taking != Taking::Around);
                if is_recorded { Undo::Record } else { Undo::FormerDesired }
            }
        },
    })
}

fn takes_foreign<D: Desired, S: Step<D>>(step: &S) -> bool {
    step.takes().iter().any(|taken| !matches!(taken.owner, Owner::Ours | Owner::Kernel))
}
