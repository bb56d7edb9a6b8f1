//! Guards against a desired state that is smaller than its author meant.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use educe::Educe;
use homeostat_core::{Action, Focus, HeldBy, Owner, Plan, Reversibility, Source, Step};

/// How much one full pass may delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// The part of the owned objects, in percent, that may go without being asked for.
    pub percent: u8,
    /// Up to this many deletes are never a mass delete, whatever part they are; by default what the
    /// [source](Source::FREE_DELETES) says.
    pub free: Option<usize>,
}

impl Budget {
    /// A part of the owned objects, in percent, that may go without being asked for.
    #[must_use]
    pub fn percent(percent: u8) -> Self {
        Budget { percent, free: None }
    }

    /// The same, and so many deletes in any case.
    #[must_use]
    pub fn with_free(self, free: usize) -> Self {
        Budget { free: Some(free), ..self }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::percent(50)
    }
}

/// Whether mass deletes were allowed by the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MassDelete {
    /// They are held back.
    #[default]
    Hold,
    /// The operator said so.
    Allow,
}

/// The sections of a document that are missing. A missing section is no request to delete what it declared:
/// removals of its keys are held, whatever their number, in focused passes too.
///
/// A section is any part of a document that can be lost as a whole. Only who reads the document knows the
/// sections, so they are given as a function from a key to the reason for holding its removal.
#[derive(Educe)]
#[educe(Clone, Default)]
pub struct MissingSections<K> {
    why: Option<Arc<dyn WhyHeld<K>>>,
}

trait WhyHeld<K>: Any + Send + Sync {
    fn why(&self, key: &K) -> Option<String>;
    fn is_same(&self, other: &dyn Any) -> bool;
}

/// Sections that can be compared, and what they say of a key.
struct Known<K, T> {
    sections: T,
    why: fn(&T, &K) -> Option<String>,
}

impl<K: 'static, T: PartialEq + Send + Sync + 'static> WhyHeld<K> for Known<K, T> {
    fn why(&self, key: &K) -> Option<String> {
        (self.why)(&self.sections, key)
    }

    fn is_same(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| self.sections == other.sections)
    }
}

impl<K: 'static> MissingSections<K> {
    /// `why` is asked about keys that are owned and no longer declared. It answers with the name of the
    /// missing section and what to write to delete its objects, or with nothing if the section of the key is
    /// there. It may go by `sections` alone, and one type of sections has one `why`: by them it is known whether the same
    /// sections are missing in another document.
    pub fn new<T>(sections: T, why: fn(&T, &K) -> Option<String>) -> Self
    where
        T: PartialEq + Send + Sync + 'static,
    {
        MissingSections { why: Some(Arc::new(Known { sections, why })) }
    }

    /// The whole document of this source is missing.
    pub fn all(why: impl Into<String>) -> Self {
        Self::new(why.into(), |why, _| Some(why.clone()))
    }

    /// Whether the same sections are missing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.why, &other.why) {
            (Some(why), Some(other)) => why.is_same(&**other as &dyn Any),
            (None, None) => true,
            _ => false,
        }
    }
}

impl<K> fmt::Debug for MissingSections<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MissingSections").field("any", &self.why.is_some()).finish()
    }
}

/// Whether steps may run that make the target remove foreign objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cascades {
    /// They are held back.
    #[default]
    Hold,
    /// The operator said so.
    Allow,
}

/// Whether steps may run that cannot be undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Losses {
    /// They may: nothing is going to be undone.
    #[default]
    Allow,
    /// They are held back, but for those that can be put off until it is certain that nothing is undone.
    Hold,
    /// All of them are held back, for good: nobody has agreed to them.
    HoldAll,
    /// The same, and also what only a restart or a repeat of something else can undo.
    HoldCompensable,
}

/// How the user of a program lifts its guards, for the texts about what they hold: the names of options. A program
/// with a command line names its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardOptions {
    /// What allows mass deletes.
    pub mass_delete: &'static str,
    /// What allows cascades.
    pub cascades: &'static str,
    /// What allows losses.
    pub losses: &'static str,
}

impl Default for GuardOptions {
    fn default() -> Self {
        GuardOptions {
            mass_delete: "`MassDelete::Allow`",
            cascades: "`Cascades::Allow`",
            losses: "`Losses::Allow`",
        }
    }
}

/// What an operator decides about the guards of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guards {
    /// How much may be deleted.
    pub budget: Budget,
    /// Whether more may be deleted, and what missing sections declared.
    pub mass_delete: MassDelete,
    /// Whether foreign objects may be taken along.
    pub cascades: Cascades,
    /// Whether something may be done that cannot be undone.
    pub losses: Losses,
    /// What the options are called that lift them.
    pub options: GuardOptions,
}

