//! One line for people: a change, or what was found beside the changes.

use anstyle::{AnsiColor, Style};
use homeostat_engine::{Action, Entry, Failure, Finding, LedgerKey, Line, Reason};
use serde_json::{Map, Value};

pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const BOLD: Style = Style::new().bold();
pub(super) const RED: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));
const GREEN: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
const YELLOW: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow)));

/// A line in three parts, so that the last one stands in a column.
pub(super) struct Row {
    sign: String,
    key: String,
    rest: String,
}

impl Row {
    fn new(sign: impl Into<String>, key: &str, rest: impl Into<String>) -> Self {
        Row { sign: sign.into(), key: plain(key), rest: rest.into() }
    }

    /// How wide the key is.
    pub(super) fn width(&self) -> usize {
        self.key.chars().count()
    }

    /// The line, with the last part behind a column that is this wide.
    pub(super) fn draw(&self, width: usize) -> String {
        let Row { sign, key, rest } = self;
        if rest.is_empty() {
            format!("{sign} {key}")
        } else {
            format!("{sign} {key:width$}  {rest}")
        }
    }
}

/// A change with its sign.
pub(super) fn change(line: &Line) -> Row {
    let style = match line.action {
        Action::Create => GREEN,
        Action::Update | Action::Replace => YELLOW,
        Action::Delete => RED,
    };
    let sign = format!("{style}{}{style:#}", line.action.sign());
    let note = line.note.as_ref().map(|note| format!("{DIM}({note}){DIM:#}"));
    let values = values(line).filter(|values| !values.is_empty());
    let rest: Vec<_> = values.into_iter().chain(note).collect();
    Row::new(sign, &line.key, rest.join("  "))
}

/// What a change turns into what.
pub(crate) fn values(line: &Line) -> Option<String> {
    match (&line.before, &line.after) {
        (Some(before), Some(after)) if rule(before).or(rule(after)).is_some() => {
            Some(format!("{} -> {}", value(before), value(after)))
        }
        (Some(Value::Object(before)), Some(Value::Object(after))) => Some(fields(before, after)),
        (Some(before), Some(after)) => Some(format!("{} -> {}", value(before), value(after))),
        (Some(one), None) | (None, Some(one)) => Some(value(one)),
        (None, None) => None,
    }
}

/// The declared fields that differ; what is not declared is nobody's business.
fn fields(before: &Map<String, Value>, after: &Map<String, Value>) -> String {
    let changed = after.iter().filter(|(name, now)| before.get(*name) != Some(now));
    let changed = changed.map(|(name, now)| match before.get(name) {
        Some(was) => format!("{name} {} -> {}", value(was), value(now)),
        None => format!("{name} {}", value(now)),
    });
    changed.collect::<Vec<_>>().join(", ")
}

/// A value as a person would write it: bare text, and the fields of an object.
fn value(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => plain(&text.replace('\n', "; ")),
        Value::Object(fields) => {
            rule(value).map(plain).or_else(|| elements(value)).unwrap_or_else(|| {
                let fields =
                    fields.iter().map(|(name, field)| format!("{name} {}", self::value(field)));
                fields.collect::<Vec<_>>().join(" ")
            })
        }
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(self::value).collect();
            format!("[{}]", all.join(", "))
        }
        other => other.to_string(),
    }
}

/// Of a rule that is told in two ways, the one for people.
fn rule(value: &Value) -> Option<&str> {
    value.get("normalized").and_then(|_| value["rule"].as_str())
}

/// Elements of a set that come and go: how many, and the first of them.
fn elements(value: &Value) -> Option<String> {
    let count = |name| value.get(name).and_then(Value::as_u64);
    let (added, removed) = (count("elements added")?, count("elements removed")?);
    let samples: Vec<_> = value["samples"].as_array()?.iter().map(self::value).collect();
    let counts = [("+", added), ("-", removed)].into_iter().filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts.map(|(sign, count)| format!("{sign}{count}")).collect();
    let more = if added + removed > samples.len() as u64 { ", ..." } else { "" };
    Some(format!("elements {}: {}{more}", counts.join(" "), samples.join(", ")))
}

/// Anything that a report of this source says.
pub(super) fn finding(ledger_key: &LedgerKey, entry: &Entry) -> Row {
    let bang = format!("{RED}!{RED:#}");
    let (key, finding) = match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => return change(line),
        Entry::Finding { key, finding } => (key, finding),
    };
    match finding {
        // The source as a whole, not a key of it.
        Finding::Failed { failure, .. } | Finding::NotShown { failure, .. }
            if *key == ledger_key.source =>
        {
            let key = format!("{}: {}", plain(key), failed(failure));
            Row { sign: bang, key, rest: String::new() }
        }
        Finding::Failed { failure, .. } | Finding::NotShown { failure, .. } => {
            Row::new(bang, key, failed(failure))
        }
        Finding::Conflict { owner, reason } => {
            let help = reason.help().map(|help| format!("; {help}")).unwrap_or_default();
            Row::new(
                bang,
                key,
                match reason {
                    Reason::Foreign => format!("belongs to {owner}{help}"),
                    other => format!("{other}{help}"),
                },
            )
        }
        Finding::Held { action, why } => {
            let key = format!("{} {key}", action.word());
            Row::new(format!("{YELLOW}!{YELLOW:#}"), &key, plain(why))
        }
        Finding::Unknown { why } => Row::new("?", key, plain(why)),
        Finding::Pending { on } => Row::new(".", key, plain(&format!("waits on {on}"))),
        Finding::Settled { wanted, held } => {
            Row::new("=", key, format!("{} is kept as {}", value(wanted), value(held)))
        }
        Finding::Matched { owner } => Row::new("=", key, format!("({owner})")),
    }
}

fn failed(failure: &Failure) -> String {
    let help = failure.help.as_ref().map(|help| format!("\n        help: {}", plain(help)));
    format!("{}{}", plain(&failure.error), help.unwrap_or_default())
}

/// Text of others without what a terminal would obey: control characters and those that turn the
/// direction of writing are shown as their numbers.
pub(crate) fn plain(text: &str) -> String {
    let turns = |c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_shown_as_its_author_wrote_it() {
        let rule = |rule: &str| {
            let normalized = format!("{rule} # handle");
            Some(serde_json::json!({ "rule": rule, "normalized": normalized, "place": "a:1" }))
        };
        let (action, key, note) = (Action::Update, String::new(), None);
        let line = Line { action, key, before: rule("drop"), after: rule("iif $wan accept"), note };
        assert_eq!(values(&line).as_deref(), Some("drop -> iif $wan accept"));
        let line = Line { before: None, ..line };
        assert_eq!(values(&line).as_deref(), Some("iif $wan accept"));
    }

    #[test]
    fn elements_are_counted_with_samples() {
        let shown = |added: u64, removed: u64, samples: &[&str]| {
            let told = serde_json::json!({
                "elements added": added, "elements removed": removed, "samples": samples
            });
            value(&told)
        };
        assert_eq!(
            shown(1, 1, &["- 1.1.1.1", "+ 2.2.2.2"]),
            "elements +1 -1: - 1.1.1.1, + 2.2.2.2"
        );
        assert_eq!(shown(9, 0, &["+ 1.1.1.1"]), "elements +9: + 1.1.1.1, ...");
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_its_number() {
        assert_eq!(plain("1\u{1b}[31m\u{7}\nb\u{202e}"), "1\\u{1b}[31m\\u{7}\\u{a}b\\u{202e}");
        assert_eq!(plain("grün 4096 -> 8"), "grün 4096 -> 8");
    }
}
