//! Quotations, comments, blocks and commands of a text in nft's language. Pure.

/// Where in a text a character is.
#[derive(Default)]
pub(crate) struct Scanner {
    depth: usize,
    inside: Inside,
    is_escaped: bool,
}

#[derive(Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Nothing,
    Quotes,
    Comment,
}

impl Scanner {
    /// Whether it is in no block, quotation or comment.
    pub(crate) fn is_between(&self) -> bool {
        self.depth == 0 && self.inside == Inside::Nothing
    }

    /// Whether it is neither quoted nor in a comment.
    pub(crate) fn is_plain(&self) -> bool {
        self.inside == Inside::Nothing
    }

    /// Takes a character: whether it is neither in a comment nor the end of a line that goes on.
    pub(crate) fn take(&mut self, c: char) -> bool {
        let was_escaped = std::mem::replace(&mut self.is_escaped, c == '\\');
        match (&self.inside, c) {
            (Inside::Comment, '\n') | (Inside::Quotes, '"') => self.inside = Inside::Nothing,
            (Inside::Comment, _) => return false,
            (Inside::Nothing, '"') => self.inside = Inside::Quotes,
            (Inside::Nothing, '#') => self.inside = Inside::Comment,
            (Inside::Nothing, '{') => self.depth += 1,
            (Inside::Nothing, '}') => self.depth = self.depth.saturating_sub(1),
            (Inside::Nothing, '\n') if was_escaped => return false,
            _ => {}
        }
        self.inside != Inside::Comment
    }
}

/// Where something stands in a text, from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// Commands that print, or wait for something to print.
const PRINTING: [&str; 5] = ["list", "reset", "monitor", "describe", "export"];

/// The first command that prints, with its place.
///
/// In an empty namespace most of them print nothing, so that they are found by the text only.
pub(crate) fn printing(text: &str) -> Option<(&str, Position)> {
    let mut commands = starts(text).filter_map(|start| {
        let rest = text.get(start..)?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        Some((rest.get(..end)?, start))
    });
    let (word, start) = commands.find(|(word, _)| PRINTING.contains(word))?;
    Some((word, position(text, start)))
}

/// The line and column of a byte.
pub(crate) fn position(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before.get(line_start..).map_or(0, |line| line.chars().count());
    let count = |number: usize| u32::try_from(number + 1).unwrap_or(u32::MAX);
    Position { line: count(before.matches('\n').count()), column: count(column) }
}

/// Where each command outside of any block begins.
fn starts(text: &str) -> impl Iterator<Item = usize> {
    let (mut scan, mut begins) = (Scanner::default(), true);
    let mut is_start = move |c: char| {
        let is_code = scan.take(c) && scan.is_plain();
        match c {
            _ if !is_code || c.is_whitespace() && c != '\n' => false,
            ';' | '\n' | '}' => {
                begins = scan.is_between();
                false
            }
            _ => std::mem::take(&mut begins) && scan.is_between(),
        }
    };
    text.char_indices().filter(move |(_, c)| is_start(*c)).map(|(at, _)| at)
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
