//! A list that is cut where its part of the page is full.

use maud::Markup;

/// How many rows a list has at most.
pub(super) const MOST: usize = 200;

/// The rows that fit into so many bytes, and how many were left out.
pub(super) struct Rows {
    pub(super) shown: Vec<Markup>,
    pub(super) left_out: usize,
}

impl Rows {
    /// Draws rows until they fill `bytes`, and counts the others.
    pub(super) fn fill(bytes: usize, rows: impl Iterator<Item = Markup>) -> Self {
        let (mut shown, mut left) = (Vec::new(), bytes);
        let mut rows = rows;
        let mut left_out = 0;
        for row in rows.by_ref() {
            let length = row.0.len();
            if shown.len() == MOST || length > left {
                left_out = 1;
                break;
            }
            left -= length;
            shown.push(row);
        }
        Rows { shown, left_out: left_out + rows.count() }
    }
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn a_list_ends_where_its_part_of_the_page_is_full() {
        let rows = |count: usize| (0..count).map(|_| html! { "12345678" });
        let check = |bytes, count, expected| {
            let Rows { shown, left_out } = Rows::fill(bytes, rows(count));
            assert_eq!((shown.len(), left_out), expected);
        };
        check(80, 10, (10, 0));
        check(79, 10, (9, 1));
        check(0, 10, (0, 10));
        check(1 << 20, 1000, (MOST, 800));
    }
}
