//! The nft source: whole tables in nft's own language, kept by the smallest atomic transaction.
//!
//! The text is loaded by `nft` itself into an empty namespace and read back from the kernel
//! (`compile.rs`), so that the kernel is the normalizer and expressions stay opaque bytes. A pass
//! reads our tables by netlink (`observe.rs`, `dump.rs`), compares them (`diff.rs`), and writes the
//! difference as one transaction under the generation that was observed (`apply.rs`, `encode.rs`). After a
//! hint it reads only what the kernel has not told by itself (`shadow.rs`).
//!
//! A key is a table, because a table is what is owned: it carries our mark in its comment. What a
//! step does inside of it is explained line by line (`step.rs`).
//!
//! Never done: listing through `nft` in a pass; touching a table that is neither ours nor declared.

mod apply;
mod aside;
mod clearing;
mod compile;
mod declared;
mod desired;
mod diff;
mod dump;
mod echo;
mod edit;
mod elements;
mod encode;
mod error;
mod expression;
mod hints;
mod hooked;
mod hosts;
mod key;
mod listing;
mod mark;
mod message;
mod model;
mod object;
mod observe;
mod op;
mod own;
mod placeholders;
mod plan;
mod program;
mod scan;
#[cfg(feature = "document")]
pub mod section;
mod shadow;
mod shown;
mod source;
mod statements;
mod step;
mod tlv;
mod version;

pub use apply::Writer;
pub use compile::{CompileError, Compiler, Fault, Included, Ruleset};
pub use desired::DesiredState;
pub use key::{Family, Key, KeyError};
pub use mark::Mark;
pub use object::Object;
pub use observe::{Moment, Reader};
pub use shown::Shown;
pub use source::{Nft, Wording};
pub use step::Step;
