//! How everything stands, in one sentence for people: the first line of the page, and its title. Pure.

use serde::Serialize;

use crate::way_out::Invocation;
use crate::wire::{ConfirmBy, LoopStatus, Overview, TrialStatus};

/// How everything stands: the first of these that is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Standing {
    /// A loop is stuck.
    Stalled,
    /// A trial is being undone.
    RollingBack,
    /// A trial waits for its confirmation.
    Trial,
    /// A loop has not looked at everything yet.
    Starting,
    /// A loop was told to do nothing.
    Paused,
    /// Something is not as declared, or cannot be done.
    Attention,
    Converged,
}

impl Standing {
    /// A sign beside the word, so that no state is told by its colour alone.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Standing::Stalled => "\u{25a0}",
            Standing::RollingBack => "\u{21ba}",
            Standing::Trial => "\u{25f7}",
            Standing::Starting => "\u{2026}",
            Standing::Paused => "\u{2016}",
            Standing::Attention => "\u{25b2}",
            Standing::Converged => "\u{2713}",
        }
    }

    /// The name of its style.
    pub(super) fn class(self) -> &'static str {
        match self {
            Standing::Stalled | Standing::RollingBack => "bad",
            Standing::Trial | Standing::Attention => "warn",
            Standing::Starting | Standing::Paused => "idle",
            Standing::Converged => "good",
        }
    }
}

/// The first line of the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Headline {
    pub(super) standing: Standing,
    pub(super) sign: &'static str,
    pub(super) class: &'static str,
    /// In a few words.
    pub(super) text: String,
    /// What it means, or what to do.
    pub(super) detail: String,
    /// The command to type, if there is one.
    pub(super) command: Option<String>,
    /// How long the open trial still waits.
    pub(super) left_ms: Option<u64>,
    /// How many things need somebody.
    pub(super) needs: usize,
}

impl Headline {
    pub(super) fn of(overview: &Overview, is_healthy: bool, invocation: &Invocation) -> Self {
        let needs = needs(overview);
        let standing = standing(overview, is_healthy, needs);
        let trial = overview.trial.as_ref();
        let (text, detail, command) = match (standing, trial) {
            (Standing::Trial, Some(trial)) => trial_words(trial, needs, invocation),
            (Standing::RollingBack, Some(trial)) => {
                let why = trial.rolls_back.clone().unwrap_or_default();
                let to = returns_to(trial);
                (format!("trial {} is being rolled back to {to}", trial.id), why, None)
            }
            (Standing::Stalled, _) => {
                let stalled = overview.loops.iter().filter(|one| one.stall.is_some());
                let names: Vec<String> = stalled.map(named).collect();
                let detail = "A pass runs too long, or work waits too long. The log has more.";
                (format!("stalled: {}", names.join(", ")), detail.to_owned(), None)
            }
            (Standing::Paused, _) => {
                let paused = overview.loops.iter().filter(|one| one.paused).count();
                let all = overview.loops.len();
                let detail = format!(
                    "{paused} of {all} loops do nothing, so what others change stays changed.{}",
                    and_needs(needs)
                );
                ("paused".to_owned(), detail, Some(invocation.command(&["resume"])))
            }
            (Standing::Attention, _) => {
                let text = if needs == 1 {
                    "1 thing needs you"
                } else {
                    &format!("{needs} things need you")
                };
                let detail = "Everything else is as declared, and is kept so.";
                (text.to_owned(), detail.to_owned(), None)
            }
            (Standing::Converged, _) => {
                let detail = "Everything is as declared, and is kept so.";
                ("converged".to_owned(), detail.to_owned(), None)
            }
            (Standing::Starting | Standing::Trial | Standing::RollingBack, _) => {
                let detail = "Not every loop has looked at everything yet.";
                ("starting".to_owned(), detail.to_owned(), None)
            }
        };
        let left_ms = trial.filter(|_| standing == Standing::Trial).map(|trial| trial.left_ms);
        let (sign, class) = (standing.sign(), standing.class());
        Headline { standing, sign, class, text, detail, command, left_ms, needs }
    }
}

fn standing(overview: &Overview, is_healthy: bool, needs: usize) -> Standing {
    match &overview.trial {
        _ if !is_healthy => Standing::Stalled,
        Some(trial) if trial.rolls_back.is_some() => Standing::RollingBack,
        Some(_) => Standing::Trial,
        None if !overview.ready => Standing::Starting,
        None if overview.loops.iter().any(|one| one.paused) => Standing::Paused,
        None if needs > 0 => Standing::Attention,
        None if overview.converged => Standing::Converged,
        // Between a new document and the passes for it.
        None => Standing::Starting,
    }
}

fn trial_words(
    trial: &TrialStatus,
    needs: usize,
    invocation: &Invocation,
) -> (String, String, Option<String>) {
    let text = format!("trial {}, {} left", trial.id, clock(trial.left_ms));
    let (by, to) = (&trial.by, returns_to(trial));
    let wait = match trial.confirm_by {
        ConfirmBy::Person => "Confirm it from a new login session",
        ConfirmBy::Checks => "Its checks confirm it",
        ConfirmBy::Passes => "It is confirmed once everything is as declared",
        ConfirmBy::Node => "This node confirms it by itself",
    };
    let detail = format!("Begun by {by}. {wait}, else it returns to {to}.{}", and_needs(needs));
    let is_person = trial.confirm_by == ConfirmBy::Person;
    (text, detail, is_person.then(|| invocation.command(&["confirm"])))
}

