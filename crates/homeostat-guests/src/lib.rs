//! The guests source: run state and declared options of declared guests on Proxmox VE.
//!
//! The API is remote. A start is a task that runs for minutes, may outlive us, and must not be sent twice; errors are
//! distinguished by their text only; values read back in another form; the number of a deleted guest is used again.
//! Guests are never created or destroyed, and a guest that is not declared is not touched.
//!
//! Start at [`Guests`] for the source, at [`DesiredState::new`] for desired state, at [`Client`] for the API, and at
//! [`Client::through`] if the cluster is not reached by TCP.

mod api;
mod apply;
pub mod classify;
mod client;
mod command;
mod desired;
mod dial;
mod endpoint;
mod error;
mod follow;
mod form;
mod hints;
#[cfg(feature = "document")]
mod idempotent;
mod mark;
mod model;
mod nodes;
pub mod normalize;
mod observe;
#[cfg(feature = "document")]
mod operations;
mod plan;
mod recover;
#[cfg(feature = "document")]
mod registration;
#[cfg(feature = "document")]
pub mod section;
mod shape;
mod source;
mod step;
mod tls;
mod token;
mod upid;

pub use apply::Writer;
pub use client::Client;
pub use command::{Located, Sent, Verb};
pub use desired::{DesiredError, DesiredState};
pub use endpoint::{BadEndpoint, Endpoint};
pub use error::Error;
#[cfg(feature = "document")]
pub use idempotent::{Answer, Command, CommandOutcome};
pub use mark::Claimant;
pub use model::{BadKey, Guest, Kind, Run, Stop, Vmid, Wanted};
pub use observe::{Moment, Reader};
#[cfg(feature = "document")]
pub use registration::{REGISTRATION, carry_out};
pub use source::{Guests, Timeouts};
pub use step::Step;
pub use tls::{BadFingerprint, Fingerprint, Trust};
pub use token::{Token, TokenError};
