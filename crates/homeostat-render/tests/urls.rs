//! Inputs from URLs, against servers on the loopback that answer, hang, cheat and die.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{
    AUTHORIZATION, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LOCATION,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use homeostat_render::{
    Credentials, FileReader, Form, InputSpec, InputState, InputTasks, Inputs, Origin, Url,
    UrlOrigin, Verdict,
};

type Body = BoxBody<Bytes, Infallible>;
/// Method, path and headers of what a client has asked.
type Asked = Request<()>;

/// Answers by a function; returns the address, and what was asked.
async fn serve(
    answer: impl Fn(&Asked) -> Response<Body> + Send + Sync + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<Asked>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::default());
    let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            tokio::spawn(converse(stream, log, answer));
        }
    });
    (address, asked)
}

async fn converse(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    log: Arc<Mutex<Vec<Asked>>>,
    answer: Arc<impl Fn(&Asked) -> Response<Body>>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (head, _) = request.into_parts();
        let asked = Request::from_parts(head, ());
        let response = answer(&asked);
        log.lock().unwrap().push(asked);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    // The client may be gone.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Answers each connection by a function of the bare stream.
async fn serve_raw<A, F>(answer: A) -> SocketAddr
where
    A: Fn(TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The whole request, so that closing does not reset the connection.
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            tokio::spawn(answer(stream));
        }
    });
    address
}

fn text(text: impl Into<String>) -> Response<Body> {
    Response::new(Full::new(Bytes::from(text.into())).boxed())
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Empty::new().boxed());
    *response.status_mut() = status;
    response
}

fn redirect(location: &str) -> Response<Body> {
    let mut response = status(StatusCode::FOUND);
    response.headers_mut().insert(LOCATION, location.parse().unwrap());
    response
}

fn origin(address: SocketAddr) -> UrlOrigin {
    let url: Url = format!("http://{address}/list").parse().unwrap();
    let mut origin = UrlOrigin::new(url);
    origin.every = Duration::from_millis(5);
    origin
}

struct World {
    directory: TempDir,
    tasks: InputTasks,
    inputs: Inputs,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::in_directory(directory.path());
        let tasks = InputTasks::new(FileReader::once(), credentials);
        World { directory, tasks, inputs: Inputs::default() }
    }

    fn add(&mut self, name: &str, spec: InputSpec) {
        self.inputs.add(name, spec.kept(&self.directory.path().join("kept"), "set", name));
        self.tasks.start(name, spec);
    }

    fn add_url(&mut self, origin: UrlOrigin) {
        self.add("list", InputSpec::new(Origin::Url(origin)).form(Form::Lines));
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn value(&self, name: &str) -> Option<Json> {
        Some(serde_json::to_value(self.inputs.accepted().get(name)?).unwrap())
    }

    /// Accepts what comes until this is reached.
    async fn wait(&mut self, is_reached: impl Fn(&Self) -> bool) {
        loop {
            self.tasks.deliver(&mut self.inputs);
            while let Some(proposal) = self.inputs.propose() {
                let reads = proposal.values.keys().cloned().collect();
                self.inputs.judge(&proposal, Verdict::Accepted { reads }).unwrap();
            }
            if is_reached(self) {
                return;
            }
            self.tasks.changed().await;
        }
    }

    async fn wait_for(&mut self, name: &str, expected: Json) {
        self.wait(|world| world.value(name).as_ref() == Some(&expected)).await;
    }

    /// Why there is no answer.
    async fn silence(&mut self) -> String {
        self.wait(|world| world.said().is_some()).await;
        self.said().unwrap()
    }

    fn said(&self) -> Option<String> {
        match self.inputs.states().find(|(name, _)| *name == "list")?.1 {
            InputState::Unknown { why } => why,
            InputState::Accepted { silence } => silence,
            _ => None,
        }
    }
}

