//! Holds files that shrink: what is left of a list whose source has failed is valid, and wrong.

/// How many lines a file may lose without being held.
const FREE_LINES: usize = 10;

/// A file would lose more than half of its lines, and more than ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrunk {
    pub from_lines: usize,
    pub to_lines: usize,
}

impl Shrunk {
    /// Whether a file shrinks too much to be written without consent.
    #[must_use]
    pub fn find(old: &[u8], new: &[u8]) -> Option<Self> {
        Self::find_by_lines(Self::lines(old), Self::lines(new))
    }

    /// The same by the numbers of lines.
    #[must_use]
    pub fn find_by_lines(from_lines: usize, to_lines: usize) -> Option<Self> {
        let lost = from_lines.saturating_sub(to_lines);
        (lost > FREE_LINES && lost > from_lines / 2).then_some(Shrunk { from_lines, to_lines })
    }

    /// How many lines a text has. A last line without newline counts.
    #[must_use]
    pub fn lines(bytes: &[u8]) -> usize {
        bytes.split_inclusive(|byte| *byte == b'\n').count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_loses_more_than_half_and_more_than_ten_lines_is_held() {
        let check = |from: usize, to: usize, expected: bool| {
            let (old, new) = ("x\n".repeat(from), "y\n".repeat(to));
            let found = Shrunk::find(old.as_bytes(), new.as_bytes());
            assert_eq!(found.is_some(), expected, "from {from} to {to}");
        };
        check(100, 0, true);
        check(100, 49, true);
        check(100, 50, false);
        check(101, 50, true);
        check(10, 0, false);
        check(11, 0, true);
        check(21, 11, false);
        check(21, 10, true);
        check(0, 1000, false);
        check(1000, 2000, false);
    }

    #[test]
    fn a_last_line_without_newline_counts() {
        let old = format!("{}x", "x\n".repeat(10));
        assert_eq!(Shrunk::find(old.as_bytes(), b""), Some(Shrunk { from_lines: 11, to_lines: 0 }));
    }
}
