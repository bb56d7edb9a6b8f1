//! Finds links, code spans and headings in Markdown, as far as the project uses it.

/// The index of a line, and a part of it.
pub(crate) type Found<'t> = (usize, &'t str);

/// The targets of all links and images outside of code.
pub(crate) fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        let outside: String = line.split('`').step_by(2).collect();
        for (_, rest) in outside.match_indices("](").map(|(at, _)| outside.split_at(at + 2)) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push((index, target.to_owned()));
        }
    }
    found
}

/// Everything between two backticks on one line, outside of fenced blocks.
pub(crate) fn code_spans(text: &str) -> impl Iterator<Item = Found<'_>> {
    prose(text)
        .flat_map(|(index, line)| line.split('`').skip(1).step_by(2).map(move |span| (index, span)))
}

/// The texts of all headings.
pub(crate) fn headings(text: &str) -> impl Iterator<Item = Found<'_>> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(index, line)| {
        let heading = line.trim_start_matches('#').trim();
        (index, heading)
    })
}

/// The lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = Found<'_>> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# One\n[a](b.md#c) and ![d](e.png \"f\")\n```sh\n# no [x](y)\n`z`\n```\n\
                        ## Two\n`src/` or `[k](l)`\n";

    #[test]
    fn links_are_found_outside_of_code() {
        assert_eq!(links(TEXT), [(1, "b.md#c".to_owned()), (1, "e.png".to_owned())]);
    }

    #[test]
    fn code_spans_are_found_outside_of_fences() {
        assert_eq!(code_spans(TEXT).collect::<Vec<_>>(), [(7, "src/"), (7, "[k](l)")]);
    }

    #[test]
    fn headings_are_found_outside_of_fences() {
        assert_eq!(headings(TEXT).collect::<Vec<_>>(), [(0, "One"), (6, "Two")]);
    }
}
