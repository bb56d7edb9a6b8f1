//! The namespaces source: named network namespaces, made when declared, removed when nothing foreign is inside.
//!
//! A namespace can hold no mark of ours, so the ledger says which ones we made, each with its cookie
//! and the boot it lived in: one that was deleted and made again under the same name is not ours.
//! Other sources manage what is *inside* a namespace; this one only looks there before it
//! removes the name.
//!
//! Start at [`Namespaces`] for the source, at [`DesiredState::new`] for what is declared. The flow is `observe`
//! (with `inside`), `plan`, `apply`. There are no hints: a resync finds what went.
//!
//! ```
//! use homeostat_namespaces::{DesiredState, Key, Mark, Namespaces, Protocol};
//!
//! let source = Namespaces::new(Mark::new(Protocol(76), "default"));
//! let desired = DesiredState::new(["namespace blue".parse::<Key>()?]);
//! # let _ = (source, desired);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod inside;
mod key;
mod mark;
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
pub use key::{Key, NotAKey};
pub use mark::{Mark, Protocol};
pub use model::{DesiredState, Namespace};
pub use observe::{Moment, Reader};
#[cfg(feature = "document")]
pub use registration::REGISTRATION;
pub use source::{Namespaces, OwnTable};
pub use step::{Ground, Step};
