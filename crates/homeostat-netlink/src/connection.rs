//! Asks the kernel and reads its answers: many messages per send, one ack per send, dumps that are whole.
//!
//! Start at [`Connection::run`] for writes and at [`Connection::dump`] for reads.

mod chunk;
mod dump;
mod exchange;
mod transaction;

pub use dump::Dumped;
pub use exchange::Answer;
pub use transaction::Transacted;

use std::fmt;
use std::time::Duration;

use homeostat_netns::Netns;

use crate::inbox::Inbox;
use crate::{Batch, Error, Family, Message, Options, Refusal, Result, Socket};
use chunk::{Chunk, Room};
use exchange::Exchange;

/// How much a connection sends at once and how long it waits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// The largest send, in bytes. Beyond 32 KiB a larger one is no faster.
    pub send_bytes: usize,
    /// The size of the receive buffer at first.
    pub receive_bytes: usize,
    /// How large the receive buffer may grow.
    pub most_receive_bytes: usize,
    /// How often a dump that a change interrupts is tried.
    pub dump_tries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            send_bytes: 128 << 10,
            receive_bytes: 64 << 10,
            most_receive_bytes: 1 << 20,
            dump_tries: 10,
        }
    }
}

/// A socket for requests: numbers them and matches the answers to them.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    inbox: Inbox,
    before_each_call: BeforeEachCall,
    limits: Limits,
    next_seq: u32,
    refused: Vec<(usize, Refusal)>,
    is_dead: bool,
}

/// What a test does before each send, and before each part of a dump is received.
#[derive(Default)]
struct BeforeEachCall(Option<Box<dyn FnMut() + Send>>);

impl BeforeEachCall {
    fn run(&mut self) {
        if let Some(run) = &mut self.0 {
            run();
        }
    }
}

impl fmt::Debug for BeforeEachCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some" } else { "None" })
    }
}

impl Connection {
    /// Connects to the calling thread's namespace.
    pub fn open(family: Family) -> Result<Self> {
        Ok(Self::new(Socket::open(family, &Options::default())?, Limits::default()))
    }

    /// Connects to another namespace, and keeps it alive as long as the connection lives.
    pub fn open_in(netns: &Netns, family: Family) -> Result<Self> {
        Ok(Self::new(Socket::open_in(netns, family, &Options::default())?, Limits::default()))
    }

    /// Asks through a socket with options of its own. The socket must have joined no group.
    #[must_use]
    pub fn new(socket: Socket, limits: Limits) -> Self {
        let inbox = Inbox::new(limits.receive_bytes, limits.most_receive_bytes);
        let before_each_call = BeforeEachCall::default();
        let refused = Vec::new();
        Self { socket, inbox, before_each_call, limits, next_seq: 1, refused, is_dead: false }
    }

    /// Calls this before each send, and before each part of a dump is received. For tests, which change the target
    /// between two reads.
    pub fn before_each_call(&mut self, run: impl FnMut() + Send + 'static) {
        self.before_each_call = BeforeEachCall(Some(Box::new(run)));
    }

    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// How many bytes the kernel has sent so far: a measure of answers and dumps that does not depend on the machine.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.inbox.received()
    }

    /// Sends every message of `batch`, in order, and reports on each by its index in the batch: first the
    /// replies of the kernel (to `NLM_F_ECHO`, to a get), then exactly one of done, refused or unknown.
    ///
    /// Space in the receive buffer is reserved for replies only to messages with `NLM_F_ECHO`. Set that flag on
    /// every message that is answered with an object; the kernel ignores it where it has no meaning.
    ///
    /// On an error, messages without a report were never sent. The batch can be run again.
    pub fn run(
        &mut self,
        batch: &mut Batch,
        answers: &mut dyn FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        let (mut start, mut index) = (0, 0);
        while let Some(chunk) = self.number(batch, start)? {
            self.exchange(batch, &chunk, &mut |at, answer| answers(index + at, answer))?;
            start = chunk.end;
            index += chunk.count;
        }
        Ok(())
    }

    /// Sends the messages of `request` and fails with the first that was not done.
    pub fn ask(&mut self, request: &mut Batch, replies: &mut dyn FnMut(Message<'_>)) -> Result<()> {
        let mut failed = None;
        self.run(request, &mut |_, answer| match answer {
            Answer::Reply(message) => replies(message),
            Answer::Done => {}
            Answer::Refused(refusal) => _ = failed.get_or_insert(Error::Refused(refusal)),
            Answer::Unknown => _ = failed.get_or_insert(Error::AnswerLost),
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Numbers the messages of the next send and requests an ack for its last.
    fn number(&mut self, batch: &mut Batch, start: usize) -> Result<Option<Chunk>> {
        if self.is_dead {
            return Err(Error::Dead);
        }
        let room = Room::new(self.limits.send_bytes, self.socket.receive_buffer());
        let chunk = Chunk::number(batch.bytes_mut(), start, self.next_seq, room);
        if let Some(chunk) = &chunk {
            self.next_seq = chunk.last_seq().wrapping_add(1);
        }
        Ok(chunk)
    }

    /// Sends one chunk and reads until its last message is answered.
    fn exchange(
        &mut self,
        batch: &Batch,
        chunk: &Chunk,
        answers: &mut dyn FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        self.before_each_call.run();
        self.socket.send(batch.bytes().get(chunk.start..chunk.end).unwrap_or_default())?;
        self.refused.clear();
        let mut exchange = Exchange::new(chunk, self.limits.timeout, &mut self.refused);
        let mut outcome = Ok(());
        while outcome.is_ok() && !exchange.is_over() {
            let incoming = self.inbox.receive(&self.socket, exchange.timeout());
            outcome = incoming.and_then(|incoming| exchange.take(incoming, answers));
        }
        self.is_dead |= matches!(outcome, Err(Error::Malformed(_)));
        exchange.conclude(answers);
        outcome
    }
}
