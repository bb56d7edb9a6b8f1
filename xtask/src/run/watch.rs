//! Reads the output of a program line by line and kills it after a time without output.

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
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
    /// Killed because the callback asked to stop after a line of output.
    Cut,
}

/// Sees a line.
pub(crate) type See<'a> = dyn FnMut(&str) -> ControlFlow<()> + 'a;

/// Why no more lines are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    End,
    Silence,
    Break,
}

/// Runs to the end, until there is no output for `silence`, or until `see` breaks off. Calls `see` with each line of
/// its standard output; bytes that are not UTF-8 are replaced.
pub(crate) fn watch(program: &Program, silence: Duration, see: &mut See<'_>) -> Result<Ended> {
    let mut command = program.command();
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start `{program}`"))?;
    let stdout = child.stdout.take().context("a piped program has an output")?;
    let last = read_lines(&lines_of(stdout), silence, see);
    finish(&mut child, last, silence).with_context(|| format!("cannot end `{program}`"))
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

fn read_lines(lines: &Receiver<Vec<u8>>, silence: Duration, see: &mut See<'_>) -> Last {
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => {
                if see(String::from_utf8_lossy(&line).trim_end_matches('\r')).is_break() {
                    return Last::Break;
                }
            }
            Err(RecvTimeoutError::Timeout) => return Last::Silence,
            Err(RecvTimeoutError::Disconnected) => return Last::End,
        }
    }
}

fn finish(child: &mut Child, last: Last, silence: Duration) -> std::io::Result<Ended> {
    let ended = match last {
        Last::End => {
            let status = child.wait()?;
            return Ok(Ended::Itself { status: status.to_string(), success: status.success() });
        }
        Last::Silence => Ended::Silent(silence),
        Last::Break => Ended::Cut,
    };
    child.kill()?;
    child.wait()?;
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(script: &str, silence: Duration) -> (Vec<String>, Ended) {
        let mut seen = Vec::new();
        let program = Program::new("sh", &["-c", script]);
        let mut see = |line: &str| {
            seen.push(line.to_owned());
            if line == "enough" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let ended = super::watch(&program, silence, &mut see).unwrap();
        (seen, ended)
    }

    #[test]
    fn a_program_is_ended_once_enough_was_seen() {
        let (seen, ended) = watch("echo one; echo enough; exec sleep 600", Duration::from_mins(1));
        assert_eq!((seen, ended), (vec!["one".to_owned(), "enough".to_owned()], Ended::Cut));
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
        let last = read_lines(&receive, Duration::from_millis(1), &mut |line| {
            seen.push(line.to_owned());
            ControlFlow::Continue(())
        });
        assert_eq!((seen, last), (vec!["one".to_owned()], Last::Silence));
    }
}
