//! What texts were compiled to, as long as somebody declares it: only a change is worth a run of `nft`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::expanded::Expanded;
use crate::desired::Compiled;
use crate::mark::Mark;

/// Shared by everybody who compiles with the same program.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Arc<Mutex<Vec<Remembered>>>);

#[derive(Debug)]
struct Remembered {
    text: Print,
    compiled: Weak<Compiled>,
}

/// What tells texts apart, each with all that it includes: a text of a million addresses is not kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print(u64, usize);

impl Print {
    pub(super) fn of(expanded: &Expanded<'_>, mark: &Mark) -> Self {
        let mut hasher = DefaultHasher::new();
        (expanded, mark).hash(&mut hasher);
        Print(hasher.finish(), expanded.ruleset.text.len())
    }
}

impl Memory {
    /// What a text was compiled to under the same circumstances.
    pub(super) fn recall(
        &self,
        print: Print,
        is_same: impl Fn(&Compiled) -> bool,
    ) -> Option<Arc<Compiled>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_text = all.iter().filter(|one| one.text == print);
        of_text.filter_map(|one| one.compiled.upgrade()).find(|compiled| is_same(compiled))
    }

    pub(super) fn keep(&self, print: Print, compiled: &Arc<Compiled>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.compiled.strong_count() > 0);
        all.push(Remembered { text: print, compiled: Arc::downgrade(compiled) });
    }
}
