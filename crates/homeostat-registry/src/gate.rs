//! What forwarding in a scope waits for. The firewall's driver opens and closes it; the source that turns forwarding on waits.

use std::sync::Arc;

use tokio::sync::watch;

/// The gate of one scope; it begins open. Clones are handles to one gate.
#[derive(Clone, Debug)]
pub struct Gate {
    is_open: watch::Sender<bool>,
    on: Arc<str>,
}

impl Gate {
    /// A gate that, while it is closed, waits on this.
    #[must_use]
    pub fn waiting_on(on: &str) -> Self {
        Gate { is_open: watch::Sender::new(true), on: on.into() }
    }

    /// Lets everything through; waiting sources look again.
    pub fn open(&self) {
        self.is_open.send_if_modified(|is_open| !std::mem::replace(is_open, true));
    }

    /// Holds back what has not gone through yet.
    pub fn close(&self) {
        self.is_open.send_replace(false);
    }

    /// Says whether it is open, and when it opens.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.is_open.subscribe()
    }

    /// What is waited for, in words.
    #[must_use]
    pub fn on(&self) -> &str {
        &self.on
    }
}
