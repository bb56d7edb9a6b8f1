//! One client: a request a line, an answer a line, each within its time and size.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, UCred};
use tokio::sync::Semaphore;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::daemon::answers::Answers;
use crate::daemon::clients::Asked;
use crate::daemon::readers::Readers;
use crate::daemon::recent::Recent;
use crate::orders::Right;
use crate::person::Person;
use crate::wire::{self, Envelope, FORMAT_VERSION, LONGEST_PIECE, Request};

/// The longest request of a client that may only read.
const LONGEST: u64 = 64 << 10;

/// The longest request of any other: a piece, in JSON, whose strings may be longer than what they mean.
const LONGEST_PUT: u64 = 2 * LONGEST_PIECE as u64 + (64 << 10);

/// How long a client may be silent, or not read.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is checked whether a client that waits for an answer is still connected.
const GLANCE: Duration = Duration::from_millis(500);

/// What a client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Everything: root, and the daemon's own user.
    Full,
    /// How things stand: the group that was named for it. Who can connect at all is in it, since the file
    /// belongs to that group.
    Reading,
    Refused,
}

impl Access {
    fn of(peer: &UCred, readers: Option<Readers>) -> Self {
        let is_own = peer.uid() == rustix::process::geteuid().as_raw();
        match readers {
            _ if peer.uid() == 0 || is_own => Access::Full,
            Some(_) => Access::Reading,
            None => Access::Refused,
        }
    }

    fn allows(self, request: &Request) -> bool {
        match self {
            Access::Full => true,
            Access::Reading => request.is_reading(),
            Access::Refused => false,
        }
    }
}

/// Who is let in.
pub(super) struct Admission {
    pub(super) readers: Option<Readers>,
    /// For those who may only read.
    pub(super) room: Arc<Semaphore>,
    pub(super) asked: Asked,
}

/// Answers until the client has no more to ask, or takes too long.
pub(super) async fn hold(
    stream: UnixStream,
    answers: &Answers,
    admission: &Admission,
) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let (uid, access) = (peer.uid(), Access::of(&peer, admission.readers));
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
    let by = Person::of(pid, uid);
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let _seat = match access {
        Access::Full => None,
        Access::Reading | Access::Refused => match admission.room.try_acquire() {
            Ok(seat) => Some(seat),
            Err(_) => return say(&mut write, &refuse("too many others are connected")).await,
        },
    };
    loop {
        let longest = if access == Access::Full { LONGEST_PUT } else { LONGEST };
        let Some(line) = line(&mut read, longest).await? else { return Ok(()) };
        admission.asked.mark();
        match parse(&line, longest) {
            // A client without any access is refused whatever it sends, and disconnected.
            _ if access == Access::Refused => {
                let own = rustix::process::geteuid().as_raw();
                let why = format!("user {uid} may not speak with the daemon of user {own}");
                return say(&mut write, &refuse(&why)).await;
            }
            Err(why) => say(&mut write, &refuse(&why)).await?,
            Ok(Asking { request, .. }) if !access.allows(&request) => {
                let why = format!("user {uid} may only read how things stand");
                return say(&mut write, &refuse(&why)).await;
            }
            Ok(Asking { request: Request::Events { follow }, .. }) => {
                return send_events(read, write, &answers.recent, follow).await;
            }
            Ok(Asking {
                request: request @ (Request::Status { wait_ms: Some(_) } | Request::Trial { .. }),
                right,
            }) => {
                let answer = tokio::select! {
                    answer = answers.answer(request, right, &by) => answer,
                    () = leaves(&write) => return Ok(()),
                };
                send(&mut write, &answer).await?;
            }
            Ok(Asking { request, right }) => {
                send(&mut write, &answers.answer(request, right, &by).await).await?;
            }
        }
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
    }
}

/// The next line, or what there is of it if it is too long; nothing at the end.
async fn line(read: &mut BufReader<OwnedReadHalf>, longest: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut limited = read.take(longest);
    timeout(PATIENCE, limited.read_until(b'\n', &mut line)).await??;
    Ok((!line.is_empty()).then_some(line))
}

