//! What a node has accepted, and what became of it. Pure: the node keeps [`Progress`] durably, and publishes the
//! [`Status`] that follows from it.

use homeostat_document::Period;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::merkle::Class;
use crate::records::{Accepted, NodePhase, Open, Record, Statement, Status};

/// What a node keeps durably. `accepted` is written before anything of it is applied, and only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub accepted: Option<Accepted>,
    /// How it is tried.
    pub terms: Option<Terms>,
    /// What became of `accepted`.
    pub stage: Stage,
    /// The last one that was good: it is in force when nothing is tried, and after each boot.
    pub good: Option<Accepted>,
    /// Since when the stage is this one.
    pub since: Time,
}

/// What was signed about a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub settle: Period,
    pub confirm_within: Period,
    pub class: Class,
    pub accept: Vec<String>,
}

impl Terms {
    #[must_use]
    pub fn of(statement: &Statement, class: Class) -> Self {
        let Statement { settle, confirm_within, .. } = *statement;
        Terms { settle, confirm_within, class, accept: statement.accept.clone() }
    }
}

/// What became of what was accepted last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Its trial is open, or is about to begin.
    #[default]
    Trial,
    Good,
    /// It is never tried again.
    RolledBack {
        why: String,
    },
    /// It could not even be tried, and is never tried again.
    Refused {
        why: String,
    },
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Good,
    RolledBack { why: String },
    Refused { why: String },
}

/// What the store offers at this moment, compared with what was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Offer {
    /// Nothing, or what was accepted.
    #[default]
    Current,
    /// Something that says nothing about a newer generation, such as an older one: the status goes on to be about what was
    /// accepted, with this as its reason.
    Ignored { why: String },
    /// Something newer that is not taken, at least not yet.
    Waits { offered: Accepted, phase: NodePhase, why: String },
}

/// How the machine stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    pub converged: bool,
    pub open: Open,
    pub agent: String,
    pub boot: String,
}

impl Record for Progress {
    const NAME: &'static str = "record of what was accepted";
}

impl Progress {
    /// What is to be tried, if its trial has not ended.
    #[must_use]
    pub fn to_try(&self) -> Option<&Accepted> {
        self.accepted.as_ref().filter(|_| self.stage == Stage::Trial)
    }

    /// Takes something newer. A document that is in force and good needs no trial: nothing would be changed.
    pub fn accept(&mut self, accepted: Accepted, terms: Terms, now: Time) {
        let is_in_force = self.good.is_some_and(|good| good.document == accepted.document);
        (self.accepted, self.terms) = (Some(accepted), Some(terms));
        self.since = now;
        if is_in_force {
            (self.stage, self.good) = (Stage::Good, Some(accepted));
        } else {
            self.stage = Stage::Trial;
        }
    }

    /// The trial of something has ended. Only the first end counts, and only of what was accepted last.
    pub fn end(&mut self, tried: &Accepted, ended: Ended, now: Time) {
        if self.to_try() != Some(tried) {
            return;
        }
        self.since = now;
        self.stage = match ended {
            Ended::Good => {
                self.good = Some(*tried);
                Stage::Good
            }
            Ended::RolledBack { why } => Stage::RolledBack { why },
            Ended::Refused { why } => Stage::Refused { why },
        };
    }

