//! `[settings]`: whose document this is, and how each source is run.

use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::fields::{Fields, Record};
use crate::name::{DEFAULT_OWNER, OwnerName};
use crate::node::{Node, Value};
use crate::number::Number;
use crate::orders::OrderSettings;
use crate::record;
use crate::shape::{Definitions, Shape, ValueError, check};
use crate::span::Spanned;
use crate::time::{Percent, Period};
use crate::words;

/// All optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whose desired state this is.
    pub owner: Option<Spanned<OwnerName>>,
    /// The owner's mark in the kernel.
    pub protocol: Option<Spanned<Protocol>>,
    /// What a daemon does with what it owns when it ends.
    pub on_stop: Option<Spanned<OnStop>>,
    /// Every change of the document is a trial that must be confirmed within this time.
    pub confirm_within: Option<Spanned<Period>>,
    /// What only a signed order may do.
    pub orders: OrderSettings,
    /// By the source's name.
    sources: Vec<(&'static str, SourceSettings)>,
}

/// How one source is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceSettings {
    /// Time between two looks at everything.
    pub resync: Option<Spanned<Period>>,
    /// Least time between two passes.
    pub min_interval: Option<Spanned<Period>>,
    /// Quiet period for new desired states and lost hints, before the full pass that follows from them.
    pub debounce: Option<Spanned<Period>>,
    /// The longest time that the quiet period may take; ten seconds if it is not written.
    pub max_wait: Option<Spanned<Period>>,
    /// Largest share of the owned objects that one pass may delete.
    pub delete_budget: Option<Spanned<Percent>>,
    /// Whether drift is healed.
    pub mode: Option<Spanned<Mode>>,
}

/// The mark that the kernel stores with each object of ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// By number.
    Number(u8),
    /// By the name that the machine's `rt_protos` gives it.
    Name(String),
}

words! {
    /// What a daemon does with the owned objects when it ends.
    OnStop, "a way to end":
    /// They stay, and stay owned.
    Leave = "leave",
    /// They stay, without an owner.
    Release = "release",
    /// They are removed, and original values restored.
    Revert = "revert",
}

words! {
    /// What a source does about drift.
    Mode, "a mode":
    /// Undo it.
    Heal = "heal",
    /// Report it, write nothing.
    Observe = "observe",
}

/// How long a trial may last.
pub const TRIAL: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(24);

/// A trial that is shorter than this is over before a new session can be opened.
pub const SHORT_TRIAL: Duration = Duration::from_secs(15);

/// The mark of the default owner.
pub const DEFAULT_PROTOCOL: u8 = 76;

/// Names that every machine gives to numbers that are not ours to use.
const TAKEN_NAMES: &str = "unspec redirect kernel boot static gated ra mrt zebra bird dnrouted xorp ntk dhcp mrouted \
    keepalived babel openr bgp isis ospf rip eigrp";
const TAKEN: &str = "taken by the kernel and by routing daemons: 0-4, 8-18, 42, 80, 99, 186-198";

impl Record for Settings {
    const NAME: &'static str = "settings";
    const DOC: &'static str = "Whose document this is, and how each source is run";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let settings = Self {
            owner: fields
                .optional("owner", "Whose desired state this document is; `default` if left out"),
            protocol: fields.optional("protocol", "The owner's mark in the kernel; 76 if left out"),
            on_stop: fields.optional("on-stop", "What a daemon does when it ends"),
            confirm_within: fields.optional(
                "confirm-within",
                "Make every change of the document a trial that must be confirmed within this time",
            ),
            orders: OrderSettings::read(fields),
            sources: (fields.sources().iter())
                .filter_map(|one| {
                    Some((one.source, fields.optional(one.source, "How this source is run")?))
                })
                .collect(),
        };
        settings.check_owner(fields);
        if let Some(within) = &settings.confirm_within
            && !TRIAL.contains(&within.get())
        {
            let message = "a trial cannot last that long or that short".to_owned();
            let help = "give a time from 1s to 24h; two minutes are a good start";
            fields.report(Diagnostic::new(within.span, message).help(help));
        }
        Some(settings)
    }
}

impl Settings {
    /// How a source is run.
    #[must_use]
    pub fn source(&self, name: &str) -> SourceSettings {
        let found = self.sources.iter().find(|(source, _)| *source == name);
        found.map_or_else(SourceSettings::default, |(_, settings)| *settings)
    }

    /// What is possible and is probably not meant.
    #[must_use]
    pub fn warnings(&self) -> Vec<Diagnostic> {
        let short = self.confirm_within.iter().filter(|within| within.get() < SHORT_TRIAL);
        let warning = |within: &Spanned<Period>| {
            let message = "this is little time to open a new session and confirm".to_owned();
            let help = "two minutes are a good start; below 15s a person is hardly quick enough";
            Diagnostic::new(within.span, message).help(help)
        };
        short.map(warning).collect()
    }

