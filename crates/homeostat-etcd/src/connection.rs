//! One connection to one member: HTTP/2 with the frames of gRPC.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::endpoint::Endpoint;
use crate::tls::TlsFiles;

/// A member is asked for a sign of life after this time of silence. Members punish those who ask more often than every
/// five seconds.
const PING: Duration = Duration::from_secs(20);
/// A busy member may take its time: a shorter limit ends healthy connections.
const PONG: Duration = Duration::from_secs(20);
/// A larger answer is refused.
const LARGEST: usize = 256 << 20;
/// A frame begins with a byte that says whether it is compressed, and four with its length.
const FRAME_HEADER: usize = 5;

type RequestBody = UnsyncBoxBody<Bytes, Infallible>;

/// A connection to a member. What it has open ends with its last handle.
pub(crate) struct Connection {
    send: SendRequest<RequestBody>,
    member: Endpoint,
    /// What requests are addressed to.
    origin: String,
    driver: JoinHandle<()>,
}

/// Why a call got no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// Nothing was sent.
    NotSent { why: String },
    /// It was sent, and no whole answer has come.
    NoAnswer { why: String },
    /// The member refused it, with the numbers of gRPC.
    Status { code: u32, message: String },
}

impl Connection {
    pub(crate) async fn open(
        member: &Endpoint,
        tls: Option<&TlsFiles>,
    ) -> Result<Arc<Self>, String> {
        let stream = TcpStream::connect((member.host.as_str(), member.port))
            .await
            .map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .keep_alive_while_idle(true);
        let (send, driver) = if let Some(files) = tls {
            let config = files.config().map_err(|error| error.to_string())?;
            let name = ServerName::try_from(member.host.clone())
                .map_err(|_| format!("`{}` cannot be in a certificate", member.host))?;
            let connector = TlsConnector::from(Arc::new(config));
            let stream =
                connector.connect(name, stream).await.map_err(|error| error.to_string())?;
            let (send, driver) =
                builder.handshake(TokioIo::new(stream)).await.map_err(|it| with_causes(&it))?;
            (send, tokio::spawn(async { _ = driver.await }))
        } else {
            let (send, driver) =
                builder.handshake(TokioIo::new(stream)).await.map_err(|it| with_causes(&it))?;
            (send, tokio::spawn(async { _ = driver.await }))
        };
        let origin = format!("{}://{member}", if tls.is_some() { "https" } else { "http" });
        Ok(Arc::new(Connection { send, member: member.clone(), origin, driver }))
    }

    pub(crate) fn member(&self) -> &Endpoint {
        &self.member
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.send.is_closed()
    }

    /// One message for one.
    pub(crate) async fn call<Q: Message, A: Message + Default>(
        &self,
        path: &str,
        request: &Q,
        limit: Duration,
    ) -> Result<A, CallError> {
        let mut is_sent = false;
        let body = Full::new(frame(request)).boxed_unsync();
        let answer = timeout(limit, self.exchange(path, body, &mut is_sent)).await;
        let why = format!("{}: no answer within {limit:.1?}", self.member);
        match answer {
            Ok(answer) => answer,
            Err(_) if is_sent => Err(CallError::NoAnswer { why }),
            Err(_) => Err(CallError::NotSent { why }),
        }
    }

    async fn exchange<A: Message + Default>(
        &self,
        path: &str,
        body: RequestBody,
        is_sent: &mut bool,
    ) -> Result<A, CallError> {
        let response = self.send(path, body, is_sent).await?;
        status(response.headers())?;
        let collected = Limited::new(response.into_body(), LARGEST).collect().await;
        let collected = collected.map_err(|error| self.no_answer(&*error))?;
        collected.trailers().map_or(Ok(()), status)?;
        let bytes = collected.to_bytes();
        let message = bytes.get(FRAME_HEADER..).filter(|_| bytes.first() == Some(&0));
        let message = message.ok_or_else(|| self.malformed("a frame was expected"))?;
        A::decode(message).map_err(|error| self.malformed(&error.to_string()))
    }

