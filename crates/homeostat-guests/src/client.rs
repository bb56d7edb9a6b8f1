//! The HTTPS client: one request, one answer, from one server.
//!
//! No redirect is followed, so that the token goes to no other server. The certificate is verified before anything
//! is sent. Every write has a new connection: the server may have closed an idle one, and it would be unknown
//! whether the write had arrived.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use homeostat_core::text::quoted;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::ext::ReasonPhrase;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::classify::{Access, classify};
use crate::dial::Dial;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::form;
use crate::shape::Scalar;
use crate::tls::{Trust, WrongFingerprint};
use crate::token::Token;

/// A larger answer is refused, unless more was expected.
const MOST_BYTES: usize = 1 << 20;
/// How many idle connections are kept for reads: an observe sends two requests per node at once.
const MOST_IDLE: usize = 32;

/// A client of one cluster. Clones share its token and its connections.
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    trust: Trust,
    dial: Dial,
    token: Arc<Mutex<Token>>,
    tls: TlsConnector,
    idle: Arc<Mutex<Vec<Connection>>>,
    timeout: Duration,
}

/// A connection with the future that drives it: no task is spawned.
struct Connection {
    send: SendRequest<Full<Bytes>>,
    drive: Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Below `/api2/json`, with escaped parts.
    pub(crate) path: String,
    pub(crate) parameters: Vec<(String, String)>,
    /// How many bytes the answer has at most.
    pub(crate) most: usize,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Call { method, path: path.into(), parameters: Vec::new(), most: MOST_BYTES }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Call::new(Method::GET, path)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.parameters.push((name.to_owned(), value.into()));
        self
    }

    /// The answer may be larger than others.
    pub(crate) fn up_to(self, most: usize) -> Self {
        Call { most, ..self }
    }

    fn access(&self) -> Access {
        if self.method == Method::GET { Access::Read } else { Access::Write }
    }

    /// As in errors: without parameters, since a description may be long and private.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .field("token", &*self.token())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects with the first request.
    pub fn new(endpoint: Endpoint, token: Token, trust: &Trust) -> Result<Self, rustls::Error> {
        let tls = TlsConnector::from(Arc::new(trust.config()?));
        Ok(Client {
            endpoint,
            trust: trust.clone(),
            dial: Dial::Tcp,
            token: Arc::new(Mutex::new(token)),
            tls,
            idle: Arc::default(),
            timeout: Duration::from_secs(30),
        })
    }

    /// A client of the same server that connects by `dial` in place of TCP, such as through a tunnel. The certificate
    /// is verified as before, and the timeout covers `dial`. It shares no connections with this client.
    #[must_use]
    pub fn through<S, D>(&self, dial: impl Fn(Endpoint) -> D + Send + Sync + 'static) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        D: Future<Output = io::Result<S>> + Send + 'static,
    {
        let token = Arc::new(Mutex::new(self.token().clone()));
        Client { dial: Dial::by(dial), token, idle: Arc::default(), ..self.clone() }
    }

    /// The same client with another timeout.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Client { timeout, ..self.clone() }
    }

    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The user of the token, without its name: the owner of our tasks.
    #[must_use]
    pub fn user(&self) -> String {
        self.token().user().to_owned()
    }

    /// Whether both reach the same server, by the same way and with the same token.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // Two clones have one token, which cannot be locked twice.
        let token = self.token().clone();
        self.timeout == other.timeout
            && self.endpoint == other.endpoint
            && self.trust == other.trust
            && self.dial.is_same(&other.dial)
            && token == *other.token()
    }

    fn token(&self) -> MutexGuard<'_, Token> {
        lock(&self.token)
    }

    /// Sends a request and returns the data of the answer. A request whose token was refused had no effect: if the
    /// file has a new token, the request is sent again with that.
    pub(crate) async fn send<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let used = self.token().clone();
        let answer = self.send_once(&call).await;
        let is_token_refused = matches!(answer, Err(Error::Refused { status: 401, .. }));
        if is_token_refused && self.renew(&used).await {
            self.send_once(&call).await
        } else {
            answer
        }
    }

    /// Replaces a token that was refused; false if there is no other.
    async fn renew(&self, used: &Token) -> bool {
        // Another request may have done it already.
        if !self.token().is_like(used) {
            return true;
        }
        let Some(renewed) = used.renewed().await else { return false };
        *self.token() = renewed;
        true
    }

    async fn send_once<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        let mut is_sent = false;
        let answer = tokio::time::timeout(self.timeout, self.exchange(call, &mut is_sent)).await;
        let why = format!("no answer within {:?}", self.timeout);
        match answer {
            Ok(answer) => answer,
            Err(_) if is_sent => Err(Error::Lost { request: call.name(), why }),
            Err(_) => Err(self.unreachable(&why)),
        }
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        call: &Call,
        is_sent: &mut bool,
    ) -> Result<T, Error> {
        let idle = || lock(&self.idle).pop();
        while call.access() == Access::Read
            && let Some(connection) = idle()
        {
            // The server may have closed an idle connection.
            if let Ok(answer) = self.exchange_on(connection, call).await {
                return data(call, &answer);
            }
        }
        let connection = self.connect().await?;
        *is_sent = true;
        data(call, &self.exchange_on(connection, call).await?)
    }

    fn unreachable(&self, why: &impl ToString) -> Error {
        Error::Unreachable { endpoint: self.endpoint.to_string(), why: quoted(why.to_string()) }
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let Client { endpoint, dial, tls, .. } = self;
        let name = ServerName::try_from(endpoint.host.clone());
        let name = name.map_err(|error| self.unreachable(&error))?;
        let stream = dial.connect(endpoint).await.map_err(|error| self.unreachable(&error))?;
        let stream = tls.connect(name, stream).await;
        let stream = stream.map_err(|error| match WrongFingerprint::of(&error) {
            Some(WrongFingerprint(seen)) => {
                Error::WrongFingerprint { endpoint: endpoint.to_string(), seen }
            }
            None => self.unreachable(&error),
        })?;
        let connection = http1::handshake(TokioIo::new(stream)).await;
        let (send, drive) = connection.map_err(|error| self.unreachable(&error))?;
        Ok(Connection { send, drive: Box::pin(drive) })
    }

    /// Sends a request on a connection, and keeps the connection for later reads.
    async fn exchange_on(
        &self,
        mut connection: Connection,
        call: &Call,
    ) -> Result<Response<Bytes>, Error> {
        let lost = |why: String| Error::Lost { request: call.name(), why: quoted(why) };
        let request = self.http_request(call);
        let request = request.ok_or_else(|| lost("it cannot be put into words".to_owned()))?;
        let answer = connection.exchange(request, call.most).await.map_err(lost)?;
        let mut idle = lock(&self.idle);
        if !connection.send.is_closed() && idle.len() < MOST_IDLE {
            idle.push(connection);
        }
        Ok(answer)
    }

    fn http_request(&self, call: &Call) -> Option<Request<Full<Bytes>>> {
        let parameters = form::encode(&call.parameters);
        let request = Request::builder()
            .method(call.method.clone())
            .header(HOST, self.endpoint.authority())
            .header(AUTHORIZATION, self.token().header()?);
        let path = format!("/api2/json{}", call.path);
        let (request, body) = match call.access() {
            Access::Read if parameters.is_empty() => (request.uri(path), parameters),
            Access::Read => (request.uri(format!("{path}?{parameters}")), String::new()),
            Access::Write => {
                let form = "application/x-www-form-urlencoded";
                (request.uri(path).header(CONTENT_TYPE, form), parameters)
            }
        };
        request.body(Full::new(Bytes::from(body))).ok()
    }
}

