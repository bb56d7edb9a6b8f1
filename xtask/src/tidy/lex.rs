//! Splits Rust source into code and comments, and marks the lines of tests.
//!
//! Checks search only one of the two, so that a word in a string or comment does not count as its use.

/// One line. Both parts keep their columns; the rest is blank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Without comments and without the insides of strings.
    pub(crate) code: String,
    /// Only comments, doc comments included.
    pub(crate) comment: String,
    /// Whether it belongs to an item under `#[cfg(test)]`.
    pub(crate) is_test: bool,
}

/// The lines that are not tests, with their index.
pub(crate) fn production(lines: &[Line]) -> impl Iterator<Item = (usize, &Line)> {
    lines.iter().enumerate().filter(|(_, line)| !line.is_test)
}

pub(crate) fn split(text: &str) -> Vec<Line> {
    let (mut code, mut comments) = (String::new(), String::new());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, part) = next_part(&code, rest, first);
        let (taken, after) = rest.split_at(length);
        let blank = taken.replace(|letter| letter != '\n', " ");
        match part {
            Part::Code => code.push_str(taken),
            Part::Comment => code.push_str(&blank),
            Part::Quoted => {
                code.push(first);
                code.push_str(blank.get(1..blank.len() - 1).unwrap_or_default());
                code.push(first);
            }
        }
        comments.push_str(if part == Part::Comment { taken } else { &blank });
        rest = after;
    }
    let mut is_test = false;
    let lines = code.lines().zip(comments.lines());
    lines.map(|(code, comment)| line(code.trim_end(), comment.trim(), &mut is_test)).collect()
}

/// After rustfmt, an item under `#[cfg(test)]` in the first column ends at the next `}` or `;` there.
fn line(code: &str, comment: &str, inside: &mut bool) -> Line {
    let is_test = *inside || code.starts_with("#[cfg(test)]");
    *inside = is_test && (code.starts_with(' ') || !code.ends_with(['}', ';']));
    Line { code: code.to_owned(), comment: comment.to_owned(), is_test }
}

/// What follows `word` in `text`, if it has no letter, digit or `_` around it.
pub(crate) fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    text.match_indices(word).find_map(|(start, _)| {
        let (before, rest) = (text.get(..start)?, text.get(start + word.len()..)?);
        let apart =
            !before.ends_with(is_name) && (!word.ends_with(is_name) || !rest.starts_with(is_name));
        apart.then_some(rest)
    })
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    /// A string or a character, with its quotes.
    Quoted,
}

/// The kind of what `rest` begins with, and its length. `before` is the code before it.
fn next_part(before: &str, rest: &str, first: char) -> (usize, Part) {
    let second = rest.chars().nth(1);
    match (first, second) {
        ('/', Some('/')) => (rest.find('\n').unwrap_or(rest.len()), Part::Comment),
        ('/', Some('*')) => (block_comment(rest), Part::Comment),
        ('"', _) => (string(before, rest), Part::Quoted),
        // Otherwise it is a lifetime.
        ('\'', _) if second == Some('\\') || rest.chars().nth(2) == Some('\'') => {
            (quoted(rest, '\''), Part::Quoted)
        }
        _ => (first.len_utf8(), Part::Code),
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    for (at, _) in rest.match_indices('/') {
        depth += usize::from(rest[at..].starts_with("/*"));
        if rest[..at].ends_with('*') {
            depth -= 1;
            if depth == 0 {
                return at + 1;
            }
        }
    }
    rest.len()
}

/// A raw string has no escapes, and ends at a quote with as many `#` as it began with.
fn string(before: &str, rest: &str) -> usize {
    let opening = before.trim_end_matches('#');
    let prefix = opening.strip_suffix('r').map(|stem| stem.trim_end_matches(['b', 'c']));
    if prefix.is_none_or(|prefix| prefix.ends_with(is_name)) {
        return quoted(rest, '"');
    }
    let hashes = &before[opening.len()..];
    rest[1..].find(&format!("\"{hashes}")).map_or(rest.len(), |at| at + 2)
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, letter)| {
        let closes = *letter == quote && !is_escaped;
        is_escaped = *letter == '\\' && !is_escaped;
        closes
    });
    end.map_or(rest.len(), |(at, quote)| at + quote.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, code: &str, comment: &str) {
        let lines = split(text);
        let squeeze = |part: fn(&Line) -> &str| {
            let words: Vec<&str> =
                lines.iter().flat_map(|line| part(line).split_whitespace()).collect();
            words.join(" ")
        };
        assert_eq!(squeeze(|line| &line.code), code);
        assert_eq!(squeeze(|line| &line.comment), comment);
    }

    #[test]
    fn comments_leave_the_code() {
        check(
            "a(); // b\nc(); /* d /* e */\n f */ g();",
            "a(); c(); g();",
            "// b /* d /* e */ f */",
        );
        check("//! top\nfn f() {}", "fn f() {}", "//! top");
    }

    #[test]
    fn strings_are_emptied_and_hide_comment_marks() {
        check(r#"a("// no \" x"); b"#, r#"a(" "); b"#, "");
        check("a(r#\"x \" // no\"#); b(br\"y\")", "a(r#\" \"#); b(br\" \")", "");
        check("var\"x\"", "var\" \"", "");
    }

    #[test]
    fn a_char_literal_is_emptied_and_a_lifetime_is_code() {
        check(r#"a('"', '\'', '\u{41}', 'x'); // b"#, "a(' ', ' ', ' ', ' ');", "// b");
        check("fn f<'a>(x: &'a str) {} // b", "fn f<'a>(x: &'a str) {}", "// b");
    }

    #[test]
    fn lines_keep_their_number() {
        let lines = split("a\n\"x\ny\"\n/* b\nc */\nd");
        assert_eq!(lines.len(), 6);
        assert_eq!(lines.last().map(|line| line.code.as_str()), Some("d"));
    }

    #[test]
    fn the_test_module_is_found_and_code_behind_it_is_not_hidden() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let shipped: Vec<usize> = production(&split(text)).map(|(index, _)| index).collect();
        assert_eq!(shipped, [0, 5]);
        let text = "#[cfg(test)]\nmod tests;\nfn c() {}\n";
        assert_eq!(production(&split(text)).count(), 1);
    }

    #[test]
    fn words_are_found_whole() {
        assert_eq!(after_word("use std::fs::read", "std::fs"), Some("::read"));
        assert_eq!(after_word("my_std::fs", "std::fs"), None);
        assert_eq!(after_word("std::fsync", "std::fs"), None);
        assert_eq!(after_word("sleep(1)", "sleep("), Some("1)"));
        assert_eq!(after_word("asleep(1); sleep(2)", "sleep("), Some("2)"));
    }
}
