//! The pages, and where what is on them comes from.

use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::page::{ASSETS, Asset, POLICY, PageSource};
use super::stream::EventStream;
use crate::daemon::loops_snapshot::LoopsSnapshot;
use crate::daemon::metrics::{Exposition, Meters};
use crate::daemon::recent::Recent;

/// Everything that can be read.
#[derive(Clone)]
pub(in crate::daemon) struct Site {
    pub(in crate::daemon) snapshot: watch::Receiver<LoopsSnapshot>,
    pub(in crate::daemon) recent: Recent,
    pub(in crate::daemon) meters: Meters,
    pub(in crate::daemon) page: PageSource,
}

/// A page, or a stream of events.
pub(super) type Answer = Response<Either<Full<Bytes>, EventStream>>;

const PAGES: &str = "there is nothing here; try /, /healthz, /readyz, /metrics, /api/v1/status, \
                     /api/v1/open or /api/v1/events";

impl Site {
    /// The page of a path.
    pub(in crate::daemon) async fn answer(&self, path: &str, query: &str) -> Answer {
        match path {
            "/" => for_people(self.page.page(query).await),
            // Browsers ask for it, and would report its absence.
            "/favicon.ico" => page(StatusCode::NO_CONTENT, "image/x-icon", String::new()),
            "/healthz" => self.health(),
            "/readyz" => self.readiness(),
            "/api/v1/status" => self.status(),
            "/api/v1/open" => self.open(query),
            "/api/v1/events" => self.events(),
            _ => match ASSETS.iter().find(|asset| asset.path == path) {
                Some(asset) => unchanging(asset),
                None => text(StatusCode::NOT_FOUND, PAGES),
            },
        }
    }

    /// Healthy is what does not hang, however much it may find wrong with the machine.
    fn health(&self) -> Answer {
        let snapshot = self.snapshot.borrow();
        let stalled = snapshot.loops.iter().filter_map(|one| {
            let (ledger_key, stall) = (one.ledger_key(), one.status().stall?.to_string());
            let (source, scope) = (&ledger_key.source, &ledger_key.scope);
            Some(json!({ "source": source, "scope": scope, "stall": stall }))
        });
        let stalled: Vec<Value> = stalled.collect();
        let is_healthy = stalled.is_empty();
        json(is_healthy, &json!({ "healthy": is_healthy, "stalled": stalled }))
    }

    fn readiness(&self) -> Answer {
        let snapshot = self.snapshot.borrow();
        let waiting = snapshot
            .starting()
            .map(
                |one| json!({ "source": one.ledger_key().source, "scope": one.ledger_key().scope }),
            )
            .collect::<Vec<Value>>();
        let is_ready = snapshot.is_ready();
        json(is_ready, &json!({ "ready": is_ready, "waiting": waiting }))
    }

    /// `/metrics`, in the format that the client can read.
    pub(super) fn metrics(&self, format: Exposition) -> Answer {
        let snapshot = self.snapshot.borrow();
        match self.meters.text(&snapshot, format) {
            Ok(text) => page(StatusCode::OK, format.content_type(), text),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written"),
        }
    }

    /// The same status as over the socket, with whether the daemon is healthy.
    fn status(&self) -> Answer {
        let snapshot = self.snapshot.borrow();
        let mut status = serde_json::to_value(snapshot.overview()).unwrap_or_default();
        if let Value::Object(fields) = &mut status {
            fields.insert("healthy".to_owned(), snapshot.is_healthy().into());
        }
        json(true, &status)
    }

    /// A page of the open keys: `after` is the `next` of another page, `limit` the size.
    fn open(&self, query: &str) -> Answer {
        let (mut after, mut limit) = (None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*name, value.parse()) {
                ("after", _) => after = Some(value.into_owned()),
                ("limit", Ok(count)) => limit = Some(count),
                _ => {
                    let why = "`after=NEXT` and `limit=NUMBER` may be asked for";
                    return text(StatusCode::BAD_REQUEST, why);
                }
            }
        }
        json(true, &self.snapshot.borrow().open(after.as_deref(), limit))
    }

    fn events(&self) -> Answer {
        let lines = self.recent.follow().0.into_iter().map(|line| format!("{}\n", line.text));
        page(StatusCode::OK, "application/x-ndjson", lines.collect())
    }
}

fn json(is_well: bool, body: &impl Serialize) -> Answer {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::to_string(body).unwrap_or_default();
    page(status, "application/json", body + "\n")
}

pub(super) fn text(status: StatusCode, words: &str) -> Answer {
    page(status, "text/plain; charset=utf-8", format!("{words}\n"))
}

