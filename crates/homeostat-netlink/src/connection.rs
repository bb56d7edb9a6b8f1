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

use crate::batch::stamp;
use crate::inbox::{Inbox, Incoming, Truncated};
use crate::uapi::NLM_F_DUMP;
use crate::{Batch, Error, Family, Message, Options, Refusal, Result, Socket};
use chunk::{Chunk, Room};
use dump::Progress;
use exchange::Exchange;
use transaction::{Answers, framed};

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

    /// Requests all objects that the one message in `request` selects and calls `each` with them.
    ///
    /// A dump that a change interrupted, or that did not fit into the buffer, is read to its end (a request
    /// before that gives EBUSY) and tried again, a limited number of times.
    pub fn dump(&mut self, request: &mut Batch, each: &mut dyn FnMut(Dumped<'_>)) -> Result<()> {
        self.dump_until(request, each, |progress| !progress.is_interrupted)
    }

    /// The same, but a dump that a change interrupted counts. For callers that find out in another way whether the
    /// change concerns them.
    pub fn dump_despite_changes(
        &mut self,
        request: &mut Batch,
        each: &mut dyn FnMut(Dumped<'_>),
    ) -> Result<()> {
        self.dump_until(request, each, |_| true)
    }

    fn dump_until(
        &mut self,
        request: &mut Batch,
        each: &mut dyn FnMut(Dumped<'_>),
        counts: fn(&Progress) -> bool,
    ) -> Result<()> {
        let tries = self.limits.dump_tries.max(1);
        for attempt in 1..=tries {
            if attempt > 1 {
                each(Dumped::Restart);
            }
            let progress = self.dump_once(request, each)?;
            match progress.truncated {
                Some(Truncated { needed, room, has_grown: false }) => {
                    return Err(Error::Truncated { needed, room });
                }
                None if counts(&progress) && !progress.is_incomplete => return Ok(()),
                _ => {}
            }
        }
        Err(Error::Torn { tries })
    }

    fn dump_once(
        &mut self,
        request: &mut Batch,
        each: &mut dyn FnMut(Dumped<'_>),
    ) -> Result<Progress> {
        if self.is_dead {
            return Err(Error::Dead);
        }
        let mut progress = Progress { seq: self.next_seq, ..Progress::default() };
        self.next_seq = self.next_seq.wrapping_add(1);
        stamp(request.bytes_mut(), progress.seq, |flags| flags | NLM_F_DUMP);
        self.before_each_call.run();
        self.socket.send(request.bytes())?;
        let read = self.read_dump(&mut progress, each);
        // After an unfinished dump the kernel answers every further one with EBUSY.
        self.is_dead = !progress.is_over;
        read.map(|()| progress)
    }

    fn read_dump(
        &mut self,
        progress: &mut Progress,
        each: &mut dyn FnMut(Dumped<'_>),
    ) -> Result<()> {
        while !progress.is_over {
            let timeout = progress.timeout(self.limits.timeout);
            self.before_each_call.run();
            match self.inbox.receive(&self.socket, timeout)? {
                Incoming::Messages(messages) => progress.take(messages, each)?,
                Incoming::Truncated(truncated) => progress.truncated = Some(truncated),
                Incoming::Lost => progress.is_incomplete = true,
                // The end may have been in the part that was truncated.
                Incoming::Nothing if progress.truncated.is_some() => progress.is_over = true,
                Incoming::Nothing => return Err(Error::Timeout(self.limits.timeout)),
            }
        }
        Ok(())
    }

    /// Commits the messages of `batch` in one send. With a `generation`, only if the ruleset still has it.
    /// A batch without messages is done.
    pub fn transact(&mut self, batch: &Batch, generation: Option<u32>) -> Result<Transacted> {
        self.transact_with_echo(batch, generation, &mut |_, _| {})
    }

    /// The same, and calls `echoes` with what the kernel echoes of messages with `NLM_F_ECHO` and with the index
    /// of the message concerned. Echoes arrive before the result, and are valid only if that is `Done`.
    ///
    /// Quirk `elements-echoed-without-number` (Linux 6.18): echoes of elements have the sequence number zero, so
    /// they come without an index.
    pub fn transact_with_echo(
        &mut self,
        batch: &Batch,
        generation: Option<u32>,
        echoes: &mut dyn FnMut(Option<usize>, Message<'_>),
    ) -> Result<Transacted> {
        if self.is_dead {
            return Err(Error::Dead);
        }
        if batch.is_empty() {
            return Ok(Transacted::Done);
        }
        let mut framed = framed(batch, generation)?;
        let Some(chunk) = transaction::number(&mut framed, self.next_seq) else {
            return Ok(Transacted::Done);
        };
        self.next_seq = chunk.last_seq().wrapping_add(1);
        self.socket.make_send_room(framed.bytes().len());
        self.socket.send(framed.bytes())?;
        let answers = self.receive_answers(&chunk, echoes)?;
        Ok(answers.result(chunk.count))
    }

    /// Waits until no other process has a transaction in progress: a commit that has changed the generation is
    /// complete then. It sends a transaction without messages, which changes nothing, but waits for the lock.
    pub fn await_commit(&mut self) -> Result<()> {
        if self.is_dead {
            return Err(Error::Dead);
        }
        self.before_each_call.run();
        // It requests no answer: when `send` returns, the lock was held. A process that may not begin a
        // transaction learns so with its next request, which is refused as well.
        self.socket.send(framed(&Batch::new(), None)?.bytes())
    }

    /// The kernel has queued every answer when `send` returns.
    fn receive_answers(
        &mut self,
        chunk: &Chunk,
        echoes: &mut dyn FnMut(Option<usize>, Message<'_>),
    ) -> Result<Answers> {
        let mut answers = Answers::default();
        loop {
            let is_over = answers.is_done || answers.is_lossy || answers.refused.is_some();
            let timeout = if is_over { Duration::ZERO } else { self.limits.timeout };
            match self.inbox.receive(&self.socket, timeout)? {
                Incoming::Messages(messages) => answers.take(messages, chunk, echoes)?,
                Incoming::Lost | Incoming::Truncated(_) => answers.is_lossy = true,
                Incoming::Nothing if is_over => return Ok(answers),
                Incoming::Nothing => return Err(Error::Timeout(self.limits.timeout)),
            }
        }
    }
}
