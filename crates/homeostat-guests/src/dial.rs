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

/// How a server is reached.
#[derive(Clone)]
pub(crate) enum Dial {
    Tcp,
    By(Arc<dyn Fn(Endpoint) -> Dialled + Send + Sync>),
}

impl Dial {
    pub(crate) fn by<S, D>(dial: impl Fn(Endpoint) -> D + Send + Sync + 'static) -> Self
    where
        S: Stream + 'static,
        D: Future<Output = io::Result<S>> + Send + 'static,
    {
        Dial::By(Arc::new(move |to| {
            let dialled = dial(to);
            Box::pin(async move { Ok(Box::new(dialled.await?) as Box<dyn Stream>) })
        }))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Dial::Tcp, Dial::Tcp) => true,
            (Dial::By(dial), Dial::By(other)) => Arc::ptr_eq(dial, other),
            _ => false,
        }
    }

    pub(crate) async fn connect(&self, to: &Endpoint) -> io::Result<Box<dyn Stream>> {
        match self {
            Dial::Tcp => {
                let stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Dial::By(dial) => dial(to.clone()).await,
        }
    }
}
