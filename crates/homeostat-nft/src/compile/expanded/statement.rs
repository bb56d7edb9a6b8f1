//! The `include` statements of a text. Pure.

use crate::scan::Scan;

/// One that `nft` would obey.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Include<'a> {
    /// Where it begins.
    pub(super) start: usize,
    /// Behind what it names.
    pub(super) end: usize,
    /// What it names.
    pub(super) wanted: &'a str,
}

const WORD: &str = "include";

/// In the order of the text. One that is malformed is left to `nft`, which tells what it misses.
pub(super) fn includes(text: &str) -> Vec<Include<'_>> {
    if !text.contains(WORD) {
        return Vec::new();
    }
    let (mut scan, mut begins, mut found) = (Scan::default(), true, Vec::new());
    for (at, c) in text.char_indices() {
        let is_code = scan.take(c) && scan.is_plain();
        if begins && is_code && c == 'i' {
            found.extend(include(text, at));
        }
        begins = match c {
            '\n' | ';' | '{' if is_code => true,
            _ => begins && (!scan.is_plain() || c.is_whitespace() || c == '\\'),
        };
    }
    found
}

fn include(text: &str, start: usize) -> Option<Include<'_>> {
    let rest = skip(text.get(start..)?.strip_prefix(WORD)?).strip_prefix('"')?;
    let (wanted, behind) = rest.split_once('"')?;
    let is_ended = skip(behind).starts_with([';', '\n', '#']);
    is_ended.then_some(Include { start, end: text.len() - behind.len(), wanted })
}

/// Without blanks at the beginning; the end of a line that goes on is one.
fn skip(text: &str) -> &str {
    let rest = text.trim_start_matches([' ', '\t']);
    rest.strip_prefix("\\\n").map_or(rest, skip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<_> = includes(text).iter().map(|include| include.wanted).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn includes_are_found_where_statements_begin() {
        check("include \"a\"\n", &["a"]);
        check("define x = 1; include\t\"a\" ; include \"b\" # c\n", &["a", "b"]);
        check("table ip a { include \"a\"\n chain x { include\"b\";\n} }", &["a", "b"]);
        check("# first\ninclude \\\n \"a\";", &["a"]);
        let include = Include { start: 3, end: 15, wanted: "x y" };
        assert_eq!(includes("{ ;include\"x y\"\n"), [include]);
    }

    #[test]
    fn what_nft_takes_for_none_is_none() {
        for text in [
            "# include \"a\"\n",
            "comment \"\ninclude \"a\"\n",
            "includes \"a\"\n",
            "chain include \"a\"\n",
            "include \"a\"",
            "include \"a\" include \"b\" }",
            "table ip a { } include \"a\"\n",
            "include a\n",
            "include\n\"a\"\n",
        ] {
            check(text, &[]);
        }
    }
}