    /// Owner and mark are one identity: two owners with one mark would delete each other's objects.
    fn check_owner(&self, fields: &mut Fields<'_>) {
        let Some(owner) = self.owner.as_ref().filter(|owner| owner.as_str() != DEFAULT_OWNER)
        else {
            return;
        };
        let shared = self.protocol.as_ref().map(|protocol| &protocol.value);
        let help = "add `protocol = 77`, or another free number that only this owner uses";
        // Without one the caller may give it.
        if shared == Some(&Protocol::Number(DEFAULT_PROTOCOL)) {
            let message = format!("protocol {DEFAULT_PROTOCOL} belongs to the owner `default`");
            let at = fields.at("protocol");
            fields.report(
                Diagnostic::new(at, message).also(owner.span, "the owner is here").help(help),
            );
        }
    }
}

impl Record for SourceSettings {
    const NAME: &'static str = "source-settings";
    const DOC: &'static str = "How one source is run";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let settings = Self {
            resync: fields.optional("resync", "Time between two looks at everything"),
            min_interval: fields.optional("min-interval", "Least time between two passes"),
            debounce: fields.optional(
                "debounce",
                "Quiet period for new desired states and lost hints before a full pass",
            ),
            max_wait: fields.optional("max-wait", "Longest time that `debounce` may wait"),
            delete_budget: fields.optional(
                "delete-budget",
                "Largest share of the owned objects that one pass may delete",
            ),
            mode: fields.optional("mode", "Whether drift is healed or only reported"),
        };
        if let Some(resync) = settings.resync.filter(|resync| resync.get().is_zero()) {
            let zero = Diagnostic::new(resync.span, "`resync` cannot be zero");
            fields.report(zero.help("looking again is what finds lost events; write \"30s\""));
        }
        settings.check_debounce(fields);
        Some(settings)
    }
}

impl SourceSettings {
    const MAX_WAIT: Duration = Duration::from_secs(10);
    const LONGEST_WAIT: Duration = Duration::from_hours(1);

    /// The quiet period and its bound, where one is asked for.
    #[must_use]
    pub fn debounce(&self) -> Option<(Duration, Duration)> {
        let quiet = self.debounce?.get();
        let max_wait = self.max_wait.map_or(Self::MAX_WAIT.max(quiet), |wait| wait.get());
        (!quiet.is_zero()).then_some((quiet, max_wait))
    }

    fn check_debounce(&self, fields: &mut Fields<'_>) {
        let Some(((quiet, max_wait), debounce)) = self.debounce().zip(self.debounce) else {
            return;
        };
        let at = self.max_wait.map_or(debounce.span, |wait| wait.span);
        if max_wait < quiet {
            let short = Diagnostic::new(at, "`max-wait` is shorter than `debounce`");
            fields.report(short.help("the quiet period could never be waited out: make it longer"));
        } else if max_wait > Self::LONGEST_WAIT {
            let long = Diagnostic::new(at, "changes would wait for more than an hour");
            fields.report(long.help("write a shorter `debounce` or `max-wait`, at most \"1h\""));
        }
    }
}

record!(Settings, SourceSettings);

impl Shape for Protocol {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        let what = "a protocol: a number from 1 to 255, or a name";
        let protocol = match &node.value {
            Value::Int(_) => {
                let number = Number { what: "a protocol", least: 1, most: 255 };
                Self::Number(number.read(node, checker)?)
            }
            Value::Text(text) => Self::Name(text.clone()),
            _ => {
                checker.expected(what, node, None);
                return None;
            }
        };
        check(protocol.check(), node, checker)
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "description": format!("a number or a name; {TAKEN}"),
            "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 255 }, { "type": "string" }] })
    }
}

impl FromStr for Protocol {
    type Err = ValueError;

    /// As on a command line, where a number is text, too.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let protocol = match text.parse() {
            Ok(number) => Self::Number(number),
            Err(_) if is_number => {
                return Err(ValueError::is_not(text, "a protocol").help("write 1 to 255"));
            }
            Err(_) => Self::Name(text.to_owned()),
        };
        protocol.check()
    }
}

impl Protocol {
    fn check(self) -> Result<Self, ValueError> {
        match &self {
            Self::Number(0..=4 | 8..=18 | 42 | 80 | 99 | 186..=198) => self.taken(),
            Self::Name(name) if TAKEN_NAMES.split_whitespace().any(|taken| taken == name) => {
                self.taken()
            }
            Self::Name(name) if !is_word(name) => {
                Err(ValueError::is_not(name, "a protocol's name").help("write its number"))
            }
            Self::Number(_) | Self::Name(_) => Ok(self),
        }
    }

    fn taken(self) -> Result<Self, ValueError> {
        let what = match self {
            Self::Number(number) => number.to_string(),
            Self::Name(name) => name,
        };
        Err(ValueError::new(format!("protocol `{what}` is not free")).help(TAKEN))
    }
}

fn is_word(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.len() <= 32
        && text.chars().all(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_on_the_command_line_is_a_free_number_or_a_name() {
        assert_eq!("77".parse(), Ok(Protocol::Number(77)));
        assert_eq!("lab".parse(), Ok(Protocol::Name("lab".to_owned())));
        for text in ["", "0", "4", "256", "99999", "-1", "bird", "a b"] {
            assert!(text.parse::<Protocol>().is_err(), "{text}");
        }
    }
}
