//! Turns changes into steps. Pure: what is inside a namespace stands in the moment.

use homeostat_core::{Change, ChangeList, Desired as _, Draft};

use crate::key::Key;
use crate::model::{DesiredState, Namespace, Policy};
use crate::observe::Moment;
use crate::source::Namespaces;
use crate::step::{Ground, Step};

/// The steps for all changes.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Key, Namespace>,
) -> Draft<Namespaces> {
    let steps = changes.into_iter().filter_map(|change| step(desired, moment, change));
    Draft { steps: steps.collect(), ..Draft::default() }
}

fn step(desired: &DesiredState, moment: &Moment, change: Change<Key, Namespace>) -> Option<Step> {
    match change {
        Change::Create { slot } => {
            let key = desired.key(slot);
            if desired.policy(&key) == Some(Policy::Keep) {
                return None;
            }
            let is_leftover = moment.leftovers.contains(&key);
            let ground = if is_leftover { Ground::Leftover } else { Ground::Free };
            Some(Step::Create { slot, ground })
        }
        Change::Delete { key, .. } if moment.leftovers.contains(&key) => Some(Step::Clear { key }),
        Change::Delete { key, before } => {
            let takes = moment.foreign.get(&key).cloned().unwrap_or_default();
            Some(Step::Delete { key, before, takes })
        }
        // Any namespace agrees with the desired state, and none is a value that always exists.
        Change::Update { .. } | Change::Release { .. } | Change::GiveBack { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use homeostat_core::{Owner, Slot, Step as _, Taken};

    use super::*;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn a_removal_names_what_is_inside() {
        let blue = key("namespace blue");
        let link = Taken::new("link wan".to_owned(), Owner::foreign("another owner"));
        let mut moment = Moment::default();
        moment.foreign.insert(blue.clone(), vec![link.clone()]);
        let delete = Change::Delete { key: blue, before: Namespace::default() };
        let draft = draft(&DesiredState::default(), &moment, ChangeList::from_iter([delete]));
        assert_eq!(draft.steps[0].takes(), [link]);
    }

    #[test]
    fn a_leftover_of_ours_is_made_again() {
        let desired = DesiredState::new([key("namespace blue"), key("namespace red")]);
        let mut moment = Moment::default();
        moment.leftovers.insert(key("namespace blue"));
        let changes = [Slot(0), Slot(1)].map(|slot| Change::Create { slot });
        let steps = draft(&desired, &moment, changes.iter().cloned().collect()).steps;
        assert_eq!(steps[0], Step::Create { slot: Slot(0), ground: Ground::Leftover });
        assert_eq!(steps[1], Step::Create { slot: Slot(1), ground: Ground::Free });
    }

    #[test]
    fn a_leftover_of_ours_that_nobody_declares_is_cleared_away() {
        let blue = key("namespace blue");
        let mut moment = Moment::default();
        moment.leftovers.insert(blue.clone());
        let delete = Change::Delete { key: blue.clone(), before: Namespace::default() };
        let steps = draft(&DesiredState::default(), &moment, ChangeList::from_iter([delete])).steps;
        assert_eq!(steps, [Step::Clear { key: blue }]);
    }
}
