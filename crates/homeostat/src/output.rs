//! Plans and reports as text and as JSON. stdout is data, stderr is for people.

pub(crate) mod digest;
pub(crate) mod json;
pub(crate) mod line;
pub(crate) mod progress;
pub(crate) mod stream;
pub(crate) mod text;

use homeostat_engine::{Audience, Entry, Explain, Kind, Place, Summary};

/// How plans and reports are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Complete, for programs.
    Json,
    /// For people.
    Text(text::Length),
}

/// What one source in one scope has to tell.
pub(crate) struct Told {
    pub(crate) place: Place,
    pub(crate) what: Box<dyn Explain>,
}

impl Told {
    /// What this pass and an earlier one have to tell together.
    pub(crate) fn after(self, earlier: Told) -> Told {
        let what = Joined { earlier: earlier.what, last: self.what };
        Told { place: self.place, what: Box::new(what) }
    }
}

/// The changes of all sources together.
pub(crate) fn summary(all: &[Told]) -> Summary {
    let mut sum = Summary::default();
    for told in all {
        sum += told.what.summary();
    }
    sum
}

/// Whether every source is as declared.
pub(crate) fn is_converged(all: &[Told]) -> bool {
    all.iter().all(|told| told.what.is_converged())
}

/// Two passes: what both applied, and how the last one left things.
struct Joined {
    earlier: Box<dyn Explain>,
    last: Box<dyn Explain>,
}

impl Explain for Joined {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        if kind == Kind::Applied {
            self.earlier.explain(kind, tell);
        }
        self.last.explain(kind, tell);
    }

    fn sample(&self, kind: Kind, audience: &mut dyn Audience) {
        if kind == Kind::Applied {
            self.earlier.sample(kind, audience);
        }
        self.last.sample(kind, audience);
    }

    fn summary(&self) -> Summary {
        let mut sum = self.earlier.summary();
        sum += self.last.summary();
        sum
    }

    fn is_converged(&self) -> bool {
        self.last.is_converged()
    }
}
