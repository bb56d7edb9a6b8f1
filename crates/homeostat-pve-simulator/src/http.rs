//! Serves one connection: the TLS handshake, then requests and answers, with the faults that apply to each.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, LOCATION};
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

pub(crate) type Shared = Arc<Mutex<World>>;

pub(crate) fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a connection until the client closes it or a fault drops it.
pub(crate) async fn serve_connection<S>(stream: S, acceptor: TlsAcceptor, world: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| respond(request, Arc::clone(&world)));
    // A dropped request ends the connection with an error, which is intended.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Answers a request; an error drops the connection without an answer.
async fn respond(request: Request<Incoming>, world: Shared) -> io::Result<Response<Full<Bytes>>> {
    let dropped = || io::Error::other("the connection was dropped");
    let call = read(request).await.ok_or_else(dropped)?;
    let (harms, mended) = {
        let mut world = lock(&world);
        (world.harm(&call), world.mended)
    };
    let mut begins_after = Duration::ZERO;
    for harm in &harms {
        match harm {
            Harm::DropRequest => return Err(dropped()),
            Harm::Refuse(status, text) => {
                lock(&world).calls.push(call);
                return to_response(&Answer::error(*status, text.clone()));
            }
            Harm::Answer(status, body) => {
                lock(&world).calls.push(call);
                return response(*status, body.to_string());
            }
            Harm::Redirect(to) => {
                lock(&world).calls.push(call);
                let mut answer = to_response(&Answer::error(302, "Found"))?;
                let to = to.parse().map_err(io::Error::other)?;
                answer.headers_mut().insert(LOCATION, to);
                return Ok(answer);
            }
            Harm::Slow(pause) => tokio::time::sleep(*pause).await,
            Harm::BeginLater(pause) => begins_after = *pause,
            // Until `World::mend` is called once more.
            Harm::Hold => {
                while lock(&world).mended == mended {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            Harm::ChangeBefore(change) => change(&mut lock(&world)),
            Harm::Twice => {
                let mut world = lock(&world);
                world.calls.push(call.clone());
                route::answer(&mut world, &call);
            }
            Harm::DropResponse | Harm::Mask(..) | Harm::HangUp | Harm::Late(_) => {}
        }
    }
    let work = {
        let world = Arc::clone(&world);
        async move {
            tokio::time::sleep(begins_after).await;
            let mut world = lock(&world);
            world.calls.push(call.clone());
            route::answer(&mut world, &call)
        }
    };
    let answer = if begins_after.is_zero() {
        work.await
    } else {
        // A client that closes its connection drops the service future, and not this.
        tokio::spawn(work).await.map_err(io::Error::other)?
    };
    for harm in harms {
        match harm {
            Harm::DropResponse => return Err(dropped()),
            Harm::Late(pause) => tokio::time::sleep(pause).await,
            Harm::Mask(status, text) => return to_response(&Answer::error(status, text)),
            Harm::HangUp => {
                let mut response = to_response(&answer)?;
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                return Ok(response);
            }
            _ => {}
        }
    }
    to_response(&answer)
}

/// The only type of body that is read.
const FORM: &str = "application/x-www-form-urlencoded";

async fn read(request: Request<Incoming>) -> Option<Call> {
    let path = request.uri().path();
    let path = path.strip_prefix("/api2/json").unwrap_or(path).to_owned();
    let mut parameters = form(request.uri().query().unwrap_or_default().as_bytes());
    let header = request.headers().get(AUTHORIZATION);
    let authorization = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
    // HTTP/1.1 requires this header.
    request.headers().get(HOST)?;
    let method = request.method().to_string();
    let kind = request.headers().get(CONTENT_TYPE);
    let is_form = kind.is_some_and(|kind| kind.as_bytes().starts_with(FORM.as_bytes()));
    let body = request.into_body().collect().await.ok()?.to_bytes();
    if is_form {
        parameters.extend(form(&body));
    }
    Some(Call { method, path, parameters, authorization })
}

fn response(status: u16, body: String) -> io::Result<Response<Full<Bytes>>> {
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json;charset=UTF-8")
        .body(Full::new(Bytes::from(body)))
        .map_err(io::Error::other)
}

fn to_response(answer: &Answer) -> io::Result<Response<Full<Bytes>>> {
    let mut response = response(answer.status, answer.body.to_string())?;
    let reason = answer.reason.as_ref().map(|reason| reason.replace('\n', " "));
    if let Some(reason) = reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok()) {
        response.extensions_mut().insert(reason);
    }
    Ok(response)
}
