//! Talks to the daemon of an owner over its control socket.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::Global;
use crate::context::socket;
use crate::failure::{Relayed, helped};
use crate::orders::{Right, ToOrder};
use crate::wire::{DescribeAnswer, Envelope, FORMAT_VERSION, Request};

/// An open conversation.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    right: Right,
}

/// The daemon ended before it answered. Whether it did what it was asked for is not known.
#[derive(Debug, thiserror::Error)]
#[error("the daemon ended before it answered")]
pub(crate) struct Ended;

/// Where the daemon listens whose owner the command line names.
pub(crate) fn socket_path(global: &Global) -> PathBuf {
    socket(global.state_dir.as_deref(), global.owner_name())
}

/// Whether no process listens at a path.
pub(crate) fn is_daemon_absent(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| is_absent(&error))
}

impl Client {
    /// Speaks with the daemon that listens at `path`.
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        match UnixStream::connect(path) {
            Ok(stream) => Ok(Client::over(stream)),
            Err(error) if is_absent(&error) => Err(helped(
                format!("no daemon listens at {}", path.display()),
                "start it with `homeostat run DOC`; if it runs, give the --owner and --state-dir \
                 that it was started with",
            )),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(helped(
                format!("this user may not speak with the daemon at {}", path.display()),
                "only root and the user whom the daemon runs as may",
            )),
            Err(error) => {
                Err(error).with_context(|| format!("cannot reach the daemon at {}", path.display()))
            }
        }
    }

    /// The same, if there is a daemon.
    pub(crate) fn try_connect(path: &Path) -> Option<Self> {
        UnixStream::connect(path).ok().map(Client::over)
    }

    fn over(stream: UnixStream) -> Self {
        Client { stream: BufReader::new(stream), right: Right::Own }
    }

    /// The same, with an order for what is asked; or it is only asked what an order must say, which is an error then.
    pub(crate) fn by_right(self, right: &Right) -> Self {
        Client { right: right.clone(), ..self }
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(mut self, request: Request) -> Result<Value> {
        if self.right != Right::Describe {
            self.send(request)?;
            return self.next()?.ok_or_else(|| Ended.into());
        }
        // A daemon that does not know this request refuses it, and does nothing.
        self.send(Request::Describe { request: Box::new(request) })?;
        let answer: DescribeAnswer = read(self.next()?.ok_or(Ended)?)?;
        Err(ToOrder(answer.command).into())
    }

    /// Asks for something that is answered in many lines.
    pub(crate) fn send(&mut self, request: Request) -> Result<()> {
        let order = match &self.right {
            Right::Order(order) => Some(order.clone()),
            Right::Own | Right::Checked | Right::Describe => None,
        };
        let envelope = Envelope { format_version: Some(FORMAT_VERSION.to_owned()), order, request };
        let mut line = serde_json::to_vec(&envelope)?;
        line.push(b'\n');
        match self.stream.get_mut().write_all(&line) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Ended.into()),
            written => written.context("cannot speak with the daemon"),
        }
    }

    /// The next line; nothing when the daemon has no more to say.
    pub(crate) fn next(&mut self) -> Result<Option<Value>> {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            // It ended with our request unread, which is no more than that it ended.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => line.clear(),
            read => drop(read.context("the daemon cannot be understood")?),
        }
        if line.is_empty() {
            return Ok(None);
        }
        let answer: Value =
            serde_json::from_slice(&line).context("the daemon cannot be understood")?;
        match answer.get("error").filter(|_| answer.get("event").is_none()) {
            Some(_) => Err(Relayed(text(&answer)).into()),
            None => Ok(Some(answer)),
        }
    }
}

/// What an answer has for people.
pub(crate) fn text(answer: &Value) -> String {
    answer.get("text").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether an answer says that everything is as declared.
pub(crate) fn is_converged(answer: &Value) -> bool {
    answer.get("converged").and_then(Value::as_bool) == Some(true)
}

/// An answer as what it must be.
pub(crate) fn read<T: DeserializeOwned>(answer: Value) -> Result<T> {
    serde_json::from_value(answer).context("the daemon is of another version")
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_that_ends_with_a_request_unread_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(&path).unwrap();
        client.send(Request::Status { wait_ms: None }).unwrap();
        drop(listener.accept().unwrap());
        assert_eq!(client.next().unwrap(), None);
    }
}
