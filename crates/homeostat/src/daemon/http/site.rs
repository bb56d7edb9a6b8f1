//! What there is to read, and where it comes from.

use homeostat_engine::Control;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::answer::{Answer, JSON, JSON_LINES, METRICS};
use crate::daemon::metrics::Meters;
use crate::daemon::recent::Recent;
use crate::daemon::standing::Standing;
use crate::daemon::view::View;

/// Everything that can be read.
#[derive(Clone)]
pub(in crate::daemon) struct Site {
    pub(in crate::daemon) view: View,
    pub(in crate::daemon) standing: watch::Receiver<Standing>,
    pub(in crate::daemon) recent: Recent,
    pub(in crate::daemon) meters: Meters,
}

const PAGES: &str = "there is nothing here; try /healthz, /readyz, /metrics, /api/v1/status, \
                     /api/v1/open or /api/v1/events";

impl Site {
    /// The page of a path.
    pub(super) fn answer(&self, path: &str, query: &str) -> Answer {
        match path {
            "/healthz" => self.health(),
            "/readyz" => self.readiness(),
            "/metrics" => self.metrics(),
            "/api/v1/status" => self.status(),
            "/api/v1/open" => self.open(query),
            "/api/v1/events" => self.events(),
            _ => Answer::text(404, PAGES),
        }
    }

    #[cfg(test)]
    pub(in crate::daemon) fn status_of(&self, path: &str) -> u16 {
        self.answer(path, "").status()
    }

    /// Healthy is what does not hang, however much it may find wrong with the machine.
    fn health(&self) -> Answer {
        let stalled: Vec<Value> =
            self.view.loops().iter().filter_map(|one| stall(&**one)).collect();
        let is_healthy = stalled.is_empty();
        answer(is_healthy, &json!({ "healthy": is_healthy, "stalled": stalled }))
    }

    fn readiness(&self) -> Answer {
        let loops = self.view.loops();
        let waiting = loops.iter().filter(|one| !one.status().is_ready);
        let waiting: Vec<Value> = waiting.map(|one| place(&**one)).collect();
        let is_ready = self.view.is_ready();
        answer(is_ready, &json!({ "ready": is_ready, "waiting": waiting }))
    }

    fn metrics(&self) -> Answer {
        let provider = self.standing.borrow().provider.clone();
        match self.meters.text(&self.view.loops(), provider.as_ref()) {
            Ok(text) => Answer::new(200, METRICS, text),
            Err(_) => Answer::text(500, "the metrics cannot be written"),
        }
    }

    /// The same status as over the socket, with whether the daemon is healthy.
    fn status(&self) -> Answer {
        let overview = self.standing.borrow().overview();
        let mut status = serde_json::to_value(overview).unwrap_or_default();
        if let Value::Object(fields) = &mut status {
            fields.insert("healthy".to_owned(), self.view.is_healthy().into());
        }
        answer(true, &status)
    }

    /// A page of the open keys: `after` is the `next` of another page, `limit` the size.
    fn open(&self, query: &str) -> Answer {
        let (mut after, mut limit) = (None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*name, value.parse()) {
                ("after", _) => after = Some(value.into_owned()),
                ("limit", Ok(count)) => limit = Some(count),
                _ => return Answer::text(400, "`after=NEXT` and `limit=NUMBER` may be asked for"),
            }
        }
        let page = self.standing.borrow().open(after.as_deref(), limit);
        answer(true, &serde_json::to_value(page).unwrap_or_default())
    }

    fn events(&self) -> Answer {
        let lines = self.recent.all().into_iter().map(|line| format!("{}\n", line.text));
        Answer::new(200, JSON_LINES, lines.collect())
    }
}

fn answer(is_well: bool, body: &Value) -> Answer {
    Answer::new(if is_well { 200 } else { 503 }, JSON, format!("{body}\n"))
}

fn place(one: &dyn Control) -> Value {
    let place = one.place();
    json!({ "source": place.source, "scope": place.scope })
}

fn stall(one: &dyn Control) -> Option<Value> {
    let stall = one.status().stall?;
    let place = one.place();
    let why = stall.to_string();
    Some(json!({ "source": place.source, "scope": place.scope, "stall": why }))
}

#[cfg(test)]
mod tests {
    use homeostat_engine::{LedgerKey, WaitsOn};

    use super::super::request::Method;
    use super::*;
    use crate::machine::Waiting;

    #[test]
    fn a_scope_that_is_missing_is_not_converged_over_http_either() {
        let place = LedgerKey {
            owner: "me".to_owned(),
            source: "rtnl".to_owned(),
            scope: "blue".to_owned(),
            identity: String::new(),
        };
        let on = WaitsOn::Namespace("blue".to_owned());
        let waiting = vec![(place, Waiting { keys: vec!["route 10.0.0.0/8".to_owned()], on })];
        let standing = Standing { waiting, is_arranged: true, ..Standing::default() };
        let (recent, meters) = (Recent::default(), Meters::default());
        let site =
            Site { view: View::new().1, standing: watch::channel(standing).1, recent, meters };
        let page = String::from_utf8(site.status().into_bytes(Method::Get)).unwrap();
        assert!(page.contains("\"converged\":false"), "{page}");
        assert!(page.contains("\"waits_on\":\"namespace blue\""), "{page}");
    }
}