impl Guards {
    /// Holds back what the guards do not let through. Creates and updates go on, and so does what a
    /// source removes only to make it again.
    pub fn hold<S: Source>(
        self,
        missing: &MissingSections<S::Key>,
        plan: &mut Plan<S>,
        focus: &Focus<S::Key>,
    ) {
        if self.mass_delete == MassDelete::Hold {
            hold_missing(plan, missing, self.options.mass_delete);
        }
        if let Some(why) = self.over_budget(plan, focus) {
            hold_removals(plan, &why);
        }
        if self.cascades == Cascades::Hold {
            let option = self.options.cascades;
            plan.hold(HeldBy::Cascade, |_, step| {
                takes_foreign(step).map(|why| format!("{why}; remove that first, or use {option}"))
            });
        }
    }

    /// Holds back what nobody has agreed to. Comes before anything is put off.
    pub(crate) fn hold_unaccepted<S: Source>(self, plan: &mut Plan<S>) {
        let option = self.options.losses;
        if self.losses == Losses::HoldCompensable {
            plan.hold(HeldBy::Compensable, |plan, step| {
                let Reversibility::Compensable(why) = step.reversibility(&plan.desired) else {
                    return None;
                };
                Some(format!("it could not be undone exactly: {why}; use {option}"))
            });
        }
        if matches!(self.losses, Losses::HoldAll | Losses::HoldCompensable) {
            self.hold_irreversible(plan);
        }
    }

    /// Holds back what cannot be undone, if that is asked for.
    pub(crate) fn hold_losses<S: Source>(self, plan: &mut Plan<S>) {
        if self.losses != Losses::Allow {
            self.hold_irreversible(plan);
        }
    }

    fn hold_irreversible<S: Source>(self, plan: &mut Plan<S>) {
        let option = self.options.losses;
        plan.hold(HeldBy::Irreversible, |plan, step| {
            let Reversibility::Irreversible(why) = step.reversibility(&plan.desired) else {
                return None;
            };
            Some(format!("it could not be undone: {why}; use {option}"))
        });
    }

    /// Whether the budget holds back all removals of a plan.
    pub(crate) fn holds_removals<S: Source>(self, plan: &Plan<S>, focus: &Focus<S::Key>) -> bool {
        self.over_budget(plan, focus).is_some()
    }

    fn over_budget<S: Source>(self, plan: &Plan<S>, focus: &Focus<S::Key>) -> Option<String> {
        let deletes = plan.removals;
        if self.mass_delete == MassDelete::Allow || deletes == 0 {
            return None;
        }
        let (owned, free) = (plan.found.owned, self.budget.free.unwrap_or(S::FREE_DELETES));
        let over = deletes * 100 > owned * usize::from(self.budget.percent);
        (matches!(focus, Focus::All) && deletes > free && over).then(|| {
            format!(
                "{deletes} of {owned} owned objects would go, over the budget of {} %; use {}",
                self.budget.percent, self.options.mass_delete
            )
        })
    }
}

/// Holds back the removals of keys whose section is missing. The budget does not count them: what is held
/// here must not keep the removals of other sections from being made.
fn hold_missing<S: Source>(
    plan: &mut Plan<S>,
    missing: &MissingSections<S::Key>,
    option: &'static str,
) {
    let (Some(why), true) = (&missing.why, plan.removals > 0) else { return };
    let held = plan.hold(HeldBy::MissingSection, |plan, step| {
        let why = is_removal(plan, step).then(|| why.why(&step.key(&plan.desired))).flatten()?;
        Some(format!("{why}, or use {option}"))
    });
    // One removal may be several steps.
    let held: BTreeSet<S::Key> = held.iter().map(|(key, _)| key.clone()).collect();
    plan.removals = plan.removals.saturating_sub(held.len());
}

/// Holds back every step that removes what is not declared.
pub(crate) fn hold_removals<S: Source>(plan: &mut Plan<S>, why: &str) {
    plan.hold(HeldBy::DeleteBudget, |plan, step| is_removal(plan, step).then(|| why.to_owned()));
}

fn is_removal<S: Source>(plan: &Plan<S>, step: &S::Step) -> bool {
    step.action() == Action::Delete && plan.slot_of(step).is_none()
}

/// What the target made by itself goes and comes with what it hangs on; no owner loses anything.
fn takes_foreign<D: homeostat_core::Desired>(step: &impl Step<D>) -> Option<String> {
    let mut foreign =
        step.takes().iter().filter(|taken| !matches!(taken.owner, Owner::Ours | Owner::Kernel));
    let first = foreign.next()?;
    let more = match foreign.count() {
        0 => String::new(),
        more => format!(" (and {more} more like it)"),
    };
    Some(format!("it would take `{}` along, which belongs to {}{more}", first.key, first.owner))
}
