//! How a file changes, for people: its attributes in a line, its content as lines with a sign in front.

use std::fmt::Write as _;

use serde_json::Value as Json;
use similar::TextDiff;

/// So many lines around each change are shown.
const CONTEXT: usize = 3;
/// Of a long difference this much is shown.
const MOST_LINES: usize = 200;
/// Beyond this many bytes a comparison takes too long for people who wait for it.
const MOST_BYTES: usize = 1 << 20;

/// The lines that differ, with some around them; nothing, if the contents are the same.
pub(crate) fn text(before: &[u8], after: &[u8]) -> Option<String> {
    if before == after {
        return None;
    }
    let (Ok(old), Ok(new)) = (str::from_utf8(before), str::from_utf8(after)) else {
        return Some(format!("{} bytes -> {} bytes, not text", before.len(), after.len()));
    };
    if old.len() + new.len() > MOST_BYTES {
        let count = |text: &str| text.lines().count();
        return Some(format!("{} lines -> {} lines", count(old), count(new)));
    }
    let differences = TextDiff::from_lines(old, new);
    let unified = differences.unified_diff().context_radius(CONTEXT).to_string();
    let lines: Vec<&str> = unified.lines().collect();
    let mut shown = lines.iter().take(MOST_LINES).copied().collect::<Vec<_>>().join("\n");
    if lines.len() > MOST_LINES {
        // Writing to a string cannot fail.
        let _ = write!(shown, "\n... {} more lines", lines.len() - MOST_LINES);
    }
    Some(shown)
}

/// The attributes that change. The digest says no more than the lines do.
pub(crate) fn attributes(before: Option<&Json>, after: Option<&Json>) -> Option<String> {
    let field = |object: Option<&Json>, name| {
        object.and_then(|object| object.get(name)).and_then(Json::as_str).map(str::to_owned)
    };
    let changed = ["owner", "group", "mode"].into_iter().filter_map(|name| {
        match (field(before, name), field(after, name)) {
            (Some(was), Some(is)) if was != is => Some(format!("{name} {was} -> {is}")),
            (None, Some(is)) => Some(format!("{name} {is}")),
            _ => None,
        }
    });
    let changed: Vec<String> = changed.collect();
    let kind = before.and_then(Json::as_str).map(|kind| format!("in place of {kind}"));
    let all: Vec<String> = kind.into_iter().chain(changed).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown_with_its_surroundings() {
        let old = (1..=20).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n") + "\n";
        let new = old.replace("line 10\n", "line ten\n");
        let expected = "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n line 11\n \
            line 12\n line 13";
        assert_eq!(text(old.as_bytes(), new.as_bytes()).as_deref(), Some(expected));
        assert_eq!(text(b"a\n", b"a\n"), None);
    }

    #[test]
    fn what_is_no_text_and_what_is_long_is_not_spread_out() {
        assert_eq!(text(b"\xff", b"").as_deref(), Some("1 bytes -> 0 bytes, not text"));
        let long = "x\n".repeat(1000);
        let shown = text(b"", long.as_bytes()).unwrap();
        assert!(shown.ends_with("\n... 801 more lines"), "{shown}");
    }
}
