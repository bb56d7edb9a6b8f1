//! The knobs source: kernel parameters (sysctl), files of sysfs and cgroup v2 limits, kept by one engine.
//!
//! A knob is a file with a short text. The kernel rewrites what is written (tabs, decimal numbers,
//! rounding), ties some knobs together, and announces almost no change. Limits only: no group, process or link is ever made, moved or removed.
//!
//! Start at [`Knobs`] for the source, at [`DesiredState::builder`] for what is declared.

mod absence;
mod apply;
pub mod cgroup;
mod coupled;
mod coupling;
mod gate;
mod hints;
mod ipv6_off;
mod key;
mod knob_file;
mod model;
mod normalize;
mod observe;
mod plan;
#[cfg(feature = "document")]
mod registration;
#[cfg(feature = "document")]
pub mod section;
pub mod show;
mod source;
mod sys;
mod sysfs;

pub use absence::Absence;
pub use apply::Writer;
pub use gate::Gate;
pub use key::{CgroupFile, Key, KeyError, SysctlPath, SysfsPath};
pub use model::{Builder, DesiredError, DesiredState, Value, Wanted};
pub use observe::{Moment, Reader};
pub use plan::{Step, Why};
#[cfg(feature = "document")]
pub use registration::REGISTRATION;
pub use source::{Knobs, Roots};
pub use sysfs::{OwnSysfs, Sysfs};