    /// What the node publishes; nothing before it was offered anything.
    #[must_use]
    pub fn status(&self, offer: &Offer, since: Time, level: &Level) -> Option<Status> {
        let (about, phase, why, since) = match offer {
            Offer::Waits { offered, phase, why } => (*offered, *phase, why.clone(), since),
            Offer::Current | Offer::Ignored { .. } => {
                let (phase, mut why) = match &self.stage {
                    Stage::Trial => (NodePhase::Trial, String::new()),
                    Stage::Good => (NodePhase::Good, String::new()),
                    Stage::RolledBack { why } => (NodePhase::RolledBack, why.clone()),
                    Stage::Refused { why } => (NodePhase::Refused, why.clone()),
                };
                if let Offer::Ignored { why: ignored } = offer {
                    why.clone_from(ignored);
                }
                (self.accepted?, phase, why, self.since)
            }
        };
        Some(Status {
            generation: about.generation,
            take: about.take,
            document: about.document,
            phase,
            why,
            converged: level.converged,
            since,
            open: level.open,
            accepted: self.accepted.map_or(0, |accepted| accepted.generation),
            agent: level.agent.clone(),
            boot: level.boot.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Digest;
    use crate::records::Take;

    fn accepted(generation: u64, document: &str) -> Accepted {
        Accepted { generation, take: Take::Document, document: Digest::of(document.as_bytes()) }
    }

    fn terms() -> Terms {
        let [settle, confirm_within] = ["10s", "1m"].map(|text| text.parse().unwrap());
        Terms { settle, confirm_within, class: Class::Reversible, accept: Vec::new() }
    }

    fn at(millis: u64) -> Time {
        Time::of_millis(millis)
    }

    #[test]
    fn what_was_rolled_back_is_never_to_be_tried_again() {
        let mut progress = Progress::default();
        progress.accept(accepted(1, "one"), terms(), at(1));
        assert_eq!(progress.to_try(), Some(&accepted(1, "one")));
        progress.end(&accepted(1, "one"), Ended::Good, at(2));
        progress.accept(accepted(2, "two"), terms(), at(3));
        let why = "cut off".to_owned();
        progress.end(&accepted(2, "two"), Ended::RolledBack { why: why.clone() }, at(4));
        // The end of a trial may be noticed twice, as after a kill.
        progress.end(&accepted(2, "two"), Ended::Good, at(5));
        assert_eq!(progress.to_try(), None);
        assert_eq!(progress.good, Some(accepted(1, "one")));
        assert_eq!(progress.stage, Stage::RolledBack { why });
        let read = Progress::read(&progress.write()).unwrap();
        assert_eq!(read, progress);
    }

    #[test]
    fn the_document_in_force_needs_no_trial() {
        let mut progress = Progress::default();
        progress.accept(accepted(1, "one"), terms(), at(1));
        progress.end(&accepted(1, "one"), Ended::Good, at(2));
        progress.accept(accepted(2, "one"), terms(), at(3));
        assert_eq!((progress.to_try(), progress.good), (None, Some(accepted(2, "one"))));
        // One that was rolled back is not in force.
        progress.accept(accepted(3, "two"), terms(), at(4));
        progress.end(&accepted(3, "two"), Ended::RolledBack { why: String::new() }, at(5));
        progress.accept(accepted(4, "two"), terms(), at(6));
        assert_eq!(progress.to_try(), Some(&accepted(4, "two")));
    }

    #[test]
    fn a_status_is_about_what_is_offered_unless_that_is_older() {
        let mut progress = Progress::default();
        let level = Level { converged: true, ..Level::default() };
        assert_eq!(progress.status(&Offer::Current, at(9), &level), None);
        progress.accept(accepted(5, "five"), terms(), at(1));
        progress.end(&accepted(5, "five"), Ended::Good, at(2));
        let status = progress.status(&Offer::Current, at(9), &level).unwrap();
        assert_eq!((status.generation, status.phase, status.since), (5, NodePhase::Good, at(2)));
        let why = "generation 4 is older".to_owned();
        let status = progress.status(&Offer::Ignored { why: why.clone() }, at(9), &level).unwrap();
        assert_eq!((status.generation, status.phase, status.why), (5, NodePhase::Good, why));
        let (offered, why) = (accepted(6, "six"), "forged".to_owned());
        let offer = Offer::Waits { offered, phase: NodePhase::Refused, why };
        let status = progress.status(&offer, at(9), &level).unwrap();
        let seen = (status.generation, status.phase, status.accepted, status.since);
        assert_eq!(seen, (6, NodePhase::Refused, 5, at(9)));
    }
}
