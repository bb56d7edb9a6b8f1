//! Fetches what an HTTP server says: by HTTPS, or by HTTP from this machine itself.
//!
//! An answer counts only if it is whole and not too large. Redirects stay with the same server, so a token goes to no other.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::text::quoted;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    AUTHORIZATION, CONNECTION, ETAG, HOST, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED, LOCATION, TRANSFER_ENCODING, USER_AGENT,
};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::Error;
use crate::reading::text;

/// More redirects than this lead nowhere.
const MOST_REDIRECTS: usize = 5;

/// Where a text is fetched, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UrlOrigin {
    pub url: Url,
    /// The time between two questions.
    pub every: Duration,
    /// A question that takes longer has no answer.
    pub timeout: Duration,
    /// A larger answer is refused, in bytes.
    pub at_most: u64,
    /// The credential whose text is sent as a bearer token.
    pub bearer: Option<String>,
    /// A file with the certificates of the authorities to trust, in PEM, in place of those of the system.
    pub authority: Option<PathBuf>,
}

impl UrlOrigin {
    /// Asks every five minutes, for thirty seconds, for at most a mebibyte.
    #[must_use]
    pub fn new(url: Url) -> Self {
        UrlOrigin {
            url,
            every: Duration::from_mins(5),
            timeout: Duration::from_secs(30),
            at_most: 1 << 20,
            bearer: None,
            authority: None,
        }
    }
}

