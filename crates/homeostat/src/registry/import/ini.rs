//! Files of systemd: sections with assignments, in which sections and names may come again.

use anyhow::Result;

use super::Foreign;
use crate::failure::helped;

/// One section, in the order of writing.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) entries: Vec<Entry>,
}

/// `Name=Value`
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) line: usize,
}

impl Section {
    /// The last value of a name: what counts where a name has one value.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.entries.iter().rev();
        all.find(|entry| entry.name == name).map(|entry| entry.value.as_str())
    }
}

/// All sections of a file.
pub(super) fn parse(file: &Foreign) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    let wrong = |line: usize, text: &str| {
        helped(
            format!("{}:{line}:1: `{text}` is neither a section nor an assignment", file.name()),
            "a file of systemd has lines such as `[Network]` and `Address=192.0.2.1/24`",
        )
    };
    for (line, text) in joined(&file.text) {
        let text = text.trim();
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push(Section { name: name.to_owned(), line, entries: Vec::new() });
            continue;
        }
        let (Some((name, value)), Some(section)) = (text.split_once('='), sections.last_mut())
        else {
            return Err(wrong(line, text));
        };
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        if value.is_empty() {
            // As systemd has it: what was said before is taken back.
            section.entries.retain(|entry| entry.name != name);
            continue;
        }
        section.entries.push(Entry { name, value, line });
    }
    Ok(sections)
}

/// Lines with their numbers; one that ends in a backslash goes on in the next one.
pub(super) fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let (part, more) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, whole)) => whole.extend([" ", part.trim()]),
            None => lines.push((index + 1, part.to_owned())),
        }
        goes_on = more;
    }
    lines
}
