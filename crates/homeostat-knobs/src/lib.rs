//! The knobs source: kernel parameters (sysctl) and cgroup v2 limits, kept by one engine.
//!
//! A knob is a file with a short text. The kernel rewrites what is written (tabs, decimal numbers,
//! rounding), ties some knobs together, and tells almost nobody when they change; all of that is
//! answered here. Limits only: no group, process or link is ever made, moved or removed.
//!
//! Start at [`Knobs`] for the source, at [`DesiredState::builder`] for what is declared.

mod absence;
mod apply;
mod builder;
pub mod cgroup;
mod coupling;
mod gate;
mod hints;
mod key;
mod known;
mod lines;
mod model;
mod normalize;
mod observe;
mod place;
mod plan;
mod queue;
mod ranges;
#[cfg(feature = "document")]
pub mod section;
mod source;
mod step;
mod suggest;
mod systemd;
mod tree;

pub use absence::Absence;
pub use apply::Writer;
pub use builder::{Builder, DesiredError};
pub use gate::Gate;
pub use key::{CgroupFile, Key, KeyError, SysctlPath};
pub use model::{DesiredState, Value, Wanted};
pub use observe::{Moment, Reader};
pub use place::Place;
pub use source::{HostWide, Knobs, Roots};
pub use step::{Step, Why};
