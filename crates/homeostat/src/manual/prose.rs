//! Text of pages, written in a few signs of Markdown, as roff: `#` headings, paragraphs, `-` items, code spans and
//! indented blocks of code.

use super::{Inline, Roff, bold, roman};

/// Appends a whole text.
pub(super) fn add(text: &str, to: &mut Roff) {
    let mut follows_heading = false;
    for block in text.trim().split("\n\n") {
        let is_code = block.lines().all(|line| line.starts_with("    "));
        if let Some(heading) = block.strip_prefix("# ") {
            to.control("SH", [heading]);
        } else if is_code {
            to.control("PP", []).control("RS", ["4"]).control("nf", []);
            for line in block.lines() {
                to.text([roman(line.trim_start_matches("    "))]);
            }
            to.control("fi", []).control("RE", []);
        } else if block.starts_with("- ") {
            for item in block.split("\n- ") {
                to.control("IP", ["\\(bu", "2"]);
                to.text(inlines(&joined(item.trim_start_matches("- "))));
            }
        } else {
            // Programs that index pages want the line below NAME to be the first one.
            if !follows_heading {
                to.control("PP", []);
            }
            to.text(inlines(&joined(block)));
        }
        follows_heading = block.starts_with("# ");
    }
}

fn joined(lines: &str) -> String {
    lines.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is between backticks is bold.
pub(super) fn inlines(text: &str) -> Vec<Inline> {
    let pieces = text.split('`').enumerate().filter(|(_, piece)| !piece.is_empty());
    pieces.map(|(at, piece)| if at % 2 == 1 { bold(piece) } else { roman(piece) }).collect()
}
