//! Splits Rust source into code, comments and strings, and marks the lines of tests.
//!
//! Checks search only one of them, so that a word in a string or comment does not count as its use.

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

/// One line. All parts keep their columns; the rest is blank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Without comments, strings and characters.
    pub(crate) code: String,
    /// Only comments, doc comments included.
    pub(crate) comment: String,
    /// Only strings and characters, as they are written.
    pub(crate) string: String,
    /// Whether it belongs to an item under `#[cfg(test)]`.
    pub(crate) is_test: bool,
}

pub(crate) fn split(text: &str) -> Vec<Line> {
    let (mut code, mut comments, mut strings) = (String::new(), String::new(), String::new());
    let mut rest = text;
    for token in tokenize(text, FrontmatterAllowed::No) {
        let (taken, after) = rest.split_at(token.len as usize);
        let blank = taken.replace(|letter| letter != '\n', " ");
        let (in_code, in_comments, in_strings) = match token.kind {
            TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => {
                (&*blank, taken, &*blank)
            }
            TokenKind::Literal { .. } if taken.contains(['"', '\'']) => (&*blank, &*blank, taken),
            _ => (taken, &*blank, &*blank),
        };
        code.push_str(in_code);
        comments.push_str(in_comments);
        strings.push_str(in_strings);
        rest = after;
    }
    let mut is_test = false;
    let lines = code.lines().zip(comments.lines()).zip(strings.lines());
    let line = |((code, comment), string): ((&str, &str), &str)| Line {
        code: code.trim_end().to_owned(),
        comment: comment.trim().to_owned(),
        string: string.trim().to_owned(),
        is_test: in_test(code.trim_end(), &mut is_test),
    };
    lines.map(line).collect()
}

/// After rustfmt, an item under `#[cfg(test)]` in the first column ends at the next `}` or `;` there.
fn in_test(code: &str, inside: &mut bool) -> bool {
    let is_test = *inside || code.starts_with("#[cfg(test)]");
    *inside = is_test && (code.starts_with(' ') || !code.ends_with(['}', ';']));
    is_test
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
    fn strings_are_no_code_and_hide_comment_marks() {
        check(r#"a("// no \" x"); b"#, "a( ); b", "");
        check("a(r#\"x \" // no\"#); b(br\"y\")", "a( ); b( )", "");
        check("a(1, 'b', c)", "a(1, , c)", "");
    }

    #[test]
    fn a_character_is_no_code_and_a_lifetime_is() {
        check(r#"a('"', '\'', '\u{41}', 'x'); // b"#, "a( , , , );", "// b");
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
        let are_tests = |text| split(text).iter().map(|line| line.is_test).collect::<Vec<_>>();
        assert_eq!(are_tests(text), [false, true, true, true, true, false]);
        assert_eq!(are_tests("#[cfg(test)]\nmod tests;\nfn c() {}\n"), [true, true, false]);
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
