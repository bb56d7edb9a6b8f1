//! A [`Listener`] on a tokio runtime.

use tokio::io::unix::AsyncFd;

use crate::{Error, Event, Group, Listener, Result, sys};

#[derive(Debug)]
pub struct AsyncListener {
    listener: AsyncFd<Listener>,
}

impl AsyncListener {
    /// Registers the listener with the runtime that this is called in.
    pub fn new(listener: Listener) -> Result<Self> {
        let listener = sys::watch(listener).map_err(|source| Error::Open { source })?;
        Ok(Self { listener })
    }

    /// Subscribes to one more group. Earlier events of it are not delivered.
    pub fn join(&self, group: Group) -> Result<()> {
        self.listener.get_ref().join(group)
    }

    /// Calls `each` with the events of one datagram, without waiting; false if there is none.
    pub fn receive_now(&mut self, each: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        self.listener.get_mut().receive(each)
    }

    /// Waits for a datagram and calls `each` with its events. Cancel-safe.
    pub async fn receive(&mut self, each: &mut (dyn FnMut(Event<'_>) + Send)) -> Result<()> {
        loop {
            let mut ready =
                self.listener.readable_mut().await.map_err(|source| Error::Receive { source })?;
            if ready.get_inner_mut().receive(&mut |event| each(event))? {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}
