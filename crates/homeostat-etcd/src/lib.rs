//! A client of etcd that implements [`Store`](homeostat_store::Store).
//!
//! ```text
//!  EtcdStore ── which member, deadlines, what an error means
//!      │
//!  Connection ── TCP or TLS to one member, HTTP/2, one frame in, one frame out
//!      │
//!  messages ── the part of etcd's API that is used
//! ```
//!
//! Start at [`EtcdStore`].

#![warn(missing_docs)]

mod client;
mod connection;
mod endpoint;
mod error;
mod messages;
mod reconnect;
mod tls;
mod watch;

pub use client::EtcdStore;
pub use endpoint::{Config, Endpoint, EndpointError};
pub use tls::{TlsError, TlsFiles};