/// An address of HTTPS, or of HTTP on this machine. Neither `Debug` nor `Display` shows its query.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    /// A name or an address, without brackets.
    host: String,
    port: u16,
    path: String,
    query: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl FromStr for Url {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self, Error> {
        let refused = |why| Error::Url { url: without_query(url).to_owned(), why };
        if url.contains('#') {
            return Err(refused("a fragment is of no use to a server"));
        }
        let uri: Uri = url.parse().map_err(|_| refused("it is no URL"))?;
        let scheme = match uri.scheme_str() {
            Some("https") => Scheme::Https,
            Some("http") => Scheme::Http,
            _ => return Err(refused("it begins with neither https:// nor http://")),
        };
        let authority = uri.authority().ok_or_else(|| refused("it names no server"))?;
        if authority.as_str().contains('@') {
            return Err(refused("a password does not belong into a URL"));
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = match authority.port() {
            Some(port) => Some(port.as_u16()),
            None if authority.as_str().ends_with(':') => None,
            None => Some(if scheme == Scheme::Https { 443 } else { 80 }),
        };
        let port = port.filter(|port| *port != 0).ok_or_else(|| refused("its port is no port"))?;
        if ServerName::try_from(host).is_err() {
            return Err(refused("it names no server"));
        }
        let host = host.to_ascii_lowercase();
        if scheme == Scheme::Http && !is_loopback(&host) {
            return Err(refused("others could read and change what is sent by http: use https"));
        }
        let (path, query) = (uri.path().to_owned(), uri.query().map(str::to_owned));
        Ok(Url { scheme, host, port, path, query })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback())
}

/// A query may have a secret in it.
fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

impl Url {
    /// As requests name the server.
    fn authority(&self) -> String {
        let Url { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// What a request asks for.
    fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// The whole URL, with a query that may be secret.
    pub(crate) fn whole(&self) -> String {
        let scheme = if self.scheme == Scheme::Https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.target())
    }

    /// Where a redirect leads to; nothing if that is another server.
    fn redirected(&self, location: &str) -> Option<Url> {
        let base = without_query(&self.path);
        let whole = Url { path: String::new(), query: None, ..self.clone() }.whole();
        let target = if location.contains("://") {
            location.to_owned()
        } else if location.starts_with("//") {
            let scheme = whole.split("//").next()?;
            format!("{scheme}{location}")
        } else if location.starts_with('/') {
            format!("{whole}{location}")
        } else {
            let directory = base.rsplit_once('/').map_or("", |(directory, _)| directory);
            format!("{whole}{directory}/{location}")
        };
        let target: Url = target.split('#').next()?.parse().ok()?;
        let origin = |url: &Url| (url.scheme, url.host.clone(), url.port);
        (origin(&target) == origin(self)).then_some(target)
    }
}

/// Without the query, which may have a secret in it.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(without_query(&self.whole()))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an answer is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validators {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
}

pub(crate) enum Fetched {
    /// It is what the validators are of.
    Same,
    New {
        text: String,
        validators: Validators,
    },
}

/// Asks one server.
pub(crate) struct Client {
    origin: UrlOrigin,
    /// Made by the first question, and again after one that has failed: authorities may have changed.
    tls: Option<TlsConnector>,
}

/// Why there is no answer, in words.
type Why = String;

impl Client {
    pub(crate) fn new(origin: UrlOrigin) -> Self {
        Client { origin, tls: None }
    }

    pub(crate) async fn fetch(
        &mut self,
        token: Option<&str>,
        known: &Validators,
    ) -> Result<Fetched, Error> {
        let timeout = self.origin.timeout;
        let fetched = tokio::time::timeout(timeout, self.follow(token, known)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")));
        let url = self.origin.url.to_string();
        match fetched {
            Ok((None, _)) => Ok(Fetched::Same),
            Ok((Some(bytes), validators)) => {
                Ok(Fetched::New { text: text(&url, bytes)?, validators })
            }
            Err(why) => {
                self.tls = None;
                Err(Error::Fetch { url, why: quoted(why) })
            }
        }
    }

    /// The bytes of the answer, after redirects; nothing if they are the known ones.
    async fn follow(
        &mut self,
        token: Option<&str>,
        known: &Validators,
    ) -> Result<(Option<Vec<u8>>, Validators), Why> {
        let mut url = self.origin.url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let request = request(&url, token, known)?;
            let (head, bytes) = self.exchange(&url, request).await?;
            let location = head.headers.get(LOCATION).filter(|_| head.status.is_redirection());
            if let Some(location) = location {
                let location = location.to_str().map_err(|_| "it redirects to no URL")?;
                let target = url.redirected(location);
                url = target.ok_or("it redirects to another server, which is not followed")?;
                continue;
            }
            let header = |name: HeaderName| head.headers.get(name).cloned();
            let validators = Validators { etag: header(ETAG), modified: header(LAST_MODIFIED) };
            return match head.status {
                StatusCode::OK => Ok((Some(bytes), validators)),
                StatusCode::NOT_MODIFIED if *known != Validators::default() => {
                    Ok((None, validators))
                }
                status => Err(format!("the server answers {status}")),
            };
        }
        Err(format!("it redirects more than {MOST_REDIRECTS} times"))
    }

    async fn exchange(
        &mut self,
        url: &Url,
        request: Request<Empty<Bytes>>,
    ) -> Result<(hyper::http::response::Parts, Vec<u8>), Why> {
        let most = self.origin.at_most;
        let stream = connect(url).await.map_err(|error| error.to_string())?;
        match url.scheme {
            Scheme::Http => exchange_on(stream, request, most).await,
            Scheme::Https => {
                let tls = self.tls()?;
                let name = ServerName::try_from(url.host.clone());
                let name = name.map_err(|error| error.to_string())?;
                let stream = tls.connect(name, stream).await.map_err(|error| error.to_string())?;
                exchange_on(stream, request, most).await
            }
        }
    }

    fn tls(&mut self) -> Result<TlsConnector, Why> {
        if let Some(tls) = &self.tls {
            return Ok(tls.clone());
        }
        let mut roots = RootCertStore::empty();
        match &self.origin.authority {
            Some(path) => {
                let failed = |why: String| format!("cannot read {}: {why}", path.display());
                let certificates = CertificateDer::pem_file_iter(path);
                let certificates = certificates.map_err(|error| failed(error.to_string()))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                    roots.add(certificate).map_err(|error| failed(error.to_string()))?;
                }
            }
            // With an empty store every handshake fails.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self.tls.insert(TlsConnector::from(Arc::new(config))).clone())
    }
}

/// A name of this machine may lead elsewhere, so the address is what counts.
async fn connect(url: &Url) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the server's name has no address");
    for address in tokio::net::lookup_host((url.host.as_str(), url.port)).await? {
        if url.scheme == Scheme::Http && !address.ip().is_loopback() {
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn request(
    url: &Url,
    token: Option<&str>,
    known: &Validators,
) -> Result<Request<Empty<Bytes>>, Why> {
    let mut headers = HeaderMap::new();
    let mut add = |name: HeaderName, value: Option<HeaderValue>| {
        headers.extend(value.map(|value| (name, value)));
    };
    add(HOST, HeaderValue::from_str(&url.authority()).ok());
    add(USER_AGENT, Some(HeaderValue::from_static("homeostat")));
    add(CONNECTION, Some(HeaderValue::from_static("close")));
    add(IF_NONE_MATCH, known.etag.clone());
    add(IF_MODIFIED_SINCE, known.modified.clone());
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        let mut value = value.map_err(|_| "the token cannot be sent in a header")?;
        value.set_sensitive(true);
        add(AUTHORIZATION, Some(value));
    }
    let mut request =
        Request::get(url.target()).body(Empty::new()).map_err(|error| error.to_string())?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Sends a request, and reads the whole answer.
async fn exchange_on(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Empty<Bytes>>,
    most: u64,
) -> Result<(hyper::http::response::Parts, Vec<u8>), Why> {
    let (mut send, drive) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let exchange = async {
        let response = send.send_request(request).await.map_err(|error| error.to_string())?;
        read(response, most).await
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // The server may have answered before it closed the connection.
        _ = drive => exchange.await,
    }
}

async fn read(
    response: Response<Incoming>,
    most: u64,
) -> Result<(hyper::http::response::Parts, Vec<u8>), Why> {
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Ok((head, Vec::new()));
    }
    let coding = head.headers.get(TRANSFER_ENCODING).and_then(|coding| coding.to_str().ok());
    let is_chunked = coding.is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    if body.size_hint().exact().is_none() && !is_chunked {
        return Err("the server does not say how long its answer is: it may be cut off".to_owned());
    }
    let too_large = || format!("the answer is larger than {most} bytes");
    if body.size_hint().lower() > most {
        return Err(too_large());
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match Limited::new(body, most).collect().await {
        Ok(body) => Ok((head, body.to_bytes().into())),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(format!("the answer is not whole: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_https_or_http_on_this_machine() {
        let check = |url: &str, expected: Option<&str>| {
            let found = url.parse::<Url>().ok().map(|url| url.whole());
            assert_eq!(found.as_deref(), expected, "{url}");
        };
        check("https://lists.example/a.txt", Some("https://lists.example:443/a.txt"));
        check("https://Lists.Example:8443/a?b=c", Some("https://lists.example:8443/a?b=c"));
        check("https://[fd00::1]/", Some("https://[fd00::1]:443/"));
        check("http://127.0.0.1:8080/x", Some("http://127.0.0.1:8080/x"));
        check("http://[::1]:80", Some("http://[::1]:80/"));
        check("http://localhost/x", Some("http://localhost:80/x"));
        check("http://lists.example/x", None);
        check("http://127.0.0.1.example/x", None);
        check("http://localhost.example/x", None);
        check("https://user:pass@lists.example/", None);
        check("https://lists.example/#part", None);
        check("https://lists.example:0/", None);
        check("https://lists.example:/", None);
        check("ftp://lists.example/", None);
        check("lists.example", None);
        check("/a", None);
        check("https:///a", None);
        check("", None);
    }

    #[test]
    fn redirects_stay_with_the_server() {
        let url: Url = "https://lists.example/a/b.txt?q=1".parse().unwrap();
        let check = |location: &str, expected: Option<&str>| {
            let found = url.redirected(location).map(|url| url.whole());
            assert_eq!(found.as_deref(), expected, "{location}");
        };
        check("/c", Some("https://lists.example:443/c"));
        check("c?d", Some("https://lists.example:443/a/c?d"));
        check("https://lists.example/c#x", Some("https://lists.example:443/c"));
        check("https://LISTS.example:443/c", Some("https://lists.example:443/c"));
        check("//lists.example/c", Some("https://lists.example:443/c"));
        check("https://other.example/c", None);
        check("https://lists.example:444/c", None);
        check("http://lists.example/c", None);
        check("//other.example/c", None);
        check("https://lists.example@other.example/", None);
    }

    #[test]
    fn a_query_is_not_shown() {
        let url: Url = "https://lists.example/a?token=canary".parse().unwrap();
        assert_eq!(url.to_string(), "https://lists.example:443/a");
        assert!(!format!("{:?}", UrlOrigin::new(url)).contains("canary"));
        let error = "http://lists.example/a?token=canary".parse::<Url>().unwrap_err();
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}
