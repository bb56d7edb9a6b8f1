//! Starts other programs. Nothing else in this crate starts any.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// A program with its arguments, not yet started.
pub(crate) struct Program {
    name: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    directory: Option<PathBuf>,
}

impl Program {
    pub(crate) fn new(name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { name: name.to_owned(), arguments, environment: Vec::new(), directory: None }
    }

    pub(crate) fn within(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    pub(crate) fn env(mut self, variable: &'static str, value: &str) -> Self {
        self.environment.push((variable, value.to_owned()));
        self
    }

    /// Runs to the end and returns what it wrote to its standard output.
    #[expect(clippy::disallowed_methods, reason = "this is the module that starts programs")]
    pub(crate) fn read(&self) -> Result<String, Error> {
        let mut command = Command::new(&self.name);
        command.args(&self.arguments).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let program = format!("{} {}", self.name, self.arguments.join(" "));
        let output = match command.output() {
            Ok(output) => output,
            Err(source) => return Err(Error::Start { program, source }),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !output.status.success() {
            return Err(Error::Failed { program, text: text(&output.stderr) });
        }
        Ok(text(&output.stdout))
    }
}
