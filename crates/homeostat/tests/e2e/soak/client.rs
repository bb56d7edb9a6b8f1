//! Clients that mean no good: what they say, and how they say it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::dice::Dice;

/// Requests that are right, or nearly so: junk that begins like them gets further in.
const LINES: [&[u8]; 14] = [
    br#"{"format_version":"1.0","verb":"status","wait_ms":5}"#,
    br#"{"verb":"status","wait_ms":18446744073709551615}"#,
    br#"{"verb":"key","key":"route 10.9.0.0/16","scope":"host"}"#,
    br#"{"verb":"events","follow":true}"#,
    br#"{"verb":"events"}"#,
    br#"{"verb":"pause","for_ms":18446744073709551615}"#,
    br#"{"verb":"pause","for_ms":0}"#,
    br#"{"verb":"resume"}"#,
    br#"{"verb":"resync","leave":{"mass_delete":true,"cascades":true}}"#,
    br#"{"verb":"reload"}"#,
    br#"{"verb":"apply","handed":{"paths":["/nowhere"]},"ask":{}}"#,
    br#"{"verb":"adopt","about":{"key":"route 10.9.0.0/16"},"ask":{}}"#,
    br#"{"verb":"release","key":"route 10.9.0.0/16"}"#,
    br#"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["#,
];

const HEADS: [&[u8]; 8] = [
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9876\r\nContent-Length: 18446744073709551615\r\n\r\n",
    b"HEAD /api/v1/status HTTP/1.0\r\nHost: [::1]\r\n\r\n",
    b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
    b"POST /api/v1/status HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// A way into the daemon.
#[derive(Clone, Debug)]
pub(super) enum Door {
    Socket(PathBuf),
    Http(&'static str),
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// An answer that is not there by then is not waited for: it may have been asked for in an hour.
const PATIENCE: Duration = Duration::from_millis(100);

impl Door {
    /// The control socket of a state directory.
    pub(super) fn control(state: &Path) -> Self {
        Door::Socket(state.join("default.sock"))
    }

    fn connect(&self) -> std::io::Result<Box<dyn Stream + Send>> {
        Ok(match self {
            Door::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Door::Http(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }

    /// Something that looks like a request, or not.
    fn junk(&self, dice: &mut Dice) -> Vec<u8> {
        let mut bytes = match self {
            Door::Socket(_) => dice.pick(&LINES).to_vec(),
            Door::Http(_) => dice.pick(&HEADS).to_vec(),
        };
        for _ in 0..dice.below(4) {
            spoil(&mut bytes, dice);
        }
        if matches!(self, Door::Socket(_)) {
            bytes.push(b'\n');
        }
        bytes
    }
}

/// One change for the worse.
fn spoil(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    let amount = dice.below(40);
    match dice.below(6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.splice(at..at, dice.bytes(amount))),
        2 => bytes.extend(bytes.clone()),
        3 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.below(8)),
        4 => drop(bytes.splice(at..at, vec![b'9'; 70_000])),
        _ => drop(bytes.splice(at..at, *b"\0\r\n\n\"}")),
    }
}

/// One visit: says something in some way, and may or may not listen. Some do not leave.
pub(super) fn visit(door: &Door, dice: &mut Dice) -> Option<Box<dyn Send>> {
    let mut stream = door.connect().ok()?;
    let junk = door.junk(dice);
    // A connection that the daemon closes was understood.
    let _ = match dice.below(3) {
        0 => junk.iter().take(300).try_for_each(|byte| stream.write_all(&[*byte])),
        1 => stream.write_all(&junk[..junk.len() / 2]),
        _ => stream.write_all(&junk),
    };
    if dice.below(3) > 0 {
        let _ = stream.read(&mut [0; 4096]);
    }
    (dice.below(30) == 0).then(|| Box::new(stream) as Box<dyn Send>)
}
