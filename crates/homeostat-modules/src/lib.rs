//! The modules source: kernel modules loaded as declared.
//!
//! A module is loaded by `modprobe`, as the kernel itself does it: with what it depends on, and with the options and
//! the bans of `modprobe.d`. What is part of the kernel counts as loaded. Nothing is ever unloaded: a module that is no
//! longer declared stays, and so does one that a trial has loaded.
//!
//! Start at [`Modules`] for the source, at [`DesiredState::new`] for what is declared.
//!
//! ```
//! use homeostat_modules::{DesiredState, Modules, ModuleName};
//!
//! let desired = DesiredState::new(["8021q".parse::<ModuleName>()?]);
//! let source = Modules::of_the_system();
//! # let _ = (source, desired);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod key;
mod model;
mod observe;
mod plan;
mod program;
#[cfg(feature = "document")]
mod registration;
#[cfg(feature = "document")]
pub mod section;
mod source;
mod step;

pub use apply::Writer;
pub use key::{Key, KeyError, ModuleName, NameError};
pub use model::{DesiredState, State};
pub use observe::Reader;
#[cfg(feature = "document")]
pub use registration::REGISTRATION;
pub use source::{Modules, Roots};
pub use step::Step;
