//! Where wishes come from.
//!
//! A provider that cannot answer is *unknown*, never empty: an unknown wish deletes nothing. The
//! empty wish is a wish like any other, and somebody has to have said it. [`Latest`] keeps the last
//! good wish through an outage. Start at [`Provider`].

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
    /// This is wished, be it ever so little.
    Wish(Arc<W>),
    /// It cannot tell: the last good wish stands.
    Unknown {
        /// Why it cannot, for people.
        why: String,
    },
    /// There is no wish here and will be none: nothing is performed, so nothing is deleted either.
    Nothing,
}

/// One place where a wish comes from.
pub trait Provider: Send {
    /// What is wished, as the source takes it.
    type Wish: Send + Sync + 'static;

    /// What is wished at this moment.
    fn answer(&mut self) -> impl Future<Output = Answer<Self::Wish>> + Send;

    /// Waits until another answer may be due since the last one. Dropping the future loses nothing.
    /// The default waits for ever: this provider is asked when somebody feels like it.
    fn changed(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}
