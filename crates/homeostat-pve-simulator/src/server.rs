//! The server: HTTPS on the loopback, on a thread of its own.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::answer::Answer;
use crate::call::{Call, form};
use crate::faults::Harm;
use crate::route;
use crate::tls::{fingerprint, identity};
use crate::world::{SECRET, USER, World};

/// A simulated cluster that answers until it is dropped.
pub struct Simulator {
    world: Arc<Mutex<World>>,
    address: SocketAddr,
    certificate: Vec<u8>,
    authority: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Simulator {
    /// Serves a world on a free port of the loopback.
    pub fn start(world: World) -> io::Result<Self> {
        Simulator::start_at(world, 0)
    }

    /// Serves a world on this port.
    pub fn start_at(world: World, port: u16) -> io::Result<Self> {
        let identity = identity()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let world = Arc::new(Mutex::new(world));
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (served, acceptor) = (Arc::clone(&world), TlsAcceptor::from(identity.config));
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, acceptor, served) => {}
                    _ = stopped => {}
                }
            });
        });
        let (stop, thread) = (Some(stop), Some(thread));
        let (certificate, authority) = (identity.certificate, identity.authority);
        Ok(Simulator { world, address, certificate, authority, stop, thread })
    }

    /// Where it answers.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The fingerprint of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.certificate)
    }

    /// Its certificate.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The certificate of the authority that signed it, as a file has it.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The token that it knows from the start.
    #[must_use]
    pub fn token() -> String {
        format!("{USER}={SECRET}")
    }

    /// Looks at the world, or changes it; what is due has happened before.
    pub fn with<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        let mut world = lock(&self.world);
        world.settle();
        what(&mut world)
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: std::net::TcpListener, acceptor: TlsAcceptor, world: Arc<Mutex<World>>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(converse(stream, acceptor.clone(), Arc::clone(&world)));
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, world: Arc<Mutex<World>>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| respond(request, Arc::clone(&world)));
    // A request that is dropped ends the conversation with an error, as it should.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// The answer got lost on the way.
#[derive(Debug)]
struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("lost on the way")
    }
}

impl std::error::Error for Lost {}

impl From<Infallible> for Lost {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

async fn respond(
    request: Request<Incoming>,
    world: Arc<Mutex<World>>,
) -> Result<Response<Full<Bytes>>, Lost> {
    let call = read(request).await.ok_or(Lost)?;
    let (harms, mended) = {
        let mut world = lock(&world);
        (world.harm(&call), world.mended)
    };
    for harm in &harms {
        match harm {
            Harm::DropRequest => return Err(Lost),
            Harm::Refuse(status, words) => {
                lock(&world).calls.push(call);
                return print(&Answer::error(*status, words.clone()));
            }
            Harm::Redirect(to) => {
                lock(&world).calls.push(call);
                let mut answer = print(&Answer::error(302, "Found"))?;
                let to = to.parse().map_err(|_| Lost)?;
                answer.headers_mut().insert(hyper::header::LOCATION, to);
                return Ok(answer);
            }
            Harm::Slow(pause) => tokio::time::sleep(*pause).await,
            Harm::Hold => later_than(&world, mended).await,
            Harm::Meddle(what) => what(&mut lock(&world)),
            Harm::DropResponse | Harm::Mask(..) | Harm::HangUp => {}
        }
    }
    let answer = {
        let mut world = lock(&world);
        world.calls.push(call.clone());
        route::answer(&mut world, &call)
    };
    for harm in harms {
        match harm {
            Harm::DropResponse => return Err(Lost),
            Harm::Mask(status, words) => return print(&Answer::error(status, words)),
            Harm::HangUp => return print(&answer).map(hang_up),
            _ => {}
        }
    }
    print(&answer)
}

fn hang_up(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Waits until everything is mended once more. Whoever mends tells nobody.
async fn later_than(world: &Mutex<World>, mended: u32) {
    while lock(world).mended == mended {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a body must be.
const FORM: &str = "application/x-www-form-urlencoded";

async fn read(request: Request<Incoming>) -> Option<Call> {
    let path = request.uri().path();
    let path = path.strip_prefix("/api2/json").unwrap_or(path).to_owned();
    let mut parameters = form(request.uri().query().unwrap_or_default());
    let header = request.headers().get(hyper::header::AUTHORIZATION);
    let authorization = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
    // A request that does not say whom it is for is none.
    request.headers().get(hyper::header::HOST)?;
    let method = request.method().to_string();
    let kind = request.headers().get(hyper::header::CONTENT_TYPE);
    let is_form = kind.is_some_and(|kind| kind.as_bytes().starts_with(FORM.as_bytes()));
    let body = request.into_body().collect().await.ok()?.to_bytes();
    // A body of another kind is not looked into.
    if is_form {
        parameters.extend(form(std::str::from_utf8(&body).ok()?));
    }
    Some(Call { method, path, parameters, authorization })
}

fn print(answer: &Answer) -> Result<Response<Full<Bytes>>, Lost> {
    let body = Full::new(Bytes::from(answer.body.to_string()));
    let mut response = Response::builder()
        .status(answer.status)
        .header("content-type", "application/json;charset=UTF-8")
        .body(body)
        .map_err(|_| Lost)?;
    let reason = answer.reason.as_ref().map(|reason| reason.replace('\n', " "));
    if let Some(reason) = reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok()) {
        response.extensions_mut().insert(reason);
    }
    Ok(response)
}
