//! A [`Listener`] on a tokio runtime.

use std::os::fd::{AsRawFd as _, RawFd};

use tokio::io::unix::AsyncFd;

use crate::{Error, Event, Group, Listener, Result, sys};

/// A listener that needs a runtime only once its events are awaited.
#[derive(Debug)]
pub struct AsyncListener {
    /// Made by the first call that waits. It goes before the socket is closed: fields are dropped in this order.
    readiness: Option<AsyncFd<RawFd>>,
    listener: Listener,
}

impl AsyncListener {
    #[must_use]
    pub fn new(listener: Listener) -> Self {
        Self { readiness: None, listener }
    }

    /// Subscribes to one more group. Earlier events of it are not delivered.
    pub fn join(&self, group: Group) -> Result<()> {
        self.listener.join(group)
    }

    /// Calls `each` with the events of one datagram, without waiting; false if there is none.
    pub fn receive_now(&mut self, each: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        self.listener.receive(each)
    }

    /// Waits for a datagram and calls `each` with its events. Cancel-safe. The first call registers the socket with
    /// the runtime that it is made in.
    pub async fn receive(&mut self, each: &mut (dyn FnMut(Event<'_>) + Send)) -> Result<()> {
        let readiness = match &mut self.readiness {
            Some(readiness) => readiness,
            none => none.insert(
                sys::watch(self.listener.as_raw_fd()).map_err(|source| Error::Open { source })?,
            ),
        };
        loop {
            let mut ready =
                readiness.readable().await.map_err(|source| Error::Receive { source })?;
            if self.listener.receive(&mut |event| each(event))? {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}
