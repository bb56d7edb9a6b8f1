//! How the server is reached: by TCP, unless the embedder knows another way.
//!
//! It ends where a connection is made. Whom it leads to is judged above, during the handshake.

use std::future::Future;
use std::io;
use std::sync::Arc;

use homeostat_core::outcome::Later;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::endpoint::Endpoint;

/// What bytes go to and come from.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Dialled = Later<'static, io::Result<Box<dyn Stream>>>;

/// A way to a server.
#[derive(Clone)]
pub(crate) struct Dial(Arc<dyn Fn(Endpoint) -> Dialled + Send + Sync>);

impl Dial {
    /// Over the network.
    pub(crate) fn tcp() -> Self {
        Dial::by(|Endpoint { host, port }| async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }

    /// As somebody else says.
    pub(crate) fn by<S, D>(dial: impl Fn(Endpoint) -> D + Send + Sync + 'static) -> Self
    where
        S: Stream + 'static,
        D: Future<Output = io::Result<S>> + Send + 'static,
    {
        Dial(Arc::new(move |to| {
            let dialled = dial(to);
            Box::pin(async move { Ok(Box::new(dialled.await?) as Box<dyn Stream>) })
        }))
    }

    /// Connects.
    pub(crate) async fn reach(&self, to: &Endpoint) -> io::Result<Box<dyn Stream>> {
        (self.0)(to.clone()).await
    }
}
