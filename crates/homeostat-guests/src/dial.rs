//! Connects to the server: by TCP, or by a function of the embedding program. TLS is added by the client.

use std::future::Future;
use std::io;
use std::sync::Arc;

use homeostat_core::outcome::Later;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::endpoint::Endpoint;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Dialled = Later<'static, io::Result<Box<dyn Stream>>>;

/// A function that connects to a server.
#[derive(Clone)]
pub(crate) struct Dial {
    dial: Arc<dyn Fn(Endpoint) -> Dialled + Send + Sync>,
    is_tcp: bool,
}

impl Dial {
    pub(crate) fn tcp() -> Self {
        let tcp = Dial::by(|Endpoint { host, port }| async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        Dial { is_tcp: true, ..tcp }
    }

    /// Whether both are the same way.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is_tcp && other.is_tcp || Arc::ptr_eq(&self.dial, &other.dial)
    }

    pub(crate) fn by<S, D>(dial: impl Fn(Endpoint) -> D + Send + Sync + 'static) -> Self
    where
        S: Stream + 'static,
        D: Future<Output = io::Result<S>> + Send + 'static,
    {
        let dial = move |to| -> Dialled {
            let dialled = dial(to);
            Box::pin(async move { Ok(Box::new(dialled.await?) as Box<dyn Stream>) })
        };
        Dial { dial: Arc::new(dial), is_tcp: false }
    }

    pub(crate) async fn connect(&self, to: &Endpoint) -> io::Result<Box<dyn Stream>> {
        (self.dial)(to.clone()).await
    }
}