fn returns_to(trial: &TrialStatus) -> String {
    match trial.returns_to {
        Some(number) => format!("the confirmed document {number}"),
        None => "nothing declared".to_owned(),
    }
}

fn and_needs(needs: usize) -> String {
    match needs {
        0 => String::new(),
        1 => " 1 thing needs you.".to_owned(),
        more => format!(" {more} things need you."),
    }
}

/// How many things somebody has to look at.
fn needs(overview: &Overview) -> usize {
    let open: usize = overview.loops.iter().map(open).sum();
    let loops = overview.loops.iter();
    let others = loops.map(|one| {
        let is_failing = one.last_error.is_some();
        one.contended.len() + one.not_converging.len() + usize::from(is_failing)
    });
    let is_refused = overview.provider.as_ref().is_some_and(|provider| !provider.ok);
    open + others.sum::<usize>() + usize::from(is_refused) + usize::from(overview.tried_before)
}

/// How many keys of a loop are open.
pub(super) fn open(one: &LoopStatus) -> usize {
    homeostat_engine::Kind::open().map(|kind| one.open.count(kind)).sum()
}

fn named(one: &LoopStatus) -> String {
    format!("{} in {}", one.source, one.scope)
}

/// Minutes and seconds.
pub(super) fn clock(millis: u64) -> String {
    let seconds = millis.div_ceil(1000);
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use homeostat_engine::{Kind, OpenCounts};

    use super::*;
    use crate::wire::Contended;

    fn overview(change: impl FnOnce(&mut Overview)) -> Overview {
        let one = LoopStatus {
            source: "rtnl".to_owned(),
            scope: "host".to_owned(),
            ready: true,
            converged: true,
            ..LoopStatus::default()
        };
        let mut overview = Overview {
            format_version: "1.0".to_owned(),
            converged: true,
            ready: true,
            handed: false,
            handed_number: None,
            fallback: None,
            tried_before: false,
            trial: None,
            last_trial: None,
            provider: None,
            loops: vec![one],
            open_keys: Vec::new(),
            pieces: Vec::new(),
            checks: Vec::new(),
        };
        change(&mut overview);
        overview
    }

    fn trial() -> TrialStatus {
        TrialStatus {
            id: 7,
            by: "root".to_owned(),
            from: Vec::new(),
            began_at: String::new(),
            left_ms: 40_200,
            returns_to: Some(3),
            edit_waits: false,
            rolls_back: None,
            confirm_by: ConfirmBy::Person,
            checks: Vec::new(),
        }
    }

    #[test]
    fn each_state_has_its_words_its_sign_and_its_command() {
        let check = |overview: Overview, is_healthy, expected: (Standing, &str, Option<&str>)| {
            let headline = Headline::of(&overview, is_healthy, &Invocation::default());
            let found = (headline.standing, &*headline.text, headline.command.as_deref());
            assert_eq!(found, expected);
        };
        let open = |kinds: &[Kind]| OpenCounts::of(kinds.iter().copied());
        check(overview(|_| {}), true, (Standing::Converged, "converged", None));
        let one = overview(|it| it.loops[0].open = open(&[Kind::Conflict]));
        check(one, true, (Standing::Attention, "1 thing needs you", None));
        let two = overview(|it| {
            it.loops[0].open = open(&[Kind::Pending]);
            let (key, culprit) = ("route ::/0".to_owned(), "bird".to_owned());
            it.loops[0].contended.push(Contended { key, culprit, pause_ms: 1 });
        });
        check(two, true, (Standing::Attention, "2 things need you", None));
        let starting = overview(|it| (it.ready, it.converged) = (false, false));
        check(starting, true, (Standing::Starting, "starting", None));
        let paused = overview(|it| it.loops[0].paused = true);
        check(paused, true, (Standing::Paused, "paused", Some("homeostat resume")));
        let stalled = overview(|it| it.loops[0].stall = Some("a pass runs".to_owned()));
        check(stalled, false, (Standing::Stalled, "stalled: rtnl in host", None));
        let tried = overview(|it| it.trial = Some(trial()));
        check(tried, true, (Standing::Trial, "trial 7, 0:41 left", Some("homeostat confirm")));
        let back = overview(|it| {
            let why = Some("nobody confirmed it in time".to_owned());
            it.trial = Some(TrialStatus { rolls_back: why, ..trial() });
        });
        let words = "trial 7 is being rolled back to the confirmed document 3";
        check(back, true, (Standing::RollingBack, words, None));
    }

    #[test]
    fn a_countdown_reads_as_a_clock_does() {
        for (millis, expected) in
            [(0, "0:00"), (1, "0:01"), (59_999, "1:00"), (61_000, "1:01"), (3_661_000, "1:01:01")]
        {
            assert_eq!(clock(millis), expected);
        }
    }
}
