//! The nft source: whole tables in nft's own language, kept by the smallest atomic transaction.
//!
//! `nft` itself loads the text into an empty namespace, where it is read back from the kernel: the kernel is the
//! normalizer, and expressions stay opaque bytes. A pass reads our tables by netlink, compares them, and writes the
//! difference as one transaction under the generation that was observed. After a hint it reads only the tables that
//! notifications of the kernel do not explain.
//!
//! A key is a table, because a table is what is owned: its comment carries our mark. A step explains what it
//! does inside of the table, line by line.
//!
//! Never done: listing through `nft` in a pass; touching a table that is neither ours nor declared.
#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the constants of linux/netfilter/nf_tables.h")
)]

mod apply;
mod compile;
mod desired;
mod diff;
mod dump;
mod echo;
mod edit_script;
mod element_text;
mod elements;
mod encode;
mod error;
mod expression;
mod hints;
mod include;
mod key;
mod lexer;
mod links;
mod listing;
mod mark;
mod model;
mod object;
mod observe;
mod plan;
mod program;
#[cfg(feature = "document")]
mod registration;
mod rule_lines;
mod ruleset;
mod scratch;
#[cfg(feature = "document")]
pub mod section;
mod shadow;
mod source;
mod step;
mod wire;

pub use apply::Writer;
pub use compile::Compiler;
pub use desired::DesiredState;
pub use error::{CompileError, Fault};
pub use include::Included;
pub use key::{Family, Key, KeyError};
pub use listing::{Shown, show};
pub use mark::Mark;
pub use object::Object;
pub use observe::{Moment, Reader};
#[cfg(feature = "document")]
pub use registration::REGISTRATION;
pub use ruleset::Ruleset;
pub use source::{Nft, Wording};
pub use step::Step;
