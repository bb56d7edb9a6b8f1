//! Lists of routes: one route a line, in the words of `ip route`, a million of them at a time.
//!
//! A list never becomes a tree: it is read in pieces, and each line is handed on as a [`RouteLine`]
//! that borrows from it. Only the text of bad lines is kept, to be shown.
//! Start at [`Document::listed_routes`](crate::Document::listed_routes).

mod fault;
mod ip;
mod line;
mod print;
mod read;
mod report;
mod resolve;
mod twins;
mod value;

pub use line::RouteLine;

#[cfg(test)]
mod tests;