/// How many requests a server has had, once it had this many.
async fn wait_for_requests(asked: &Arc<Mutex<Vec<Asked>>>, count: usize) {
    while asked.lock().unwrap().len() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_answer_that_is_known_is_not_sent_again() {
    let version = Arc::new(Mutex::new("1"));
    let now = Arc::clone(&version);
    let (address, asked) = serve(move |asked| {
        let etag = format!("\"{}\"", now.lock().unwrap());
        if asked.headers().get(IF_NONE_MATCH).is_some_and(|known| *known == etag) {
            return status(StatusCode::NOT_MODIFIED);
        }
        let mut response = text(format!("{}\n", now.lock().unwrap()));
        response.headers_mut().insert(ETAG, etag.parse().unwrap());
        response
            .headers_mut()
            .insert(LAST_MODIFIED, "Tue, 17 Nov 2026 22:00:00 GMT".parse().unwrap());
        response
    })
    .await;
    let mut world = World::new();
    world.add_url(origin(address));
    world.wait_for("list", json!(["1"])).await;
    wait_for_requests(&asked, 3).await;
    {
        let asked = asked.lock().unwrap();
        assert!(asked[0].headers().get(IF_NONE_MATCH).is_none());
        assert_eq!(asked[1].headers()[IF_NONE_MATCH], "\"1\"");
        assert_eq!(asked[1].headers()[IF_MODIFIED_SINCE], "Tue, 17 Nov 2026 22:00:00 GMT");
    }
    *version.lock().unwrap() = "2";
    world.wait_for("list", json!(["2"])).await;
}

/// The server comes back, and its answer is the one that is known already.
#[tokio::test]
async fn a_server_that_comes_back_is_not_called_silent() {
    let is_down = Arc::new(Mutex::new(false));
    let now = Arc::clone(&is_down);
    let (address, _) = serve(move |asked| {
        if *now.lock().unwrap() {
            return status(StatusCode::BAD_GATEWAY);
        }
        if asked.headers().contains_key(IF_NONE_MATCH) {
            return status(StatusCode::NOT_MODIFIED);
        }
        let mut response = text("good\n");
        response.headers_mut().insert(ETAG, "\"1\"".parse().unwrap());
        response
    })
    .await;
    let mut world = World::new();
    world.add_url(origin(address));
    world.wait_for("list", json!(["good"])).await;
    *is_down.lock().unwrap() = true;
    world.silence().await;
    *is_down.lock().unwrap() = false;
    world.wait(|world| world.said().is_none()).await;
    assert_eq!(world.value("list"), Some(json!(["good"])));
}

#[tokio::test]
async fn a_server_that_hangs_delays_no_other_input() {
    let address = serve_raw(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let mut world = World::new();
    let mut slow = origin(address);
    slow.timeout = Duration::from_hours(1);
    world.add_url(slow);
    let path = world.write("near", "near");
    world.add("near", InputSpec::new(Origin::File(path)));
    world.wait_for("near", json!("near")).await;
    assert_eq!(world.said(), None);
}

/// The time is that of the whole answer: a byte now and then does not lengthen it.
#[tokio::test]
async fn a_server_that_is_too_slow_is_given_up() {
    let address = serve_raw(|mut stream| async move {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        while stream.write_all(b"x").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut world = World::new();
    let mut slow = origin(address);
    slow.timeout = Duration::from_millis(50);
    world.add_url(slow);
    let why = world.silence().await;
    assert!(why.contains("no answer within 50ms"), "{why}");
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused() {
    let (address, _) = serve(|asked| {
        if asked.uri().path() == "/list" {
            return text("x".repeat(2000));
        }
        let chunks = (0..200).map(|_| Ok(Frame::data(Bytes::from_static(&[b'x'; 100]))));
        Response::new(StreamBody::new(futures_util::stream::iter(chunks)).boxed())
    })
    .await;
    for path in ["list", "chunks"] {
        let mut world = World::new();
        let mut large = origin(address);
        large.url = format!("http://{address}/{path}").parse().unwrap();
        large.at_most = 1000;
        world.add_url(large.clone());
        let why = world.silence().await;
        assert!(why.ends_with("the answer is larger than 1000 bytes"), "{why}");
        let mut world = World::new();
        large.at_most = 20_000;
        world.add_url(large);
        world.wait(|world| world.value("list").is_some()).await;
    }
}

#[tokio::test]
async fn a_server_that_dies_leaves_no_half_of_an_answer() {
    for (head, expected) in [
        ("content-length: 100\r\n", "not whole"),
        ("transfer-encoding: chunked\r\n", "not whole"),
        ("", "does not say how long"),
    ] {
        let body = if head.starts_with('t') { "8\r\n1.2.3.4\n\r\n" } else { "1.2.3.4\n" };
        let answer = format!("HTTP/1.1 200 OK\r\n{head}connection: close\r\n\r\n{body}");
        let address = serve_raw(move |mut stream| {
            let answer = answer.clone();
            async move { stream.write_all(answer.as_bytes()).await.unwrap() }
        })
        .await;
        let mut world = World::new();
        world.add_url(origin(address));
        let why = world.silence().await;
        assert!(why.contains(expected), "{head}: {why}");
        assert_eq!(world.value("list"), None);
    }
    // One that is not there, or says nothing.
    let address = serve_raw(|_| async {}).await;
    let mut world = World::new();
    world.add_url(origin(address));
    world.silence().await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut world = World::new();
    world.add_url(origin(nobody));
    let why = world.silence().await;
    assert!(why.contains("refused"), "{why}");
}

#[tokio::test]
async fn the_last_good_answer_stays_while_the_server_fails_and_over_a_restart() {
    let is_down = Arc::new(Mutex::new(false));
    let now = Arc::clone(&is_down);
    let (address, _) = serve(move |_| {
        if *now.lock().unwrap() {
            return status(StatusCode::SERVICE_UNAVAILABLE);
        }
        text("good\n")
    })
    .await;
    let mut world = World::new();
    world.add_url(origin(address));
    world.wait_for("list", json!(["good"])).await;
    *is_down.lock().unwrap() = true;
    let why = world.silence().await;
    assert!(why.contains("503 Service Unavailable"), "{why}");
    assert_eq!(world.value("list"), Some(json!(["good"])));
    world.inputs = Inputs::default();
    world.tasks = InputTasks::new(FileReader::once(), Credentials::default());
    world.add_url(origin(address));
    assert_eq!(world.value("list"), Some(json!(["good"])));
    world.silence().await;
    assert_eq!(world.value("list"), Some(json!(["good"])));
}

#[tokio::test]
async fn redirects_are_followed_to_the_same_server_only() {
    let (other, stolen) = serve(|_| text("other\n")).await;
    let (address, asked) = serve(move |asked| match asked.uri().path() {
        "/list" => redirect("moved/here"),
        "/moved/here" => redirect("/end"),
        "/end" => text("end\n"),
        "/loop" => redirect("/loop"),
        _ => redirect(&format!("http://{other}/")),
    })
    .await;
    let mut world = World::new();
    world.write("token", "canary\n");
    let with_token = |path: &str| {
        let mut origin = origin(address);
        origin.url = format!("http://{address}/{path}").parse().unwrap();
        origin.bearer = Some("token".to_owned());
        origin
    };
    world.add_url(with_token("list"));
    world.wait_for("list", json!(["end"])).await;
    assert_eq!(asked.lock().unwrap()[2].headers()[AUTHORIZATION], "Bearer canary");
    for (path, expected) in [("loop", "more than 5 times"), ("away", "another server")] {
        let mut world = World::new();
        world.write("token", "canary\n");
        world.add_url(with_token(path));
        let why = world.silence().await;
        assert!(why.contains(expected) && !why.contains("canary"), "{why}");
    }
    assert_eq!(stolen.lock().unwrap().len(), 0);
    // Without its credential a server is not asked at all.
    let (address, asked) = serve(|_| text("open\n")).await;
    let mut world = World::new();
    let mut closed = origin(address);
    closed.bearer = Some("token".to_owned());
    world.add_url(closed);
    world.silence().await;
    assert_eq!(asked.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_server_is_known_by_its_certificate() {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = leaf.signed_by(&key, &root).unwrap().der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            tokio::spawn(converse(stream, Arc::default(), Arc::new(|_: &Asked| text("safe\n"))));
        }
    });
    let mut world = World::new();
    let authority = world.write("authority.pem", &root.pem());
    let mut origin = UrlOrigin::new(format!("https://localhost:{port}/").parse().unwrap());
    origin.authority = Some(authority.clone());
    world.add_url(origin.clone());
    world.wait_for("list", json!(["safe"])).await;
    // By an authority of the system, by one that cannot be read, and under another name.
    for refused in [
        UrlOrigin::new(origin.url.clone()),
        {
            let mut origin = origin.clone();
            origin.authority = Some("/nowhere.pem".into());
            origin
        },
        {
            let mut origin = UrlOrigin::new(format!("https://127.0.0.1:{port}/").parse().unwrap());
            origin.authority = Some(authority);
            origin
        },
    ] {
        let mut world = World::new();
        world.add_url(refused);
        world.silence().await;
        assert_eq!(world.value("list"), None);
    }
}
