//! Reads the output of a program line by line and kills it after a time without output.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Program;

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    Itself {
        status: String,
        success: bool,
    },
    /// Killed after this time without output.
    Silent(Duration),
}

impl Program {
    /// Runs to the end, or until there is no output for `silence`. Calls `see` with each line of its standard output;
    /// bytes that are not UTF-8 are replaced.
    pub(crate) fn watch(&self, silence: Duration, see: &mut dyn FnMut(&str)) -> Result<Ended> {
        let mut command = self.command();
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start `{self}`"))?;
        let stdout = child.stdout.take().context("a piped program has an output")?;
        let last = read_lines(&lines_of(stdout), silence, see);
        finish(&mut child, last, silence).with_context(|| format!("cannot end `{self}`"))
    }
}

/// Reads on a thread, since reading blocks; it ends with the program.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        // An error means that the receiver is gone.
        let _ = lines.map(|line| send.send(line)).find(Result::is_err);
    });
    receive
}

fn read_lines(
    lines: &Receiver<Vec<u8>>,
    silence: Duration,
    see: &mut dyn FnMut(&str),
) -> RecvTimeoutError {
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => see(String::from_utf8_lossy(&line).trim_end_matches('\r')),
            Err(last) => return last,
        }
    }
}

fn finish(child: &mut Child, last: RecvTimeoutError, silence: Duration) -> std::io::Result<Ended> {
    if last == RecvTimeoutError::Timeout {
        child.kill()?;
        child.wait()?;
        return Ok(Ended::Silent(silence));
    }
    let status = child.wait()?;
    Ok(Ended::Itself { status: status.to_string(), success: status.success() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(script: &str, silence: Duration) -> (Vec<String>, Ended) {
        let mut seen = Vec::new();
        let program = Program::new("sh", &["-c", script]);
        let ended = program.watch(silence, &mut |line| seen.push(line.to_owned())).unwrap();
        (seen, ended)
    }

    #[test]
    fn every_line_is_seen_and_the_status_returned() {
        let (seen, ended) = watch(r"printf 'one\r\ntwo\n\377'; exit 3", Duration::from_mins(1));
        assert_eq!(seen, ["one", "two", "\u{fffd}"]);
        assert_eq!(ended, Ended::Itself { status: "exit status: 3".to_owned(), success: false });
    }

    #[test]
    fn a_program_that_is_silent_is_ended() {
        let (seen, ended) = watch("exec sleep 600", Duration::from_millis(300));
        assert_eq!(seen, Vec::<String>::new());
        assert_eq!(ended, Ended::Silent(Duration::from_millis(300)));
    }

    /// The lines are there before the timeout starts.
    #[test]
    fn lines_before_the_silence_are_seen() {
        let (send, receive) = channel();
        send.send(b"one\r".to_vec()).unwrap();
        let mut seen = Vec::new();
        let last =
            read_lines(&receive, Duration::from_millis(1), &mut |line| seen.push(line.to_owned()));
        assert_eq!((seen, last), (vec!["one".to_owned()], RecvTimeoutError::Timeout));
    }
}
