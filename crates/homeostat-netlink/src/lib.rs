//! Talks netlink: sockets, framing, batches, dumps, acks, multicast. Knows no routes and no rules.
//!
//! Start at [`Connection`] for requests and at [`Listener`] for events. Requests are written with [`Batch`]
//! and read with [`Message`] and [`Attrs`]; the kernel's numbers are in [`uapi`].
//!
//! What holds everywhere:
//! 1. An answer that was lost is *unknown*, never success: ENOBUFS on a connection marks the messages in flight.
//! 2. A dump is whole or an error: torn and truncated ones are drained and asked for again.
//! 3. Nothing that arrives can panic: a malformed object is a typed error of that object alone.
//! 4. No allocation per message: batches and buffers are reused. Only a refusal allocates, for the kernel's text.
//!
//! ```no_run
//! use homeostat_netlink::{Answer, Batch, Connection, Dumped, Family, uapi};
//!
//! # fn main() -> homeostat_netlink::Result<()> {
//! let mut connection = Connection::open(Family::Route)?;
//! let mut batch = Batch::new();
//! let mut message = batch.message(uapi::RTM_NEWLINK, uapi::NLM_F_CREATE | uapi::NLM_F_EXCL);
//! message.fixed(&[0; size_of::<uapi::ifinfomsg>()]).attr_str(uapi::IFLA_IFNAME, "br0");
//! message.nest(uapi::IFLA_LINKINFO, |info| _ = info.attr_str(uapi::IFLA_INFO_KIND, "bridge"));
//! message.finish()?;
//! connection.run(&mut batch, &mut |index, answer| match answer {
//!     Answer::Refused(refusal) => eprintln!("message {index}: {refusal}"),
//!     Answer::Unknown => eprintln!("message {index}: the answer was lost"),
//!     Answer::Done | Answer::Reply(_) => {}
//! })?;
//!
//! let mut request = Batch::new();
//! let mut message = request.message(uapi::RTM_GETLINK, 0);
//! message.fixed(&[0; size_of::<uapi::ifinfomsg>()]);
//! message.finish()?;
//! let mut links = 0;
//! connection.dump(&mut request, &mut |dumped| match dumped {
//!     Dumped::Object(_) => links += 1,
//!     Dumped::Restart => links = 0,
//! })
//! # }
//! ```
//!
//! A socket stays in the namespace it was opened in and works from any thread; while it is open,
//! it keeps that namespace alive.

#[cfg(feature = "tokio")]
mod async_listener;
mod batch;
mod connection;
mod decode;
mod error;
mod filter;
pub mod generic;
mod inbox;
mod listener;
mod options;
mod refusal;
mod socket;
mod sys;
pub mod uapi;

#[cfg(feature = "tokio")]
pub use async_listener::AsyncListener;
pub use batch::{Batch, MessageWriter};
pub use connection::{Answer, Connection, Dumped, Limits, Transacted};
pub use decode::{Attr, Attrs, Malformed, Message, Messages, Port};
pub use error::Error;
pub use filter::{Filter, Instruction};
pub use listener::{Event, Listener};
pub use options::{Family, Group, Options};
pub use refusal::Refusal;
pub use rustix::io::Errno;
pub use socket::{ReceiveBuffer, Socket};

/// The result of every step of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
