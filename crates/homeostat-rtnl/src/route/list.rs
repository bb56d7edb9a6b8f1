//! Lists of routes: one route a line, in the words of `ip route`, a million of them at a time.
//!
//! A list never becomes a tree: it is read in pieces, and each line is handed on as a [`RouteLine`]. Only
//! the text of bad lines is kept, to be shown. Start at [`listed_routes`].

mod fault;
mod ip;
mod line;
mod read;
mod report;
mod twins;
mod value;

use homeostat_document::{Checker, Diagnostic, Scope, ValueError, shown};

pub use line::RouteLine;
use read::{Line, read};
use report::BadLines;

use super::section::{RouteFile, route_files};

/// Reads the lists that a scope names and hands on each of their routes, in the order of writing. All bad
/// lines are reported together, with those that the caller refuses; so is a list that cannot be read.
///
/// Whether two routes have the same key is not looked at, since who sorts them sees it for nothing: then
/// [`route_twins`] names the places.
pub fn listed_routes(
    scope: &Scope,
    checker: &mut Checker,
    mut each: impl FnMut(&RouteFile, RouteLine) -> Result<(), ValueError>,
) {
    for file in route_files(scope) {
        read_list(file, checker, |line| each(file, line));
    }
}

/// Looks for routes of a scope's lists that are declared twice: in a list, in two of them, or in a list and
/// in the document. The lists are read once more; what they look like is not remembered, and bad lines are
/// passed over.
pub fn route_twins(scope: &Scope, checker: &mut Checker) {
    twins::check(scope, checker);
}

fn read_list(
    file: &RouteFile,
    checker: &mut Checker,
    mut each: impl FnMut(RouteLine) -> Result<(), ValueError>,
) {
    let mut lines = BadLines::new(file, checker);
    let ended = read(&file.path.value, &mut |Line { number, text, read }: Line<'_>| match read {
        Ok(route) => match each(route) {
            Ok(()) => lines.good(),
            Err(error) => lines.refuse(number, text, text, || error),
        },
        Err(fault) => lines.refuse(number, text, fault.word, || fault.explain()),
    });
    lines.end();
    if let Err(error) = ended {
        let name = shown(&file.path.value);
        let message = format!("the list `{name}` cannot be read: {error}");
        checker.report(Diagnostic::new(file.path.span, message));
    }
}

#[cfg(test)]
mod tests;
