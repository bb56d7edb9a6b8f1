//! Tells quotations, comments and blocks of a text apart, character by character. Pure.

/// Where in a text a character is.
#[derive(Default)]
pub(crate) struct Scan {
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

impl Scan {
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
