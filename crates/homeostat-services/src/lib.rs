//! The services source: systemd units enabled, active and masked as declared.
//!
//! Each of the three is a value of its own, which a unit always has: the first apply claims it, and the ledger keeps
//! what it was before. What is not declared is left alone. Nothing of a unit is written but these values; unit files
//! are files.
//!
//! Start at [`Services`] for the source, at [`DesiredState::new`] for what is declared. The flow is `observe`, `plan`,
//! `apply`.
//!
//! ```
//! use homeostat_services::{DesiredState, Key, Services};
//!
//! let desired = DesiredState::new([("service haproxy.service active".parse::<Key>()?, true)]);
//! let source = Services::of_the_system();
//! # let _ = (source, desired);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod key;
mod model;
mod observe;
mod plan;
#[cfg(feature = "document")]
mod registration;
#[cfg(feature = "document")]
pub mod section;
mod source;
mod step;

pub use apply::Writer;
pub use key::{Aspect, Key, NotAKey};
pub use model::{DesiredState, State, Wanted};
pub use observe::{Moment, Reader};
#[cfg(feature = "document")]
pub use registration::REGISTRATION;
pub use source::Services;
pub use step::Step;
