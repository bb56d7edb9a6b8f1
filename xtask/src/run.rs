//! Starts other programs. Nothing else in xtask starts any.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

mod watch;

pub(crate) use watch::{Ended, See, watch};

/// A program with its arguments and extra environment, not yet started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    name: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    directory: PathBuf,
}

impl Program {
    /// To be run in the root of the workspace.
    pub(crate) fn new(name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { name: name.to_owned(), arguments, environment: Vec::new(), directory: root() }
    }

    pub(crate) fn cargo(arguments: &[&str]) -> Self {
        Self::new("cargo", arguments)
    }

    pub(crate) fn env(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((variable, value.into()));
        self
    }

    /// The same, to be run in `directory`.
    pub(crate) fn within(mut self, directory: &Path) -> Self {
        directory.clone_into(&mut self.directory);
        self
    }

    /// Adds `separator` and `more` arguments, or nothing if there are none.
    pub(crate) fn arguments_after(mut self, separator: &str, more: &[String]) -> Self {
        if !more.is_empty() {
            self.arguments.push(separator.to_owned());
            self.arguments.extend_from_slice(more);
        }
        self
    }

    /// Runs to the end, with the output of xtask and an empty input.
    pub(crate) fn run(&self) -> Result<()> {
        let status = self.command().status().with_context(|| format!("cannot start `{self}`"))?;
        if !status.success() {
            bail!("`{self}` ended with {status}");
        }
        Ok(())
    }

    /// Runs to the end and returns what it wrote to its standard output.
    pub(crate) fn read(&self) -> Result<String> {
        let mut command = self.command();
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("cannot start `{self}`"))?;
        if !output.status.success() {
            bail!("`{self}` ended with {}", output.status);
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{self}` wrote no UTF-8"))
    }

    /// Its standard output, or none if it fails; its standard error is discarded.
    pub(crate) fn try_read(&self) -> Result<Option<String>> {
        let output = self.command().stderr(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot start `{self}`"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(output.status.success().then_some(text))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the module that starts programs")]
    fn command(&self) -> Command {
        let mut command = Command::new(&self.name);
        command.args(&self.arguments).current_dir(&self.directory).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// As a shell command.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (variable, value) in &self.environment {
            write!(f, "{variable}={} ", quoted(value))?;
        }
        write!(f, "{}", self.name)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

/// The workspace's root directory.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// What `cargo metadata` says about the members.
pub(crate) fn metadata() -> Result<Value> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--locked"];
    serde_json::from_str(&Program::cargo(&arguments).read()?).context("cargo metadata is not JSON")
}

/// Where cargo builds, whether the environment or a configuration file says so.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let directory = metadata()?["target_directory"].as_str().map(PathBuf::from);
    directory.context("cargo metadata names no target directory")
}

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_shown_as_one_would_type_it() {
        let program = Program::cargo(&["test", "--workspace"])
            .env("RUSTDOCFLAGS", "-D warnings")
            .arguments_after("--", &["it's".to_owned()]);
        let typed = r"RUSTDOCFLAGS='-D warnings' cargo test --workspace -- 'it'\''s'";
        assert_eq!(program.to_string(), typed);
    }

    #[test]
    fn without_more_arguments_there_is_no_separator() {
        let program = Program::cargo(&["test"]).arguments_after("--", &[]);
        assert_eq!(program.to_string(), "cargo test");
    }

    #[test]
    fn what_a_program_writes_can_be_read() {
        assert_eq!(Program::new("echo", &["hello"]).read().unwrap(), "hello\n");
    }

    #[test]
    fn a_program_runs_in_the_directory_that_it_was_given() {
        let pwd = Program::new("pwd", &[]).within(Path::new("/"));
        assert_eq!(pwd.read().unwrap(), "/\n");
    }

    #[test]
    fn a_program_that_may_fail_has_written_nothing_then() {
        assert_eq!(Program::new("false", &[]).try_read().unwrap(), None);
        assert_eq!(Program::new("echo", &["x"]).try_read().unwrap().as_deref(), Some("x\n"));
    }

    #[test]
    fn a_failing_program_is_named_with_its_status() {
        let error = Program::new("false", &[]).run().unwrap_err().to_string();
        assert!(error.starts_with("`false` ended with exit status"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = Program::new("no-such-program", &["x"]).run().unwrap_err().to_string();
        assert_eq!(error, "cannot start `no-such-program x`");
    }
}
