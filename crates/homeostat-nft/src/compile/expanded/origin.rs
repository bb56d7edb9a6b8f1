//! Where the lines of a text come from that is made of several files. Pure.

/// One of the files.
#[derive(Clone, Debug, Hash)]
pub(super) struct File {
    /// What errors call it.
    pub(super) name: String,
    /// The place in the text itself that it is there for.
    pub(super) included_by: Option<String>,
}

/// Number of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Nth(usize);

/// Runs of lines, in the order of the whole text.
#[derive(Clone, Debug, Hash)]
pub(super) struct Origins {
    main: File,
    included: Vec<File>,
    runs: Vec<Run>,
}

#[derive(Clone, Debug, Hash)]
struct Run {
    /// The line of the whole text that it begins with, from one.
    first: usize,
    file: Nth,
    /// The line of the file that this is.
    line: usize,
}

impl Origins {
    /// The text itself, whose lines are its own as long as nothing else is said.
    pub(super) const MAIN: Nth = Nth(0);

    pub(super) fn new(name: &str) -> Self {
        let main = File { name: name.to_owned(), included_by: None };
        Origins { main, included: Vec::new(), runs: Vec::new() }
    }

    pub(super) fn add_file(&mut self, file: File) -> Nth {
        self.included.push(file);
        Nth(self.included.len())
    }

    /// Whether there are so many files beside the text itself.
    pub(super) fn has_included(&self, count: usize) -> bool {
        self.included.len() >= count
    }

    /// From this line of the whole text on, it is this file from this line on.
    pub(super) fn add_run(&mut self, first: usize, (file, line): (Nth, usize)) {
        self.runs.push(Run { first, file, line });
    }

    pub(super) fn file(&self, Nth(nth): Nth) -> &File {
        nth.checked_sub(1).and_then(|nth| self.included.get(nth)).unwrap_or(&self.main)
    }

    /// The file, and the line of it, that a line of the whole text is.
    pub(super) fn of(&self, line: usize) -> (&File, usize) {
        let after = self.runs.partition_point(|run| run.first <= line);
        match after.checked_sub(1).and_then(|nth| self.runs.get(nth)) {
            Some(run) => (self.file(run.file), run.line + line - run.first),
            None => (&self.main, line),
        }
    }
}