    /// Sends one message and receives many. The stream stays open until it is dropped.
    pub(crate) async fn stream<Q: Message>(
        self: &Arc<Self>,
        path: &str,
        request: &Q,
    ) -> Result<Streaming, CallError> {
        let first = stream::iter([Ok(Frame::data(frame(request)))]);
        let body = StreamBody::new(first.chain(stream::pending())).boxed_unsync();
        let response = self.send(path, body, &mut false).await?;
        status(response.headers())?;
        let (connection, body) = (Arc::clone(self), response.into_body());
        Ok(Streaming { connection, body, buffer: Vec::new() })
    }

    async fn send(
        &self,
        path: &str,
        body: RequestBody,
        is_sent: &mut bool,
    ) -> Result<Response<Incoming>, CallError> {
        let not_sent = |why: String| CallError::NotSent { why: format!("{}: {why}", self.member) };
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("{}{path}", self.origin))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            // A member that is cut off from the others must say so, and not be silent.
            .header(HeaderName::from_static("hasleader"), HeaderValue::from_static("true"))
            .body(body)
            .map_err(|error| not_sent(error.to_string()))?;
        let mut send = self.send.clone();
        send.ready().await.map_err(|error| not_sent(with_causes(&error)))?;
        *is_sent = true;
        let response = send.send_request(request).await.map_err(|it| self.no_answer(&it))?;
        if response.status() != StatusCode::OK {
            return Err(self.malformed(&response.status().to_string()));
        }
        Ok(response)
    }

    fn no_answer(&self, error: &(dyn std::error::Error + 'static)) -> CallError {
        CallError::NoAnswer { why: format!("{}: {}", self.member, with_causes(error)) }
    }

    fn malformed(&self, why: &str) -> CallError {
        CallError::NoAnswer { why: format!("{}: no answer of etcd: {why}", self.member) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Messages that come one after the other.
pub(crate) struct Streaming {
    connection: Arc<Connection>,
    body: Incoming,
    /// Received, and not yet decoded.
    buffer: Vec<u8>,
}

impl Streaming {
    pub(crate) fn member(&self) -> &Endpoint {
        self.connection.member()
    }

    /// Dropping the future loses nothing. A stream that the member has ended is an error.
    pub(crate) async fn next<A: Message + Default>(&mut self) -> Result<A, CallError> {
        loop {
            if let Some(message) = self.take_frame()? {
                return A::decode(message.as_slice())
                    .map_err(|error| self.connection.malformed(&error.to_string()));
            }
            match self.body.frame().await {
                None => return Err(self.connection.malformed("the stream has ended")),
                Some(Err(error)) => return Err(self.connection.no_answer(&error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.buffer.extend_from_slice(&data),
                    Err(frame) => frame.trailers_ref().map_or(Ok(()), status)?,
                },
            }
        }
    }

    fn take_frame(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        let Some((header, rest)) = self.buffer.split_first_chunk::<FRAME_HEADER>() else {
            return Ok(None);
        };
        let [compressed, length @ ..] = *header;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if compressed != 0 || length > LARGEST {
            return Err(self.connection.malformed("a frame that was not asked for"));
        }
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let message = message.to_vec();
        self.buffer.drain(..FRAME_HEADER + length);
        Ok(Some(message))
    }
}

fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(FRAME_HEADER + length);
    frame.push(0);
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(&message.encode_to_vec());
    frame.into()
}

/// What the headers or trailers say of the outcome; nothing is good.
fn status(headers: &HeaderMap) -> Result<(), CallError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status").map_or(Some(0), |code| code.parse().ok()).unwrap_or(2);
    if code == 0 {
        return Ok(());
    }
    let message = text("grpc-message").unwrap_or_default();
    let message = percent_encoding::percent_decode_str(message).decode_utf8_lossy().into_owned();
    Err(CallError::Status { code, message })
}

/// An error with those that it comes from: hyper's own texts say little.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
