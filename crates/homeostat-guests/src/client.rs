//! Talks to the API: one request, one answer, over HTTPS and to one server only.
//!
//! No redirect is followed, so the token goes nowhere else. A connection is judged by its certificate
//! before anything is sent. A write has a connection of its own: on one that was idle the server may have
//! hung up, and nobody could tell whether the write had arrived.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::ext::ReasonPhrase;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::classify::{Asks, classify};
use crate::dial::Dial;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::form;
use crate::tls::Trust;
use crate::token::Token;

/// Answers are lists of guests at most; one that is larger is none of ours.
const MOST_BYTES: usize = 16 << 20;
/// Connections that are kept for the next read: a look asks every node twice at once.
const MOST_IDLE: usize = 32;

/// Talks to one cluster. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
}

struct Shared {
    endpoint: Endpoint,
    dial: Dial,
    token: Mutex<Token>,
    tls: TlsConnector,
    idle: Mutex<Vec<Talk>>,
}

/// A connection with what drives it: nothing is started beside the caller.
struct Talk {
    send: SendRequest<Full<Bytes>>,
    drive: Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Below `/api2/json`, its parts already escaped.
    pub(crate) path: String,
    pub(crate) parameters: Vec<(String, String)>,
}

impl Ask {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Ask { method: Method::GET, path: path.into(), parameters: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.parameters.push((name.to_owned(), value.into()));
        self
    }

    fn asks(&self) -> Asks {
        if self.method == Method::GET { Asks::Read } else { Asks::Write }
    }

    /// As errors name it: values stay out, for a description may be long and private.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.shared.endpoint)
            .field("token", &*self.token())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client; it connects when it is first asked for something.
    pub fn new(endpoint: Endpoint, token: Token, trust: &Trust) -> Result<Self, rustls::Error> {
        let config: Arc<ClientConfig> = trust.config()?;
        let (tls, idle) = (TlsConnector::from(config), Mutex::new(Vec::new()));
        let (dial, token) = (Dial::tcp(), Mutex::new(token));
        let shared = Arc::new(Shared { endpoint, dial, token, tls, idle });
        Ok(Client { shared, timeout: Duration::from_secs(30) })
    }

    /// A client of the same server that reaches it another way, through a tunnel say, in place of TCP. The
    /// server is judged by its certificate all the same, and a dial that takes long is given up in time. It
    /// shares no connections with this one.
    #[must_use]
    pub fn through<S, D>(&self, dial: impl Fn(Endpoint) -> D + Send + Sync + 'static) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        D: Future<Output = io::Result<S>> + Send + 'static,
    {
        let (endpoint, token) = (self.endpoint().clone(), Mutex::new(self.token().clone()));
        let (tls, idle) = (self.shared.tls.clone(), Mutex::new(Vec::new()));
        let shared = Shared { endpoint, dial: Dial::by(dial), token, tls, idle };
        Client { shared: Arc::new(shared), timeout: self.timeout }
    }

    /// The same client with another patience.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Client { shared: Arc::clone(&self.shared), timeout }
    }

    /// Where it asks.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// Whose tasks ours are.
    #[must_use]
    pub fn user(&self) -> String {
        self.token().user().to_owned()
    }

