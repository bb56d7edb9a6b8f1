//! Makes a desired state of text, or says why it is none: by a function, or by the program that will read the text.

use std::fmt;
use std::future::Future;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Why text is no desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is bad, and will be for as long as it is the same.
    Bad(String),
    /// It could not be checked: another try may end otherwise.
    Unchecked(String),
}

/// Makes a desired state of text.
pub trait Check: Send + Sync {
    /// What comes out.
    type DesiredState: Send + Sync + 'static;

    /// The desired state, or why the text is none.
    fn check(
        &self,
        text: String,
    ) -> impl Future<Output = Result<Self::DesiredState, Refused>> + Send;
}

/// A check by a function that parses.
#[derive(Clone, Copy, Debug)]
pub struct Typed<F>(pub F);

impl<W, E, F> Check for Typed<F>
where
    W: Send + Sync + 'static,
    E: fmt::Display,
    F: Fn(&str) -> Result<W, E> + Send + Sync,
{
    type DesiredState = W;

    async fn check(&self, text: String) -> Result<W, Refused> {
        (self.0)(&text).map_err(|error| Refused::Bad(error.to_string()))
    }
}

/// How long a program may think about a text.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes the text to a file, runs a program with its path in place of `{}`, and goes on with another
/// check if that succeeds.
#[derive(Clone, Debug)]
pub struct Program<C> {
    path: String,
    args: Vec<String>,
    then: C,
}

impl<C> Program<C> {
    /// Runs `program` with `args`, then checks by `then`. The program is told where the text is by
    /// `{}` within the arguments, or behind them if it stands nowhere.
    pub fn new<'a>(program: &str, args: impl IntoIterator<Item = &'a str>, then: C) -> Self {
        let args = args.into_iter().map(str::to_owned).collect();
        Program { path: program.to_owned(), args, then }
    }

    async fn run(&self, text: &str) -> Result<(), Refused> {
        let cannot = |what: &str, error: &dyn std::fmt::Display| {
            Refused::Unchecked(format!("cannot {what}: {error}"))
        };
        let mut file =
            tempfile::NamedTempFile::new().map_err(|error| cannot("make a file", &error))?;
        file.write_all(text.as_bytes()).map_err(|error| cannot("write a file", &error))?;
        let text = file.path().to_string_lossy().into_owned();
        let mut args: Vec<_> = self.args.iter().map(|arg| arg.replace("{}", &text)).collect();
        if !self.args.iter().any(|arg| arg.contains("{}")) {
            args.push(text);
        }
        let mut command = Command::new(&self.path);
        command.args(args).stdin(Stdio::null()).kill_on_drop(true);
        let ran = tokio::time::timeout(PATIENCE, command.output()).await;
        let ran = ran.map_err(|late| cannot(&format!("wait for `{}`", self.path), &late))?;
        let output = ran.map_err(|error| cannot(&format!("run `{}`", self.path), &error))?;
        if output.status.success() {
            return Ok(());
        }
        let words = [output.stderr, output.stdout].concat();
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        Err(Refused::Bad(format!("`{}` refused it ({}): {words}", self.path, output.status)))
    }
}

impl<C: Check> Check for Program<C> {
    type DesiredState = C::DesiredState;

    async fn check(&self, text: String) -> Result<C::DesiredState, Refused> {
        self.run(&text).await?;
        self.then.check(text).await
    }
}
