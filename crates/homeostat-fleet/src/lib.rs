//! temp

mod allowed_signers;
mod base64;
pub mod chunks;
mod digest;
mod error;
pub mod judge;
pub mod keys;
pub mod merkle;
mod name;
pub mod records;
mod signature;
mod time;

pub use allowed_signers::{AllowedSigners, Approval, Signer};
pub use digest::Digest;
pub use error::{Error, SignatureError};
pub use name::Name;
pub use signature::{PublicKey, Signature};
pub use time::Time;
