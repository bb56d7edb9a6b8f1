//! Our mark on a table: a word in its comment, next to the user's own words.

use std::fmt;

/// Whose tables we keep.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    word: String,
}

/// What every mark of this program begins with.
const PREFIX: &str = "homeostat:";
/// The type of a comment among a table's user data, as `nft` writes it.
const COMMENT: u8 = 0;
/// What `nft` takes for a comment, its NUL included.
const LONGEST: usize = 128;

impl Mark {
    /// The mark of an owner.
    #[must_use]
    pub fn new(owner: &str) -> Self {
        Mark { word: format!("{PREFIX}{owner}") }
    }

    /// Whether a comment has room for the mark.
    pub(crate) fn fits(&self, comment: &str) -> bool {
        self.beside(comment).len() < LONGEST
    }

    fn beside(&self, comment: &str) -> String {
        if comment.is_empty() { self.word.clone() } else { format!("{comment} {}", self.word) }
    }

    /// The listing of a table with the user's words and the mark in its comment.
    pub(crate) fn written(&self, listing: &str, comment: &str) -> String {
        let said = format!("\tcomment \"{comment}\"");
        let with_mark = format!("\tcomment \"{}\"", self.beside(comment));
        let mut lines = listing.lines();
        let head = lines.next().unwrap_or_default();
        let rest = lines.filter(|line| comment.is_empty() || *line != said);
        let lines = [head, &with_mark].into_iter().chain(rest);
        lines.flat_map(|line| [line, "\n"]).collect()
    }

    /// The listing of a table without the mark in its comment.
    pub(crate) fn taken_off(&self, listing: &str) -> String {
        let only = format!("\tcomment \"{}\"", self.word);
        let end = format!(" {}\"", self.word);
        let lines = listing.lines().filter(|line| *line != only).map(|line| {
            let said = line.strip_prefix("\tcomment \"").and_then(|_| line.strip_suffix(&end));
            said.map_or_else(|| format!("{line}\n"), |said| format!("{said}\"\n"))
        });
        lines.collect()
    }

    /// A table's user data with the user's words and the mark.
    pub(crate) fn userdata(&self, comment: &str) -> Vec<u8> {
        let text = self.beside(comment);
        let len = u8::try_from(text.len() + 1).unwrap_or(u8::MAX);
        [&[COMMENT, len], text.as_bytes(), &[0]].concat()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word)
    }
}

/// A comment of a table, split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comment {
    /// The user's own text.
    pub(crate) text: String,
    /// A mark of this program, ours or of another owner.
    pub(crate) mark: Option<Mark>,
}

impl Comment {
    /// Reads a table's user data. What is not understood is no comment.
    pub(crate) fn read(userdata: &[u8]) -> Self {
        let text = comment(userdata).unwrap_or_default();
        let (rest, last) = text.rsplit_once(' ').unwrap_or(("", text));
        if last.starts_with(PREFIX) {
            let mark = Some(Mark { word: last.to_owned() });
            return Comment { text: rest.to_owned(), mark };
        }
        Comment { text: text.to_owned(), mark: None }
    }
}

fn comment(mut userdata: &[u8]) -> Option<&str> {
    while let [kind, len, rest @ ..] = userdata {
        let (value, rest) = rest.split_at_checked(usize::from(*len))?;
        if *kind == COMMENT {
            let text = value.split(|byte| *byte == 0).next()?;
            return std::str::from_utf8(text).ok();
        }
        userdata = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stands_next_to_the_users_own_words() {
        let mark = Mark::new("default");
        for comment in ["", "the firewall", "a homeostat:fan club"] {
            let read = Comment::read(&mark.userdata(comment));
            assert_eq!(read, Comment { text: comment.into(), mark: Some(mark.clone()) });
        }
    }

    #[test]
    fn a_listing_gets_the_mark_and_loses_it_again() {
        let mark = Mark::new("default");
        for (comment, listing) in [
            ("", "table ip a {\n\tchain x {\n\t}\n}\n"),
            ("mine", "table ip a {\n\tcomment \"mine\"\n\tchain x {\n\t}\n}\n"),
        ] {
            let written = mark.written(listing, comment);
            assert_eq!(written.matches("homeostat:default").count(), 1, "{written}");
            assert_eq!(mark.taken_off(&written), listing);
        }
    }

    #[test]
    fn a_comment_without_a_mark_is_the_users() {
        let userdata = [&[0, 6][..], b"hello\0"].concat();
        let read = Comment::read(&userdata);
        assert_eq!(read, Comment { text: "hello".into(), mark: None });
    }

    #[test]
    fn damaged_user_data_is_no_comment() {
        for userdata in [&[0][..], &[0, 200, 1], &[7, 1, 1, 0, 9]] {
            assert_eq!(Comment::read(userdata), Comment::default());
        }
    }

    #[test]
    fn a_comment_fits_if_it_leaves_room_for_the_mark() {
        let mark = Mark::new("default");
        let room = 127 - " homeostat:default".len();
        assert!(mark.fits(&"x".repeat(room)));
        assert!(!mark.fits(&"x".repeat(room + 1)));
    }
}
