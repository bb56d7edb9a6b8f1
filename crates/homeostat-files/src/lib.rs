//! The files source: sets of configuration files, kept by one engine.
//!
//! A set is written as one. Each file is staged beside its target with owner, mode and labels before its content, and
//! then exchanged with what is there: what comes out is compared with what was observed, and if it is something else, it
//! goes back. What was there before us is kept, and can be restored.
//!
//! Start at [`Files`] for the source, at [`DesiredState::new`] for what is declared.

mod accounts;
mod apply;
mod brake;
mod certificates;
mod check;
mod conffiles;
mod counters;
mod difference;
mod digest;
mod disk;
mod exclusive;
mod fanotify;
mod hints;
mod key;
mod live;
mod look;
mod masking;
mod model;
mod observe;
mod packages;
mod place;
mod plan;
mod process;
mod program;
pub mod programs;
mod recipe;
#[cfg(feature = "document")]
mod registration;
mod resolve;
#[cfg(feature = "document")]
pub mod resolver;
mod running;
#[cfg(feature = "document")]
pub mod section;
mod source;
mod started;
mod store;
mod swap;
mod sys;
mod trusted;
mod unit;
mod view;

pub use apply::Writer;
pub use brake::Limits;
pub use check::{Check, Network, Refusal, Verdict};
pub use counters::{Count, Counters, CountersBySet, LastValue};
pub use digest::{Digest, DigestKey};
pub use disk::Tap;
pub use exclusive::Exclusive;
pub use key::{FilePath, Key, PathError};
pub use live::LiveInputs;
pub use model::{
    Account, Attributes, Content, DesiredState, Difference, DirectorySpec, FileObject, FileSpec,
    Mode, Object, Other, Wanted,
};
pub use observe::{Moment, Reader};
pub use plan::{Left, Step};
pub use recipe::{FilePart, ProgramOf, Recipe};
#[cfg(feature = "document")]
pub use registration::REGISTRATION;
pub use running::{PLACEHOLDER, Program, Reload, Request, Running};
pub use source::{Files, Shrinking};
pub use store::Store;
pub use unit::Unit;
