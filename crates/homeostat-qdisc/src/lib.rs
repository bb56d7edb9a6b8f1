//! The qdisc source: how links queue and shape what they send, and where they send what comes in.
//!
//! What is kept of a link is its root qdisc with all classes below, as one object, and the redirection of what comes in
//! to another link, where it can be shaped. Other filters belong to others, and so does every root qdisc whose handle is
//! not ours. What the kernel puts there by itself belongs to nobody, and returns when ours goes.
//!
//! Start at [`Qdiscs`] for the source, at [`DesiredState::new`] for what is declared, and at [`kinds`] for what a kind of
//! qdisc can be told. The flow is `observe`, `plan`, `apply`.
//!
//! ```
//! use homeostat_qdisc::{DesiredState, Object, Qdiscs, Wanted};
//!
//! let shaped = serde_json::json!({ "kind": "tbf", "rate": "10mbit", "burst": "32k", "limit": "64k" });
//! let side = Object::try_from(shaped)?.side;
//! let desired = DesiredState::new([("qdisc eth0".parse()?, Wanted { side, adopt: false })]);
//! let source = Qdiscs::here();
//! # let _ = (source, desired);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod hints;
mod kernel;
mod key;
pub mod kinds;
mod model;
mod observe;
mod plan;
pub mod quantity;
#[cfg(feature = "document")]
mod registration;
#[cfg(feature = "document")]
pub mod section;
mod show;
mod snapshot;
mod source;
mod step;
mod ticks;
mod wire;

pub use apply::Writer;
pub use key::{Key, LinkName, NotAKey, NotALink, Side as KeySide};
pub use model::{
    Class, ClassId, DesiredState, Ingress, NotAClassId, NotAnObject, Object, Qdisc, Root, Side,
    Wanted,
};
pub use observe::{Moment, Reader};
#[cfg(feature = "document")]
pub use registration::REGISTRATION;
pub use show::{Shown, list};
pub use source::Qdiscs;
pub use step::{Delete, GiveBack, How, Place, Step, Update};
