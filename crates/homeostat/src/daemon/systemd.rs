//! Notifies systemd of how the daemon stands: ready, reloading, stopping, alive.
//!
//! The protocol is a few words in a datagram to the socket that `NOTIFY_SOCKET` names; a daemon that
//! was not started by systemd sends nothing.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use homeostat_engine::{Event, EventKind};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::loops_snapshot::LoopsSnapshot;

/// The way to systemd, if it listens.
#[derive(Debug)]
pub(super) struct Systemd {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it expects a sign of life: half of the time after which it would act.
    watchdog: Option<Duration>,
    last_status: String,
}

impl Systemd {
    /// What the environment says.
    pub(super) fn from_environment() -> Self {
        let read = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_for_us = read("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = read("WATCHDOG_USEC").filter(|period| is_for_us && *period > 0);
        let watchdog = watchdog.map(|period| Duration::from_micros(period) / 2);
        Systemd { socket: socket(), watchdog, last_status: String::new() }
    }

    /// Sends to this address, a sign of life so often.
    #[cfg(test)]
    pub(super) fn towards(address: SocketAddr, watchdog: Duration) -> Self {
        let socket = Some((UnixDatagram::unbound().unwrap(), address));
        Systemd { socket, watchdog: Some(watchdog), last_status: String::new() }
    }

    fn send(&self, words: &str) {
        if let Some((socket, address)) = &self.socket {
            // It must not hold us up, and what it misses it asks for by the watchdog.
            let _ = socket.send_to_addr(words.as_bytes(), address);
        }
    }

    /// The document is read again. systemd wants to know since when, on a clock that never jumps.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The document was taken over, or refused.
    pub(super) fn reloaded(&self) {
        self.send("READY=1");
    }

    /// The daemon ends.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Stopping");
    }

    /// Sends when all loops are ready, how they stand, and that none of them is stuck. It wakes up
    /// when passes end, and for the watchdog; for nothing else.
    pub(super) async fn follow(
        mut self,
        mut snapshot: watch::Receiver<LoopsSnapshot>,
        mut events: Receiver<Event>,
    ) {
        if self.socket.is_none() {
            return;
        }
        let (mut is_ready, mut next) = (false, self.watchdog.map(|period| Instant::now() + period));
        loop {
            if !is_ready && snapshot.borrow_and_update().is_ready() {
                is_ready = true;
                self.send("READY=1");
            }
            self.send_status(&snapshot.borrow_and_update());
            tokio::select! {
                changed = snapshot.changed() => if changed.is_err() { return },
                alive = passed(&mut events) => if !alive { return },
                () = until(next) => {
                    if snapshot.borrow().is_healthy() {
                        self.send("WATCHDOG=1");
                    }
                    next = self.watchdog.map(|period| Instant::now() + period);
                }
            }
        }
    }

    fn send_status(&mut self, LoopsSnapshot { loops, .. }: &LoopsSnapshot) {
        let converged = loops.iter().filter(|one| one.status().is_converged).count();
        let status = format!("STATUS={converged} of {} loops converged", loops.len());
        if status != self.last_status {
            self.send(&status);
            self.last_status = status;
        }
    }
}

fn socket() -> Option<(UnixDatagram, SocketAddr)> {
    let name = std::env::var_os("NOTIFY_SOCKET")?;
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok()?,
        [b'/', ..] => SocketAddr::from_pathname(&name).ok()?,
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address))
}

/// Waits for the end of a pass; false if there will be none any more.
async fn passed(events: &mut Receiver<Event>) -> bool {
    loop {
        match events.recv().await {
            Ok(Event { kind: EventKind::Completed { .. } | EventKind::Failed { .. }, .. })
            | Err(RecvError::Lagged(_)) => return true,
            Ok(_) => {}
            Err(RecvError::Closed) => return false,
        }
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next).await,
        None => std::future::pending().await,
    }
}
