//! Events as they happen: server-sent events, for as long as the client takes them.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use http_body_util::{Either, StreamBody};
use hyper::StatusCode;
use hyper::body::{Bytes, Frame};
use hyper::header::HeaderMap;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::page::PageSource;
use super::site::{self, Answer};
use crate::daemon::recent::{Line, Recent};

pub(super) const KIND: &str = "text/event-stream";

/// A client that is gone is noticed when something is written to it.
const ALIVE: Duration = Duration::from_secs(15);

pub(super) type EventStream = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// What happened lately, then what happens.
pub(super) fn events(recent: &Recent, seat: OwnedSemaphorePermit) -> Answer {
    let (before, next) = recent.follow();
    let before: String = before.iter().map(event).collect();
    let after = stream::unfold((next, seat), |(mut next, seat)| async {
        let text = match timeout(ALIVE, next.recv()).await {
            Ok(Ok(line)) => event(&line),
            Ok(Err(RecvError::Lagged(missed))) => format!("event: missed\ndata: {missed}\n\n"),
            Ok(Err(RecvError::Closed)) => return None,
            Err(_) => ":\n\n".to_owned(),
        };
        Some((text, (next, seat)))
    });
    let texts = stream::iter([before]).chain(after);
    let frames = texts.map(|text| Ok(Frame::data(Bytes::from(text))));
    site::answer(StatusCode::OK, KIND, Either::Right(StreamBody::new(frames.boxed())))
}

/// Heals and the headline, for a page that is open: what it has missed, then what happens. A browser that connects again
/// by itself says which heal it knows last in a header.
pub(super) fn live(
    page: &PageSource,
    query: &str,
    headers: &HeaderMap,
    seat: OwnedSemaphorePermit,
) -> Answer {
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "after");
    let asked = asked.and_then(|(_, value)| value.parse().ok());
    let (missed, next) = page.live.follow(&page.snapshot, known.max(asked).unwrap_or(0));
    let after = stream::unfold((next, seat), |(mut next, seat)| async {
        let frame = match timeout(ALIVE, next.recv()).await {
            Ok(Ok(frame)) => frame,
            Ok(Err(RecvError::Lagged(missed))) => {
                format!("event: missed\ndata: {missed}\n\n").into()
            }
            Ok(Err(RecvError::Closed)) => return None,
            Err(_) => Bytes::from_static(b":\n\n"),
        };
        Some((frame, (next, seat)))
    });
    let frames = stream::iter(missed).chain(after).map(|frame| Ok(Frame::data(frame)));
    site::answer(StatusCode::OK, KIND, Either::Right(StreamBody::new(frames.boxed())))
}

fn event(line: &Line) -> String {
    format!("id: {}\ndata: {}\n\n", line.id, line.text)
}
