//! Enters, pins, identifies, creates and removes network namespaces, and builds the rootless sandbox.
//!
//! Nothing here configures what is *inside* a namespace: a created one is as the kernel makes it, with `lo` down.
//! Start at [`Netns`]; [`Place`] is how a person points at one, [`Identity`] how a record names one,
//! [`Sandbox`] how a whole process gets one without privileges.
//!
//! A namespace belongs to a *thread*. A thread that entered another one sees that one's `/proc/sys/net`
//! and sockets, but `/proc/net` (it follows the process) and `/sys/class/net` (it follows the mount) stay.

mod error;
mod hosts;
mod identity;
mod name;
mod named;
mod netns;
mod place;
mod sandbox;
mod sys;

pub use error::Error;
pub use hosts::forget_hosts;
pub use identity::{Cookie, Identity};
pub use name::Name;
pub use named::{
    create, create_over_leftover, is_leftover, names, pin, remove, remove_leftover, unpin,
};
pub use netns::Netns;
pub use place::Place;
pub use sandbox::{Sandbox, Switch};

/// What this crate's calls return.
pub type Result<T, E = Error> = std::result::Result<T, E>;
