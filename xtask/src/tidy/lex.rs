//! Splits Rust source into code and comments, and marks the lines of tests.
//!
//! Checks search only one of the two, so that a word in a string or comment does not count as its use.

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rust {
    pub(crate) lines: Vec<Line>,
}

/// One line. Both parts keep their columns; the rest is blank.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Without comments and without the insides of strings.
    pub(crate) code: String,
    /// Only comments, doc comments included.
    pub(crate) comment: String,
    /// Whether it belongs to an item under `#[cfg(test)]`.
    pub(crate) is_test: bool,
}

impl Rust {
    /// The lines that are not tests, with their index.
    pub(crate) fn production(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().filter(|(_, line)| !line.is_test)
    }
}

pub(crate) fn split(text: &str) -> Rust {
    let mut lexer = Lexer { letters: text.chars().collect(), ..Lexer::default() };
    lexer.whole_text();
    let code = lexer.code.lines();
    let comments = lexer.comments.lines();
    let line = |(code, comment): (&str, &str)| Line {
        code: code.trim_end().to_owned(),
        comment: comment.trim().to_owned(),
        is_test: false,
    };
    let mut lines: Vec<Line> = code.zip(comments).map(line).collect();
    mark_tests(&mut lines);
    Rust { lines }
}

/// What follows `word` in `text`, if it has no letter, digit or `_` around it.
pub(crate) fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word).find_map(|(start, _)| {
        let (before, rest) = (text.get(..start)?, text.get(start + word.len()..)?);
        let apart =
            !before.ends_with(is_part) && (!word.ends_with(is_part) || !rest.starts_with(is_part));
        apart.then_some(rest)
    })
}

/// After rustfmt, an item under `#[cfg(test)]` in the first column ends at the next `}` or `;` there.
fn mark_tests(lines: &mut [Line]) {
    let mut inside = false;
    for line in lines {
        inside |= line.code.starts_with("#[cfg(test)]");
        line.is_test = inside;
        let at_edge = !line.code.starts_with(' ');
        inside &= !(at_edge && (line.code.ends_with('}') || line.code.ends_with(';')));
    }
}

#[derive(Default)]
struct Lexer {
    letters: Vec<char>,
    next: usize,
    code: String,
    comments: String,
}

#[derive(Clone, Copy)]
enum Part {
    Code,
    Comment,
    Neither,
}

impl Lexer {
    fn whole_text(&mut self) {
        while let Some(letter) = self.peek(0) {
            match (letter, self.peek(1)) {
                ('/', Some('/')) => self.line_comment(),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('r', Some('"' | '#')) if self.raw_hashes().is_some() => self.raw_string(),
                ('\'', _) if self.is_char_literal() => self.char_literal(),
                _ => self.take(1, Part::Code),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.letters.get(self.next + ahead).copied()
    }

    fn take(&mut self, count: usize, part: Part) {
        for _ in 0..count {
            let Some(letter) = self.peek(0) else { return };
            let blank = if letter == '\n' { '\n' } else { ' ' };
            self.code.push(if matches!(part, Part::Code) { letter } else { blank });
            self.comments.push(if matches!(part, Part::Comment) { letter } else { blank });
            self.next += 1;
        }
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|letter| letter != '\n') {
            self.take(1, Part::Comment);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while self.peek(0).is_some() {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                _ => {
                    self.take(1, Part::Comment);
                    continue;
                }
            }
            self.take(2, Part::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.take(1, Part::Code);
        while let Some(letter) = self.peek(0) {
            match letter {
                '\\' => self.take(2, Part::Neither),
                '"' => return self.take(1, Part::Code),
                _ => self.take(1, Part::Neither),
            }
        }
    }

    /// How many `#` open the raw string that starts here, if one does.
    fn raw_hashes(&self) -> Option<usize> {
        let before = self.next.checked_sub(1).and_then(|index| self.letters.get(index));
        // `br` and `cr` are raw strings too; any other letter before the `r` makes it a name.
        if before.is_some_and(|&b| (b.is_alphanumeric() || b == '_') && b != 'b' && b != 'c') {
            return None;
        }
        let hashes = self.letters.iter().skip(self.next + 1).take_while(|&&l| l == '#').count();
        (self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    fn raw_string(&mut self) {
        let hashes = self.raw_hashes().unwrap_or_default();
        self.take(hashes + 2, Part::Code);
        let closes = |lexer: &Self| {
            lexer.peek(0) == Some('"') && (1..=hashes).all(|ahead| lexer.peek(ahead) == Some('#'))
        };
        while self.peek(0).is_some() && !closes(self) {
            self.take(1, Part::Neither);
        }
        self.take(hashes + 1, Part::Code);
    }

    /// A quote opens a literal if it is closed after one letter or escape; else it is a lifetime.
    fn is_char_literal(&self) -> bool {
        self.peek(1) == Some('\\') || self.peek(2) == Some('\'')
    }

    fn char_literal(&mut self) {
        self.take(1, Part::Code);
        let escaped = if self.peek(0) == Some('\\') { 2 } else { 1 };
        self.take(escaped, Part::Neither);
        while self.peek(0).is_some_and(|letter| letter != '\'') {
            self.take(1, Part::Neither);
        }
        self.take(1, Part::Code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, code: &str, comment: &str) {
        let rust = split(text);
        let squeeze = |part: fn(&Line) -> &str| {
            let words: Vec<&str> =
                rust.lines.iter().flat_map(|line| part(line).split_whitespace()).collect();
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
        let rust = split("a\n\"x\ny\"\n/* b\nc */\nd");
        assert_eq!(rust.lines.len(), 6);
        assert_eq!(rust.lines.last().map(|line| line.code.as_str()), Some("d"));
    }

    #[test]
    fn the_test_module_is_found_and_code_behind_it_is_not_hidden() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let shipped: Vec<usize> = split(text).production().map(|(index, _)| index).collect();
        assert_eq!(shipped, [0, 5]);
        let text = "#[cfg(test)]\nmod tests;\nfn c() {}\n";
        assert_eq!(split(text).production().count(), 1);
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
