//! Where desired states come from.
//!
//! A provider that cannot answer is *unknown*, never empty: an unknown desired state deletes nothing. The
//! empty desired state is a desired state like any other, and somebody has to have said it. [`Latest`] keeps the last
//! good desired state through an outage. Start at [`Provider`].

mod channel;
mod empty;
mod every;
mod file;
mod fixed;
mod latest;

use std::future::Future;
use std::sync::Arc;

pub use channel::{Channel, Sender, channel};
pub use empty::Empty;
pub use every::Every;
pub use file::File;
pub use fixed::Static;
pub use latest::{Latest, Standing};

/// What a provider says when it is asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<W> {
    /// This is declared, be it ever so little.
    DesiredState(Arc<W>),
    /// It cannot tell: the last good desired state stands.
    Unknown {
        /// Why it cannot, for people.
        why: String,
    },
    /// There is no desired state here and will be none: nothing is performed, so nothing is deleted either.
    Nothing,
}

/// One place where a desired state comes from.
pub trait Provider: Send {
    /// What is declared, as the source takes it.
    type DesiredState: Send + Sync + 'static;

    /// What is declared at this moment.
    fn answer(&mut self) -> impl Future<Output = Answer<Self::DesiredState>> + Send;

    /// Waits until another answer may be due since the last one. Dropping the future loses nothing.
    /// The default waits for ever: this provider is asked when somebody feels like it.
    fn changed(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}
