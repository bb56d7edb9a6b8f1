//! A small client of systemd over D-Bus: the states of units, jobs to their end, unit files, and signals.
//!
//! Start at [`Systemd::connect`]: it uses the system bus, and systemd's own socket while there is none, early in a boot.
//! [`follow_links`] is for links that change in the course of a boot. [`Signals`] has a connection of its own, so that unread signals hold back
//! no answer.
//!
//! ```no_run
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use std::path::Path;
//! use homeostat_systemd::{Systemd, UnitName};
//!
//! let systemd = Systemd::connect(Path::new("/")).await?;
//! let ssh: UnitName = "ssh.service".parse()?;
//! let unit = systemd.unit(&ssh).await?;
//! println!("{ssh} is {}", unit.active);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod boot;
mod client;
mod error;
mod name;
mod private;
mod signals;

pub use boot::follow_links;
pub use client::{Job, JobKind, Systemd, Unit};
pub use error::Error;
pub use name::{NotAUnit, UnitName};
pub use signals::{Signal, Signals};
