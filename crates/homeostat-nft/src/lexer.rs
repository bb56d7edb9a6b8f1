//! Words, signs, quotations and statements of a text in nft's language. Pure.

use std::ops::Range;

/// A word, a quotation, a comment, or one of the signs `{`, `}`, `;`, `,` and the end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: usize,
}

impl Token<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// All of them, in order. The end of a line that goes on is a blank.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..)?;
            let first = rest.chars().next()?;
            let (start, len) = (at, first.len_utf8());
            let len = match first {
                '\\' if rest.starts_with("\\\n") => {
                    at += 2;
                    continue;
                }
                '\n' | '{' | '}' | ';' | ',' => len,
                _ if first.is_whitespace() => {
                    at += len;
                    continue;
                }
                '"' => rest.get(len..)?.find('"').map_or(rest.len(), |end| end + 2),
                '#' => rest.find('\n').unwrap_or(rest.len()),
                _ => rest.get(len..)?.find(ends_word).map_or(rest.len(), |end| len + end),
            };
            at += len;
            return Some(Token { text: rest.get(..len)?, start });
        }
    })
}

fn ends_word(c: char) -> bool {
    matches!(c, '{' | '}' | ';' | ',' | '"' | '#' | '\\') || c.is_whitespace()
}

/// The same, without comments.
pub(crate) fn code(text: &str) -> impl Iterator<Item = Token<'_>> {
    tokens(text).filter(|token| !token.text.starts_with('#'))
}

/// Where a statement ends, beside `;`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// With the line, and with a block.
    WithBlock,
    /// With the line only: a rule goes on after a set.
    WithLine,
}

/// The statements of a part of a text, without blanks and comments around them.
pub(crate) fn statements(
    text: &str,
    part: Range<usize>,
    ends: Ends,
) -> impl Iterator<Item = Range<usize>> {
    let mut tokens = code(text.get(part.clone()).unwrap_or_default());
    std::iter::from_fn(move || {
        let (mut found, mut depth) = (None, 0_usize);
        for token in tokens.by_ref() {
            match token.text {
                ";" | "\n" if depth == 0 && found.is_some() => break,
                ";" if depth == 0 => continue,
                "\n" => continue,
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            let start = found.map_or(part.start + token.start, |found: Range<usize>| found.start);
            found = Some(start..part.start + token.end());
            if token.text == "}" && depth == 0 && ends == Ends::WithBlock {
                break;
            }
        }
        found
    })
}

/// Where something stands in a text, from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// The line and column of a byte.
pub(crate) fn position(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before.get(line_start..).map_or(0, |line| line.chars().count());
    let count = |number: usize| u32::try_from(number + 1).unwrap_or(u32::MAX);
    Position { line: count(before.matches('\n').count()), column: count(column) }
}

/// Commands that print, or wait for something to print.
const PRINTING: [&str; 5] = ["list", "reset", "monitor", "describe", "export"];

/// The first command that prints, with its place.
///
/// In an empty namespace most of them print nothing, so that they are found by the text only.
pub(crate) fn printing(text: &str) -> Option<(&str, Position)> {
    let mut commands = statements(text, 0..text.len(), Ends::WithBlock)
        .filter_map(|at| code(text.get(at.clone())?).next().map(|first| (first.text, at.start)));
    let (word, start) = commands.find(|(word, _)| PRINTING.contains(word))?;
    Some((word, position(text, start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(&str, u32, u32)>) {
        let found = printing(text).map(|(word, at)| (word, at.line, at.column));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn commands_that_print_are_found_with_their_place() {
        check("list ruleset", Some(("list", 1, 1)));
        check("table ip a { }\n  reset counters", Some(("reset", 2, 3)));
        check("add table ip a; monitor", Some(("monitor", 1, 17)));
        check("table ip a { chain x { } } list tables", Some(("list", 1, 28)));
        check("# a comment\n\nlist tables", Some(("list", 3, 1)));
    }

    #[test]
    fn what_only_looks_like_one_is_none() {
        for text in [
            "table ip list { chain reset { } }",
            "# list ruleset",
            "table ip a { comment \"}\nlist\"; }",
            "define x = \\\n  list",
            "table ip a {\n  set list { type ipv4_addr; }\n}\n",
            "listing",
            "",
        ] {
            check(text, None);
        }
    }
}