/// What a client asks for, and by what right.
#[derive(Debug)]
struct Asking {
    request: Request,
    right: Right,
}

fn parse(line: &[u8], longest: u64) -> Result<Asking, String> {
    if line.len() as u64 >= longest {
        return Err(format!("a request may have {longest} bytes at most"));
    }
    let envelope: Envelope =
        serde_json::from_slice(line).map_err(|error| format!("this is no request: {error}"))?;
    match envelope.format_version {
        Some(version) if version.split('.').next() != FORMAT_VERSION.split('.').next() => {
            Err(format!("this daemon speaks version {FORMAT_VERSION}, not `{version}`"))
        }
        _ => {
            let right = envelope.order.map_or(Right::Own, Right::Order);
            Ok(Asking { request: envelope.request, right })
        }
    }
}

/// Waits until the client has closed both ways: one that only has no more to ask still listens.
async fn leaves(write: &OwnedWriteHalf) {
    loop {
        tokio::time::sleep(GLANCE).await;
        let mut fds = [PollFd::new(write.as_ref(), PollFlags::empty())];
        // A poll that fails says nothing about the client.
        let _ = poll(&mut fds, Some(&Timespec::default()));
        if fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP)) {
            return;
        }
    }
}

fn refuse(why: &str) -> Value {
    wire::refusal(why, &format!("error: {why}\n"))
}

async fn say(write: &mut OwnedWriteHalf, answer: &Value) -> io::Result<()> {
    let mut line = answer.to_string().into_bytes();
    line.push(b'\n');
    send(write, &line).await
}

/// A client that reads nothing for some time is given up; one that reads slowly is not.
async fn send(write: &mut OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = timeout(PATIENCE, write.write(bytes)).await??;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// Sends what happened, and what happens until the client goes.
async fn send_events(
    mut read: BufReader<OwnedReadHalf>,
    mut write: OwnedWriteHalf,
    recent: &Recent,
    follow: bool,
) -> io::Result<()> {
    let (before, mut next) = recent.follow();
    for line in before {
        send(&mut write, format!("{}\n", line.text).as_bytes()).await?;
    }
    if !follow {
        return Ok(());
    }
    loop {
        let line = tokio::select! {
            line = next.recv() => line,
            // Nothing more is expected of the client: whatever it does, it is done.
            _ = read.fill_buf() => return Ok(()),
        };
        match line {
            Ok(line) => send(&mut write, format!("{}\n", line.text).as_bytes()).await?,
            Err(RecvError::Lagged(count)) => {
                let missed = json!({
                    "format_version": FORMAT_VERSION, "event": "missed", "count": count,
                });
                say(&mut write, &missed).await?;
            }
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_only_read_changes_nothing() {
        let request = |text: &str| parse(text.as_bytes(), LONGEST).unwrap().request;
        let rows = [
            (r#"{"verb":"status"}"#, true),
            (r#"{"verb":"key","key":"route 10.0.0.0/8"}"#, true),
            (r#"{"verb":"events","follow":true}"#, true),
            (r#"{"verb":"pause"}"#, false),
            (r#"{"verb":"reload"}"#, false),
            (r#"{"verb":"drop","name":"web"}"#, false),
            (r#"{"verb":"forget","key":"route 10.0.0.0/8"}"#, false),
        ];
        for (text, expected) in rows {
            assert_eq!(Access::Reading.allows(&request(text)), expected, "{text}");
            assert!(Access::Full.allows(&request(text)), "{text}");
            assert!(!Access::Refused.allows(&request(text)), "{text}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_the_reason() {
        let long = vec![b'x'; usize::try_from(LONGEST).unwrap()];
        let rows: [(&[u8], &str); 6] = [
            (b"\n", "this is no request"),
            (b"\xff\xfe\n", "this is no request"),
            (b"[1]\n", "this is no request"),
            (br#"{"verb":"explode"}"#, "unknown variant `explode`"),
            (br#"{"format_version":"2.0","verb":"status"}"#, "not `2.0`"),
            (&long, "bytes at most"),
        ];
        for (line, expected) in rows {
            let why = parse(line, LONGEST).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
