//! From a document to the routes of its lists.

use super::line::RouteLine;
use super::read::{Line, read};
use super::report::Report;
use super::twins;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::document::{Document, Scope};
use crate::error::ValueError;
use crate::routes::{RouteEntry, RouteFile};

impl Document {
    /// Reads the lists that a scope names and hands on each of their routes, in the order of
    /// writing. All bad lines are reported together, with those that the caller refuses; so is a
    /// list that cannot be read.
    ///
    /// Whether two routes have the same key is not looked at, since whoever sorts them sees it for
    /// nothing: then [`route_twins`](Self::route_twins) names the places.
    pub fn listed_routes(
        &self,
        scope: &Scope,
        mut each: impl FnMut(&RouteFile, &RouteLine<'_>) -> Result<(), ValueError>,
    ) -> Result<(), Diagnostics> {
        let mut report = Report::new(self.files.clone());
        for file in scope.route_files() {
            read_list(file, &mut report, |line| each(file, line));
        }
        report.into_result()
    }

    /// Looks for routes of a scope's lists that are declared twice: in a list, in two of them, or in
    /// a list and in the document. The lists are read once more; what they look like is not
    /// remembered, and bad lines are passed over.
    pub fn route_twins(&self, scope: &Scope) -> Result<(), Diagnostics> {
        let mut report = Report::new(self.files.clone());
        twins::check(scope, &mut report);
        report.into_result()
    }
}

impl Scope {
    /// The lists of routes, in the order of writing.
    pub fn route_files(&self) -> impl Iterator<Item = &RouteFile> {
        self.routes.iter().flatten().filter_map(|entry| match &entry.value {
            RouteEntry::File(file) => Some(file),
            RouteEntry::One(_) => None,
        })
    }
}

fn read_list(
    file: &RouteFile,
    report: &mut Report,
    mut each: impl FnMut(&RouteLine<'_>) -> Result<(), ValueError>,
) {
    let mut section = report.list(file);
    let ended = read(&file.path.value, &mut |line: Line<'_>| match &line.read {
        Ok(route) => match each(route) {
            Ok(()) => section.good(),
            Err(error) => section.refuse(&line, line.text, || error),
        },
        Err(fault) => section.bad(&line, *fault),
    });
    section.end();
    if let Err(error) = ended {
        let name = crate::load::shown(&file.path.value);
        let message = format!("the list `{name}` cannot be read: {error}");
        report.found.push(Diagnostic::new(file.path.span, message));
    }
}
