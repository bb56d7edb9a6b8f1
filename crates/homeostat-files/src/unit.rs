//! The unit of systemd in which a program runs: whether it is up, and jobs for it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use homeostat_systemd::{Error, Job, JobKind, Signal, Signals, Systemd, UnitName};
use tokio::time::Instant;

/// A unit, and the root directory of its systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub name: UnitName,
    pub root: PathBuf,
}

/// A unit that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Up {
    /// Its first process.
    pub(crate) process: Option<u32>,
}

impl Unit {
    /// A unit of this machine.
    #[must_use]
    pub fn of_the_system(name: UnitName) -> Self {
        Unit { name, root: PathBuf::from("/") }
    }

    /// Whether it is up, or what its program waits on.
    pub(crate) fn look(&self) -> Result<Up, String> {
        let looked = blocking(async {
            let systemd = Systemd::connect(&self.root).await;
            Ok(match systemd {
                Ok(systemd) => look(&systemd, &self.name).await,
                Err(error) => Err(unreachable(&error)),
            })
        });
        looked.unwrap_or_else(|error| Err(format!("systemd: {error}")))
    }

    /// Runs a job to its end; returns what systemd says of one that did not succeed.
    pub(crate) fn job(&self, kind: JobKind, within: Duration) -> io::Result<String> {
        blocking(async {
            let systemd = Systemd::connect(&self.root).await.map_err(io::Error::other)?;
            let deadline = Instant::now() + within;
            Ok(match systemd.job(kind, &self.name, deadline).await.map_err(io::Error::other)? {
                Job::Ended(result) if result == "done" => String::new(),
                Job::Ended(result) => {
                    format!("systemd says `{result}`: see `journalctl -u {}`", self.name)
                }
                Job::Running(_) => format!("systemd has not ended it within {within:?}"),
            })
        })
    }
}

async fn look(systemd: &Systemd, name: &UnitName) -> Result<Up, String> {
    let unit = systemd.unit(name).await.map_err(|error| unreachable(&error))?;
    match (unit.load.as_str(), unit.active.as_str()) {
        (_, "active" | "reloading" | "refreshing") => {
            let process = systemd.main_process(&unit).await.map_err(|error| unreachable(&error))?;
            Ok(Up { process })
        }
        ("not-found", _) => Err(format!("the unit {name}, which does not exist")),
        ("masked", _) => Err(format!("the unit {name}, which is masked")),
        (_, active) => Err(format!("the unit {name}, which is {active}")),
    }
}

fn unreachable(error: &Error) -> String {
    format!("systemd: {error}")
}

/// Runs a future to its end on a thread of its own: the caller may be in a runtime already, in which it must not wait.
fn blocking<T: Send>(future: impl Future<Output = io::Result<T>> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("systemd".to_owned());
        let started = thread.spawn_scoped(scope, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(future)
        })?;
        started.join().unwrap_or_else(|_| Err(io::Error::other("it ended without an answer")))
    })
}

/// A connection that is kept, for callers that look often, and the signals about the unit.
#[derive(Debug)]
pub(crate) struct Watch {
    unit: Unit,
    wants_signals: bool,
    systemd: Option<Systemd>,
    /// Subscribed to before the first look.
    signals: Option<Signals>,
}

impl Watch {
    pub(crate) fn new(unit: Unit, wants_signals: bool) -> Self {
        Watch { unit, wants_signals, systemd: None, signals: None }
    }

    /// The same as [`Unit::look`].
    pub(crate) async fn look(&mut self) -> Result<Up, String> {
        let looked = match self.connect().await {
            Ok(systemd) => look(&systemd, &self.unit.name).await,
            Err(error) => Err(unreachable(&error)),
        };
        if looked.is_err() {
            // The connection may be to blame.
            self.systemd = None;
        }
        looked
    }

    async fn connect(&mut self) -> Result<Systemd, Error> {
        if self.wants_signals && self.signals.is_none() {
            self.signals = Some(Signals::subscribe(&self.unit.root).await?);
        }
        if let Some(systemd) = &self.systemd {
            return Ok(systemd.clone());
        }
        let systemd = Systemd::connect(&self.unit.root).await?;
        Ok(self.systemd.insert(systemd).clone())
    }

    /// Returns when the unit may have changed; never, without signals. Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        loop {
            let Some(signals) = &mut self.signals else { return std::future::pending().await };
            match signals.next().await {
                Ok(Signal::Unit(name)) if name != self.unit.name => {}
                Ok(_) => return,
                Err(_) => {
                    // The next look subscribes again.
                    self.signals = None;
                    return;
                }
            }
        }
    }
}