/// A page for a browser, which is told to load nothing from elsewhere and to run nothing of what is in the text.
fn for_people(body: String) -> Answer {
    let mut answer = page(StatusCode::OK, "text/html; charset=utf-8", body);
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// A text whose path changes with it.
fn unchanging(asset: &Asset) -> Answer {
    let mut answer = page(StatusCode::OK, asset.kind, asset.text.to_owned());
    let for_ever = HeaderValue::from_static("public, max-age=31536000, immutable");
    answer.headers_mut().insert(header::CACHE_CONTROL, for_ever);
    answer
}

fn page(status: StatusCode, kind: &'static str, body: String) -> Answer {
    answer(status, kind, Either::Left(Full::new(body.into())))
}

pub(super) fn answer(
    status: StatusCode,
    kind: &'static str,
    body: Either<Full<Bytes>, EventStream>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
pub(in crate::daemon) mod tests {
    use std::sync::Arc;

    use homeostat_engine::{LedgerKey, WaitsOn};
    use http_body_util::BodyExt as _;

    use std::path::Path;

    use tokio::time::Instant;

    use super::super::page::About;
    use super::*;
    use crate::confirmed::ConfirmedDocuments;
    use crate::daemon::answers::Answers;
    use crate::daemon::command::DaemonHandle;
    use crate::daemon::live::Live;
    use crate::machine::Waiting;

    /// A site that shows this, with nothing that has happened.
    pub(in crate::daemon::http) fn site(snapshot: LoopsSnapshot) -> Site {
        site_of(watch::channel(snapshot).1)
    }

    /// A site that shows what this has.
    pub(in crate::daemon) fn site_of(snapshot: watch::Receiver<LoopsSnapshot>) -> Site {
        let (recent, meters) = (Recent::default(), Meters::default());
        let (commands, _) = DaemonHandle::new();
        let answers = Answers { snapshot: snapshot.clone(), commands, recent: recent.clone() };
        let about = About {
            host: "edge1".to_owned(),
            owner: "default".to_owned(),
            since: Instant::now(),
            confirmed: ConfirmedDocuments::of(Path::new("/nonexistent"), "default"),
        };
        let (live, about) = (Live::default(), Arc::new(about));
        let page = PageSource { snapshot: snapshot.clone(), answers, live, about };
        Site { snapshot, recent, meters, page }
    }

    #[tokio::test]
    async fn the_page_of_a_million_open_keys_is_small() {
        let ledger_key = LedgerKey::new("me", "rtnl", "blue");
        let on = WaitsOn::Namespace("blue".to_owned());
        let keys = (0..1_000_000).map(|at| format!("route {at} <b>{}</b>", "x".repeat(90)));
        let waiting = vec![Waiting { ledger_key, keys: keys.collect(), on }];
        let snapshot = LoopsSnapshot { waiting, is_arranged: true, ..LoopsSnapshot::default() };
        let page = site(snapshot).page.page("").await;
        assert!(page.len() <= 64 << 10, "{} bytes", page.len());
        assert!(page.contains("1,000,000 pending"), "{page}");
        assert!(page.contains("route 0 &lt;b&gt;xxx") && !page.contains("<b>"), "{page}");
    }

    #[tokio::test]
    async fn the_page_says_nothing_of_elsewhere_and_a_browser_is_told_so() {
        let answer = site(LoopsSnapshot::default()).answer("/", "").await;
        let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none';") && !policy.contains("unsafe"),
            "{policy}"
        );
        let page = answer.into_body().collect().await.unwrap().to_bytes();
        let page = str::from_utf8(&page).unwrap();
        assert!(page.contains("<title>edge1: starting</title>"), "{page}");
        assert!(!page.contains("://") && !page.contains("style="), "{page}");
    }

    #[tokio::test]
    async fn a_scope_that_is_missing_is_not_converged_over_http_either() {
        let ledger_key = LedgerKey::new("me", "rtnl", "blue");
        let on = WaitsOn::Namespace("blue".to_owned());
        let keys = vec!["route 10.0.0.0/8".to_owned()];
        let waiting = vec![Waiting { ledger_key, keys, on }];
        let snapshot = LoopsSnapshot { waiting, is_arranged: true, ..LoopsSnapshot::default() };
        let page = site(snapshot).status().into_body().collect().await.unwrap().to_bytes();
        let page = str::from_utf8(&page).unwrap();
        assert!(page.contains("\"converged\":false"), "{page}");
        assert!(page.contains("\"waits_on\":\"namespace blue\""), "{page}");
    }
}