    fn token(&self) -> MutexGuard<'_, Token> {
        self.shared.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for something, and hands over the data of the answer. Who is not known by its token has done
    /// nothing yet: if the token's file holds another one by now, that is tried.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Value, Error> {
        let used = self.token().clone();
        match self.ask_once(&ask).await {
            Err(Error::Refused { status: 401, .. }) if self.renew(&used) => {
                self.ask_once(&ask).await
            }
            answer => answer,
        }
    }

    /// Takes another token in place of one that is not known any more; tells whether there is one.
    fn renew(&self, used: &Token) -> bool {
        let mut token = self.token();
        // Another request may have done it already.
        if token.is_like(used) {
            match used.renewed() {
                Some(renewed) => *token = renewed,
                None => return false,
            }
        }
        true
    }

    async fn ask_once(&self, ask: &Ask) -> Result<Value, Error> {
        let mut is_sent = false;
        let asked = tokio::time::timeout(self.timeout, self.exchange(ask, &mut is_sent)).await;
        asked.unwrap_or_else(|_| {
            let why = format!("no answer within {:?}", self.timeout);
            let lost = is_sent.then(|| Error::Lost { request: ask.name(), why: why.clone() });
            Err(lost.unwrap_or_else(|| self.unreachable(&why)))
        })
    }

    async fn exchange(&self, ask: &Ask, is_sent: &mut bool) -> Result<Value, Error> {
        if ask.asks() == Asks::Read {
            while let Some(talk) = self.idle() {
                // A server may hang up at any time on a connection that is idle.
                if let Ok(answer) = self.on(talk, ask).await {
                    return answered(ask, &answer);
                }
            }
        }
        let talk = self.connect().await?;
        *is_sent = true;
        answered(ask, &self.on(talk, ask).await?)
    }

    fn idle(&self) -> Option<Talk> {
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn unreachable(&self, why: &impl ToString) -> Error {
        Error::Unreachable { endpoint: self.shared.endpoint.to_string(), why: why.to_string() }
    }

    async fn connect(&self) -> Result<Talk, Error> {
        let Shared { endpoint, dial, .. } = &*self.shared;
        let name = ServerName::try_from(endpoint.host.clone());
        let name = name.map_err(|error| self.unreachable(&error))?;
        let stream = dial.reach(endpoint).await.map_err(|error| self.unreachable(&error))?;
        let stream = self.shared.tls.connect(name, stream).await;
        let stream = stream.map_err(|error| self.unreachable(&error))?;
        let made = http1::handshake(TokioIo::new(stream)).await;
        let (send, drive) = made.map_err(|error| self.unreachable(&error))?;
        Ok(Talk { send, drive: Box::pin(drive) })
    }

    /// One exchange on a connection, which is kept if it can be.
    async fn on(&self, mut talk: Talk, ask: &Ask) -> Result<Answered, Error> {
        let lost = |why: &dyn ToString| Error::Lost { request: ask.name(), why: why.to_string() };
        let request = self.request(ask).ok_or_else(|| lost(&"it cannot be put into words"))?;
        let answer = talk.say(request).await.map_err(|why| lost(&why))?;
        if !talk.send.is_closed() {
            let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MOST_IDLE {
                idle.push(talk);
            }
        }
        Ok(answer)
    }

    fn request(&self, ask: &Ask) -> Option<Request<Full<Bytes>>> {
        let parameters = form::encode(&ask.parameters);
        let is_read = ask.asks() == Asks::Read;
        let query = if is_read && !parameters.is_empty() {
            format!("?{parameters}")
        } else {
            String::new()
        };
        let body = if is_read { String::new() } else { parameters };
        let request = Request::builder()
            .method(ask.method.clone())
            .uri(format!("/api2/json{}{query}", ask.path))
            .header(HOST, self.shared.endpoint.authority())
            .header(AUTHORIZATION, self.token().header()?);
        let request = match ask.asks() {
            Asks::Read => request,
            Asks::Write => request.header(CONTENT_TYPE, "application/x-www-form-urlencoded"),
        };
        request.body(Full::new(Bytes::from(body))).ok()
    }
}

impl Talk {
    /// One request and its answer; else how that was lost.
    async fn say(&mut self, request: Request<Full<Bytes>>) -> Result<Answered, String> {
        let Talk { send, drive } = self;
        let asked = async {
            let response = send.send_request(request).await.map_err(|error| error.to_string())?;
            Answered::read(response).await
        };
        let mut asked = std::pin::pin!(asked);
        tokio::select! {
            biased;
            answer = &mut asked => answer,
            // Whoever has hung up may have answered before: then the answer is here.
            _ = drive => asked.await,
        }
    }
}

/// An answer, read to its end.
struct Answered {
    status: u16,
    reason: String,
    body: Bytes,
}

impl Answered {
    async fn read(response: Response<hyper::body::Incoming>) -> Result<Self, String> {
        let status = response.status();
        // The words of an error are in the status line.
        let reason = response.extensions().get::<ReasonPhrase>();
        let reason = reason.map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
        let reason = reason.or_else(|| status.canonical_reason().map(str::to_owned));
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(Answered { status: status.as_u16(), reason: reason.unwrap_or_default(), body })
    }
}

fn answered(ask: &Ask, answer: &Answered) -> Result<Value, Error> {
    let body: Result<Value, _> = serde_json::from_slice(&answer.body);
    let Answered { status, reason, .. } = answer;
    if *status != 200 {
        let body = body.unwrap_or_default();
        let words = words(reason, &body);
        let class = classify(*status, &words, ask.asks());
        return Err(Error::Refused { request: ask.name(), status: *status, words, class });
    }
    let senseless = |why: String| Error::Senseless { request: ask.name(), why };
    let mut body = body.map_err(|error| senseless(error.to_string()))?;
    body.get_mut("data").map(Value::take).ok_or_else(|| senseless("it has no data".to_owned()))
}

/// The status line, and which parameters are wrong.
fn words(reason: &str, body: &Value) -> String {
    let message = body.get("message").and_then(Value::as_str).map(str::trim);
    let mut words =
        message.filter(|message| !message.is_empty()).unwrap_or(reason.trim()).to_owned();
    for (name, why) in body.get("errors").and_then(Value::as_object).into_iter().flatten() {
        let why = why.as_str().unwrap_or_default().trim();
        words = format!("{words} {name}: {why}");
    }
    words
}
