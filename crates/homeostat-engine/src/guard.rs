//! Guards against a wish that is smaller than its author meant.

use homeostat_core::{Action, Focus, Owner, Plan, Source, Step};

/// How much one full pass may delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The part of the owned objects, in percent, that may go without being asked for.
    pub percent: u8,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { percent: 50 }
    }
}

/// Up to this many deletes are never a mass delete.
const ALWAYS_ALLOWED: usize = 10;

/// Whether mass deletes were allowed by the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MassDelete {
    /// They are held back.
    #[default]
    Hold,
    /// The operator said so.
    Allow,
}

/// Whether the document speaks of the source in this scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Section {
    /// It does, even if only to say "nothing".
    #[default]
    Stated,
    /// It does not: silence is not a wish to delete.
    Missing,
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

/// All guards of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    /// How much may be deleted.
    pub budget: Budget,
    /// Whether more may be.
    pub mass_delete: MassDelete,
    /// Whether the document speaks of this source.
    pub section: Section,
    /// Whether foreign objects may be taken along.
    pub cascades: Cascades,
}

impl Guards {
    /// Holds back what the guards do not let through. Creates and updates go on, and so does what a
    /// source removes only to make it again.
    pub fn hold<S: Source>(self, plan: &mut Plan<S>, focus: &Focus<S::Key>) {
        if let Some(why) = self.held_deletes(plan, focus) {
            hold_removals(plan, &why);
        }
        if self.cascades == Cascades::Hold {
            plan.hold(|_, step| takes_foreign(step));
        }
    }

    /// Whether the removals of a plan are held back.
    pub(crate) fn holds_removals<S: Source>(self, plan: &Plan<S>, focus: &Focus<S::Key>) -> bool {
        self.held_deletes(plan, focus).is_some()
    }

    fn held_deletes<S: Source>(self, plan: &Plan<S>, focus: &Focus<S::Key>) -> Option<String> {
        let deletes = plan.removals;
        if self.mass_delete == MassDelete::Allow || deletes == 0 {
            return None;
        }
        if self.section == Section::Missing {
            return Some(format!(
                "the document has no section for `{}` here; write an empty one, or use \
                 --allow-mass-delete",
                S::NAME
            ));
        }
        let owned = plan.found.owned;
        let over = deletes * 100 > owned * usize::from(self.budget.percent);
        (matches!(focus, Focus::All) && deletes > ALWAYS_ALLOWED && over).then(|| {
            format!(
                "{deletes} of {owned} owned objects would go, over the budget of {} %; use \
                 --allow-mass-delete",
                self.budget.percent
            )
        })
    }
}

/// Holds back every step that removes what nobody wishes.
pub(crate) fn hold_removals<S: Source>(plan: &mut Plan<S>, why: &str) {
    plan.hold(|plan, step| {
        let removes = step.action() == Action::Delete && plan.slot_of(step).is_none();
        removes.then(|| why.to_owned())
    });
}

/// What the target made by itself goes and comes with what it hangs on; nobody loses anything.
fn takes_foreign<D: homeostat_core::Desired>(step: &impl Step<D>) -> Option<String> {
    let mut foreign =
        step.takes().iter().filter(|taken| !matches!(taken.owner, Owner::Ours | Owner::Kernel));
    let first = foreign.next()?;
    let more = match foreign.count() {
        0 => String::new(),
        more => format!(" (and {more} more like it)"),
    };
    Some(format!(
        "it would take `{}` along, which belongs to {}{more}; remove that first, or use \
         --allow-cascades",
        first.key, first.owner
    ))
}
