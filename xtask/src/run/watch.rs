//! Watches a program line by line and ends it when it falls silent.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Program;

/// How a watched program came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself; whether it called this a success.
    Itself {
        /// Its exit status, in words.
        status: String,
        /// Whether that status is a success.
        success: bool,
    },
    /// It wrote nothing for this long and was killed.
    Silent(Duration),
}

impl Program {
    /// Runs to the end, or until nothing comes for as long as `silence`. Each line of its standard
    /// output is handed to `see`, without the line's end; bytes that are no text are replaced.
    pub(crate) fn watch(&self, silence: Duration, see: &mut dyn FnMut(&str)) -> Result<Ended> {
        let mut command = self.command();
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start `{self}`"))?;
        let stdout = child.stdout.take().context("a piped program has an output")?;
        let last = hear(&lines_of(stdout), silence, see);
        finish(&mut child, last, silence).with_context(|| format!("cannot end `{self}`"))
    }
}

/// The reading blocks, so a thread does it; it ends with the program.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        // An error means that nobody listens any more.
        let _ = lines.map(|line| send.send(line)).find(Result::is_err);
    });
    receive
}

fn hear(
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
    fn every_line_is_seen_and_the_status_told() {
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

    /// The lines are there already, so that no busy machine is late with them.
    #[test]
    fn whoever_falls_silent_was_heard_before() {
        let (send, receive) = channel();
        send.send(b"one\r".to_vec()).unwrap();
        let mut seen = Vec::new();
        let last = hear(&receive, Duration::from_millis(1), &mut |line| seen.push(line.to_owned()));
        assert_eq!((seen, last), (vec!["one".to_owned()], RecvTimeoutError::Timeout));
    }
}
