//! Texts of others are bounded where they are kept: a target can say megabytes, and reports, events, logs and the
//! journal would keep all of it.

/// Foreign text as part of a message of ours: at most 500 characters of it.
#[must_use]
pub fn quoted(words: impl Into<String>) -> String {
    cut(words.into(), 500)
}

/// A whole message: 2000 characters of it, more than quotations and keys need.
#[must_use]
pub fn bounded(message: impl Into<String>) -> String {
    cut(message.into(), 2000)
}

/// Cuts a text that is too long, and marks the cut.
fn cut(mut text: String, longest: usize) -> String {
    // No character is shorter than a byte.
    if text.len() > longest
        && let Some((end, _)) = text.char_indices().nth(longest)
    {
        let whole = text.len();
        text.truncate(end);
        // A new text: the megabytes of the former one would stay allocated.
        return format!("{text}... ({whole} bytes in all)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters_and_a_short_one_stays() {
        assert_eq!(quoted("short"), "short");
        assert_eq!(quoted("\u{e4}".repeat(500)), "\u{e4}".repeat(500));
        let expected = format!("{}... (1002 bytes in all)", "\u{e4}".repeat(500));
        assert_eq!(quoted("\u{e4}".repeat(501)), expected);
        assert!(quoted("x".repeat(15 << 20)).capacity() < 5000, "the rest is not kept");
        let message = format!("{}: (status 500)", quoted("x".repeat(15 << 20)));
        assert_eq!(bounded(&*message), message, "what is bounded is not cut again");
    }
}
