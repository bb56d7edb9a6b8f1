//! One write to the target in memory.

use homeostat_engine::{Action, Change, Desired, Line, Step, Table};

/// What the target knows about owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    /// It holds marks.
    Held,
    /// It cannot hold marks.
    None,
    /// Its values belong to nobody.
    Nobody,
}

/// The step of one change.
#[derive(Clone, Debug)]
pub struct Put {
    pub(super) change: Change<String, String>,
    depth: u8,
}

impl Put {
    pub(super) fn new(desired: &Table<String, String>, change: Change<String, String>) -> Self {
        let depth = change.key(desired).matches('/').count();
        Put { change, depth: u8::try_from(depth).unwrap_or(DEEPEST).min(DEEPEST) }
    }
}

/// Deeper than any key of a test.
const DEEPEST: u8 = 100;

/// The part before the last slash: what must exist first.
fn parent(key: &str) -> Option<&str> {
    key.rsplit_once('/').map(|(parent, _)| parent)
}

impl Step<Table<String, String>> for Put {
    fn key(&self, desired: &Table<String, String>) -> String {
        self.change.key(desired)
    }

    fn action(&self) -> Action {
        match self.change {
            Change::Create { .. } => Action::Create,
            Change::Update { .. } => Action::Update,
            Change::Delete { .. } | Change::Release { .. } => Action::Delete,
        }
    }

    /// Parents are created before their children and deleted after them; deletes come last.
    fn phase(&self) -> u8 {
        match self.action() {
            Action::Delete => 2 * DEEPEST + 1 - self.depth,
            _ => self.depth,
        }
    }

    fn needs(&self, desired: &Table<String, String>, need: &mut dyn FnMut(String)) {
        if self.action() != Action::Delete
            && let Some(parent) = parent(&self.key(desired))
        {
            need(parent.to_owned());
        }
    }

    fn group(&self, desired: &Table<String, String>) -> Option<String> {
        parent(&self.key(desired)).map(str::to_owned)
    }

    fn explain(&self, desired: &Table<String, String>, tell: &mut dyn FnMut(Line)) {
        let (before, after) = match &self.change {
            Change::Create { slot } => (None, Some(desired.object(*slot))),
            Change::Update { slot, before, .. } => {
                (Some(before.clone()), Some(desired.object(*slot)))
            }
            Change::Delete { before, .. } => (Some(before.clone()), None),
            Change::Release { before, restore, .. } => (Some(before.clone()), restore.clone()),
        };
        let (before, after) = (before.map(Into::into), after.map(Into::into));
        tell(Line { action: self.action(), key: self.key(desired), before, after, note: None });
    }
}