impl Connection {
    /// Sends a request and reads its answer, of so many bytes at most. The error says how the answer was lost.
    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        most: usize,
    ) -> Result<Response<Bytes>, String> {
        let Connection { send, drive } = self;
        let exchange = async {
            let response = send.send_request(request).await.map_err(|error| error.to_string())?;
            let (head, body) = response.into_parts();
            let body = match Limited::new(body, most).collect().await {
                Ok(body) => body.to_bytes(),
                // The status says that it is refused, whatever else the target says about it.
                Err(_) if head.status != StatusCode::OK => Bytes::new(),
                Err(error) => return Err(error.to_string()),
            };
            Ok(Response::from_parts(head, body))
        };
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            // The server may have answered before it closed the connection.
            _ = drive => exchange.await,
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An answer that is no error.
#[derive(Deserialize)]
struct Answer<T> {
    data: T,
}

/// What an error says besides the text of the status line.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    message: Scalar,
    /// Which parameters are wrong, and why.
    errors: BTreeMap<String, Scalar>,
}

fn data<T: DeserializeOwned>(call: &Call, answer: &Response<Bytes>) -> Result<T, Error> {
    let status = answer.status();
    if status != StatusCode::OK {
        // The text of an error is in the status line.
        let reason = answer.extensions().get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        let reason = reason.or_else(|| status.canonical_reason().map(str::as_bytes));
        let reason = String::from_utf8_lossy(reason.unwrap_or_default());
        let refusal = serde_json::from_slice(answer.body()).unwrap_or_default();
        let (status, words) = (status.as_u16(), error_text(&reason, refusal));
        let class = classify(status, &words, call.access());
        return Err(Error::Refused { request: call.name(), status, words, class });
    }
    let answer = serde_json::from_slice::<Answer<T>>(answer.body());
    let why = |error: serde_json::Error| quoted(error.to_string());
    let unexpected = |error| Error::UnexpectedAnswer { request: call.name(), why: why(error) };
    answer.map(|answer| answer.data).map_err(unexpected)
}

/// The text of the status line, with the wrong parameters.
fn error_text(reason: &str, Refusal { message, errors }: Refusal) -> String {
    let message = message.into_text();
    let message = message.trim();
    let message = if message.is_empty() { reason.trim() } else { message };
    let errors =
        errors.into_iter().map(|(name, why)| format!(" {name}: {}", why.into_text().trim()));
    quoted(std::iter::once(message.to_owned()).chain(errors).collect::<String>())
}
