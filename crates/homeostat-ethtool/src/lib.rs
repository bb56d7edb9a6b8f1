//! The ethtool source: what drivers let one set of links, kept as declared.
//!
//! Each setting is a value that a link always has: the first apply claims it, and the ledger keeps what it was before.
//! What is not declared is left alone. A value that a driver rounds, or that the kernel holds back because another
//! feature is off, is *settled*. No link is ever made or removed.
//!
//! Start at [`Ethtool`] for the source, at [`DesiredState::new`] for what is declared. `setting` lists what there is,
//! `message` has the messages, `device` what one link says.
//!
//! ```
//! use homeostat_ethtool::{DesiredState, Ethtool, Key, Value};
//!
//! let tso: Key = "ethtool eth0 feature tso".parse()?;
//! let desired = DesiredState::new([(tso, Value::Switch(false))]);
//! let source = Ethtool::new(None);
//! # let _ = (source, desired);
//! # Ok::<(), homeostat_ethtool::KeyError>(())
//! ```

mod absence;
mod apply;
mod device;
mod hints;
mod key;
mod message;
mod model;
mod observe;
mod plan;
#[cfg(feature = "document")]
mod registration;
#[cfg(feature = "document")]
pub mod section;
mod setting;
mod source;
mod step;

pub use absence::Absence;
pub use apply::Writer;
pub use device::Limits;
pub use key::{Key, KeyError};
pub use model::{Bit, DesiredState, Value, Wanted};
pub use observe::{Moment, Reader};
#[cfg(feature = "document")]
pub use registration::REGISTRATION;
pub use setting::{Group, Setting, Spec};
pub use source::Ethtool;
pub use step::Step;
