//! Systemd's own socket, which is there from the first moment of a boot on, long before the system bus.
//!
//! Quirk `private-sender` (systemd 252): what systemd sends there has the sender `org.freedesktop.systemd1`. The sender of a
//! message is a unique name by the specification, and zbus refuses any other. So the first letter of such a sender is
//! replaced by a colon, which makes a unique name of it; nothing reads it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;

/// The fixed part of every message.
const FIXED: usize = 16;
/// The longest message that D-Bus knows.
const LONGEST: usize = 1 << 27;
/// The longest line of the handshake.
const LONGEST_LINE: usize = 512;
/// The field of a header that has the sender.
const SENDER: u8 = 7;

/// A stream to systemd on which both sides have agreed to begin.
#[derive(Debug)]
pub(crate) struct PrivateSocket(UnixStream);

impl PrivateSocket {
    /// Introduces us by the user id that the kernel vouches for, and returns the id of the server.
    pub(crate) async fn begin(mut stream: UnixStream) -> io::Result<(Self, String)> {
        // Quirk `private-begin` (systemd 252): a message that is read together with `BEGIN` is answered only when the next one
        // comes. So `BEGIN` is sent along, before anything was agreed on, and a message only after the answer.
        stream.write_all(b"\0AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n").await?;
        let mut line = Vec::new();
        loop {
            let byte = stream.read_u8().await?;
            line.push(byte);
            if line.ends_with(b"\r\n") {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if let Some(id) = text.strip_prefix("OK ") {
                    return Ok((PrivateSocket(stream), id.to_owned()));
                }
                if text != "DATA" {
                    let error = format!("systemd refuses this user: {text}");
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
                }
                line.clear();
            }
            if line.len() > LONGEST_LINE {
                return Err(malformed());
            }
        }
    }
}

impl Socket for PrivateSocket {
    type ReadHalf = Reader;
    type WriteHalf = Writer;

    fn split(self) -> Split<Reader, Writer> {
        let (read, write) = self.0.into_split();
        Split::new(Reader { stream: read, message: Vec::new(), given: 0 }, Writer(write))
    }
}

/// Reads whole messages, and gives them out as bytes.
#[derive(Debug)]
pub(crate) struct Reader {
    stream: OwnedReadHalf,
    message: Vec<u8>,
    /// How much of the message was given out.
    given: usize,
}

#[async_trait]
impl ReadHalf for Reader {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        if self.given == self.message.len() {
            let mut message = vec![0; FIXED];
            self.stream.read_exact(&mut message).await?;
            let length = length(&message).filter(|length| *length <= LONGEST);
            message.resize(length.ok_or_else(malformed)?, 0);
            let (_, rest) = message.split_at_mut(FIXED);
            self.stream.read_exact(rest).await?;
            make_sender_unique(&mut message);
            (self.message, self.given) = (message, 0);
        }
        let rest = self.message.get(self.given..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        self.given += length;
        Ok((length, Vec::new()))
    }
}

#[derive(Debug)]
pub(crate) struct Writer(OwnedWriteHalf);

#[async_trait]
impl WriteHalf for Writer {
    async fn sendmsg(&mut self, buffer: &[u8], _fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0.write(buffer).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "systemd sent what is no message of D-Bus")
}

/// The length of a whole message, by its fixed part.
fn length(fixed: &[u8]) -> Option<usize> {
    let message = Message(fixed);
    let fields = FIXED.checked_add(message.number(12)?)?;
    fields.checked_next_multiple_of(8)?.checked_add(message.number(4)?)
}

/// Replaces the first letter of a sender that is not a unique name.
fn make_sender_unique(message: &mut [u8]) {
    if let Some(at) = Message(message).sender()
        && let Some(first) = message.get_mut(at)
    {
        *first = b':';
    }
}

/// The bytes of a message.
struct Message<'a>(&'a [u8]);

impl Message<'_> {
    fn number(&self, at: usize) -> Option<usize> {
        let bytes: [u8; 4] = self.0.get(at..at.checked_add(4)?)?.try_into().ok()?;
        let number = match self.0.first()? {
            b'l' => u32::from_le_bytes(bytes),
            _ => u32::from_be_bytes(bytes),
        };
        usize::try_from(number).ok()
    }

    /// Where the name of the sender begins; nothing, if there is none.
    fn sender(&self) -> Option<usize> {
        let end = FIXED.checked_add(self.number(12)?)?;
        let mut at = FIXED;
        while at < end {
            at = at.checked_next_multiple_of(8)?;
            let (code, kind) = (*self.0.get(at)?, *self.0.get(at + 2)?);
            // A signature of one letter has its length before it and a zero after it.
            let value = at + 4;
            at = match kind {
                b's' | b'o' if code == SENDER => return Some(value + 4),
                b's' | b'o' => (value + 4).checked_add(self.number(value)?)? + 1,
                b'g' => value + 1 + usize::from(*self.0.get(value)?) + 1,
                b'u' => value + 4,
                _ => return None,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(sender: &str) -> Vec<u8> {
        let signal = zbus::Message::signal("/a/path", "an.interface", "Member");
        let signal = signal.sender(":1.42").build(&("text", 7_u32)).unwrap();
        let bytes = signal.data().to_vec();
        let at = Message(&bytes).sender().unwrap();
        assert_eq!(&bytes[at..at + 5], b":1.42");
        assert_eq!(length(&bytes[..FIXED]), Some(bytes.len()));
        let mut bytes = bytes;
        bytes[at..at + 5].copy_from_slice(sender.as_bytes());
        // Messages of a process are numbered.
        bytes[8..12].fill(0);
        bytes
    }

    #[test]
    fn quirk_private_sender_becomes_a_unique_name() {
        let mut bytes = signal("org.a");
        make_sender_unique(&mut bytes);
        assert_eq!(bytes, signal(":rg.a"));
    }

    #[test]
    fn a_message_that_is_cut_is_left_as_it_is() {
        let whole = signal("org.a");
        for length in 0..whole.len() {
            let mut cut = whole[..length].to_vec();
            make_sender_unique(&mut cut);
            assert_eq!(cut.len(), length);
        }
    }
}
