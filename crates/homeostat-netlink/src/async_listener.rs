//! Waits for a listener's events on a tokio runtime.

use tokio::io::unix::AsyncFd;

use crate::{Error, Event, Group, Listener, Result, sys};

/// A [`Listener`] that a task can wait for.
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

    /// Subscribes to one more group. What happened in it before is not told.
    pub fn join(&self, group: Group) -> Result<()> {
        self.listener.get_ref().join(group)
    }

    /// Hands on the events of one datagram without waiting; false if none was there.
    pub fn receive_now(&mut self, each: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        self.listener.get_mut().receive(each)
    }

    /// Hands on the events of one datagram once there is one. Dropped while it waits, it loses nothing.
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
