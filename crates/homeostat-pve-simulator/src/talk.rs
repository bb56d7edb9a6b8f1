//! One conversation: the handshake, then requests and their answers, each with the faults that it meets.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use crate::answer::Answer;
use crate::call::{Call, form};
use crate::faults::Harm;
use crate::route;
use crate::world::World;

/// The world, as everybody who serves it and looks at it has it.
pub(crate) type Shared = Arc<Mutex<World>>;

/// Looks at the world, or changes it; what is due has happened before.
pub(crate) fn with<T>(world: &Shared, what: impl FnOnce(&mut World) -> T) -> T {
    let mut world = lock(world);
    world.settle();
    what(&mut world)
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Talks with whoever is at the other end, until they hang up or are to be dropped.
pub(crate) async fn converse<S>(stream: S, acceptor: TlsAcceptor, world: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
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

async fn respond(request: Request<Incoming>, world: Shared) -> Result<Response<Full<Bytes>>, Lost> {
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
            Harm::DropResponse | Harm::Mask(..) | Harm::HangUp | Harm::Late(_) => {}
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
            Harm::Late(pause) => tokio::time::sleep(pause).await,
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
