//! One line for people: a change, or what was found beside the changes.

use anstyle::{AnsiColor, Style};
use homeostat_engine::{Action, Entry, Failure, Finding, Line, PassTrouble, Reason};
use serde_json::{Map, Value};

use crate::context::ways_out;

pub(super) const DIM: Style = Style::new().dimmed();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const RED: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));
pub(crate) const GREEN: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
pub(crate) const YELLOW: Style =
    Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow)));

/// A line in three parts, so that the last one stands in a column, and what is shown below it.
pub(super) struct Row {
    sign: String,
    key: String,
    rest: String,
    below: String,
}

impl Row {
    fn new(sign: impl Into<String>, key: &str, rest: impl Into<String>) -> Self {
        Row { sign: sign.into(), key: plain(key), rest: rest.into(), below: String::new() }
    }

    /// How wide the key is.
    pub(super) fn width(&self) -> usize {
        self.key.chars().count()
    }

    /// The line, with the last part behind a column that is this wide.
    pub(super) fn draw(&self, width: usize) -> String {
        let Row { sign, key, rest, below } = self;
        if rest.is_empty() {
            format!("{sign} {key}{below}")
        } else {
            format!("{sign} {key:width$}  {rest}{below}")
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
    Row { below: below(line), ..Row::new(sign, &line.key, rest.join("  ")) }
}

/// How a text changes: the lines below the first one.
fn below(line: &Line) -> String {
    let lines = line.text.iter().flat_map(|text| text.split('\n').skip(1));
    let lines = lines.map(|line| {
        let style = match line.as_bytes().first() {
            Some(b'+') => GREEN,
            Some(b'-') => RED,
            Some(b'@') => DIM,
            _ => Style::new(),
        };
        format!("\n        {style}{}{style:#}", plain(&line.replace('\t', "    ")))
    });
    lines.collect()
}

/// What a change turns into what.
pub(crate) fn values(line: &Line) -> Option<String> {
    if let Some(text) = &line.text {
        return Some(plain(text.lines().next().unwrap_or_default()));
    }
    match (&line.before, &line.after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => Some(fields(before, after)),
        (Some(before), Some(after)) => Some(format!("{} -> {}", value(before), value(after))),
        (Some(one), None) | (None, Some(one)) => Some(value(one)),
        (None, None) => None,
    }
}

/// The declared fields that differ; what is not declared is left out.
fn fields(before: &Map<String, Value>, after: &Map<String, Value>) -> String {
    let changed = after.iter().filter(|(name, now)| before.get(*name) != Some(now));
    let changed = changed.map(|(name, now)| match before.get(name) {
        Some(was) => format!("{name} {} -> {}", value(was), value(now)),
        None => format!("{name} {}", value(now)),
    });
    changed.collect::<Vec<_>>().join(", ")
}

/// A value as a person would write it: bare text, and the fields of an object.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => plain(&text.replace('\n', "; ")),
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, field)| format!("{name} {}", self::value(field)));
            fields.collect::<Vec<_>>().join(" ")
        }
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(self::value).collect();
            format!("[{}]", all.join(", "))
        }
        other => other.to_string(),
    }
}

/// Anything that a report says.
pub(super) fn finding(entry: &Entry) -> Row {
    let bang = format!("{RED}!{RED:#}");
    let (key, finding) = match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => return change(line),
        Entry::Pass { about: PassTrouble::Source(name), failure } => {
            let key = format!("{}: {}", plain(name), failed(failure));
            return Row { sign: bang, key, rest: String::new(), below: String::new() };
        }
        Entry::Pass { about, failure } => return Row::new(bang, about.name(), failed(failure)),
        Entry::Finding { key, finding } => (key, finding),
        other => return Row::new(bang, other.key(), plain(&other.reason())),
    };
    match finding {
        Finding::Failed { failure, .. } | Finding::NotShown { failure, .. } => {
            Row::new(bang, key, failed(failure))
        }
        Finding::Conflict { owner, reason } => {
            let help =
                finding.help(&ways_out()).map(|help| format!("; {help}")).unwrap_or_default();
            Row::new(
                bang,
                key,
                match reason {
                    Reason::Foreign => format!("belongs to {owner}{help}"),
                    other => format!("{other}{help}"),
                },
            )
        }
        Finding::Held { action, why, .. } => {
            let key = format!("{} {key}", action.word());
            Row::new(format!("{YELLOW}!{YELLOW:#}"), &key, plain(why))
        }
        Finding::Unknown { why } => Row::new("?", key, plain(why)),
        Finding::Irreversible { why } => Row::new(format!("{YELLOW}!{YELLOW:#}"), key, plain(why)),
        Finding::Parked { action } => {
            Row::new(".", &format!("{} {key}", action.word()), String::new())
        }
        Finding::Pending { on } => {
            let help = finding.help(&ways_out());
            Row::new(".", key, helped(&format!("waits on {on}"), help.as_deref()))
        }
        Finding::Settled { wanted, held } => {
            Row::new("=", key, format!("{} is kept as {}", value(wanted), value(held)))
        }
        Finding::Matched { owner } => Row::new("=", key, format!("({owner})")),
        other => {
            let help = other.help(&ways_out());
            Row::new(bang, key, helped(&other.reason(), help.as_deref()))
        }
    }
}

fn failed(failure: &Failure) -> String {
    helped(&failure.error, failure.help.as_deref())
}

fn helped(text: &str, help: Option<&str>) -> String {
    let help = help.map(|help| format!("\n        help: {}", plain(help)));
    format!("{}{}", plain(text), help.unwrap_or_default())
}

/// Shows control characters, and those that change the direction of writing, as their numbers.
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
    fn the_words_of_the_source_are_preferred_to_a_list_of_fields() {
        let after = Some(serde_json::json!({ "rule": "drop", "place": "a:1" }));
        let text = Some("drop\u{7}".to_owned());
        let line = Line { after, text, ..Line::new(Action::Update, "") };
        assert_eq!(values(&line).as_deref(), Some("drop\\u{7}"));
        let line = Line { text: None, ..line };
        assert_eq!(values(&line).as_deref(), Some("rule drop place a:1"));
    }

    #[test]
    fn how_a_text_changes_is_shown_below_its_line() {
        let text = Some("mode 0644 -> 0600\n one\n-two\u{1b}\n+2".to_owned());
        let line = Line { text, ..Line::new(Action::Update, "file /etc/a") };
        let drawn = anstream::adapter::strip_str(&change(&line).draw(15)).to_string();
        let expected =
            "~ file /etc/a      mode 0644 -> 0600\n         one\n        -two\\u{1b}\n        +2";
        assert_eq!(drawn, expected);
        let line = Line { text: Some("\n+2".to_owned()), ..line };
        let drawn = anstream::adapter::strip_str(&change(&line).draw(15)).to_string();
        assert_eq!(drawn, "~ file /etc/a\n        +2");
    }

    #[test]
    fn control_characters_are_shown_as_numbers() {
        assert_eq!(plain("1\u{1b}[31m\u{7}\nb\u{202e}"), "1\\u{1b}[31m\\u{7}\\u{a}b\\u{202e}");
        assert_eq!(plain("grün 4096 -> 8"), "grün 4096 -> 8");
    }
}
