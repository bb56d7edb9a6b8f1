//! Declarations that live in the service's store, each with its finalizers.
//!
//! [`Declarations`] says how the store is listed, watched and written. `Lifecycle` of the kit does the rest:
//!
//! ```no_run
//! # use std::net::SocketAddr;
//! # use homeostat_kit::Reconciler;
//! # use homeostat_kit::lifecycle::Lifecycle;
//! # use homeostat_kit::Strategy;
//! # use homeostat_shapes::{client::Client, declarations::Declarations, source::Shapes};
//! # async fn run(service: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(service);
//! let strategy = Strategy::marker("me")?;
//! let declarations = Declarations { client: client.clone(), finalizer: "shapes".to_owned() };
//! let shapes = Shapes { client, strategy: strategy.clone() };
//! let shutdown = async { _ = tokio::signal::ctrl_c().await };
//! Reconciler::new(shapes, strategy).run(Lifecycle::new(declarations), shutdown).await?;
//! # Ok(()) }
//! ```

use std::collections::BTreeMap;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Failure, Retry};
use homeostat_kit::lifecycle::{Declaration, Finalizers};
use homeostat_kit::simple::{Refusal, Versioned};
use homeostat_kit::store::{Revision, Snapshot, Store, StoreWatch, WatchEvent};
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, Conditions, Lines, Reply, Request};
use crate::service;
use crate::shape::{FIELDS, Shape};

/// The store of a service, with the name of our finalizer.
#[derive(Clone)]
pub struct Declarations {
    pub client: Client,
    /// The name of our finalizer.
    pub finalizer: String,
}

type Declared = Declaration<Versioned<Shape>>;

impl Declarations {
    /// Declares a shape, as a user would.
    pub async fn declare(&self, name: &str, shape: &Shape) -> Result<(), Failure> {
        let reply = self.send("PUT", name, &serde_json::json!(shape)).await?;
        done(reply.status == 200, &reply)
    }

    /// Deletes a declaration, as a user would.
    pub async fn delete(&self, name: &str) -> Result<(), Failure> {
        let reply = self.send("DELETE", name, &Value::Null).await?;
        done(reply.status == 200, &reply)
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Reply, Failure> {
        let path = format!("/declarations/{path}");
        let request = Request::new(method, &path);
        let sent = self.client.send(request, Conditions::default(), body).await;
        sent.map_err(|error| match Refusal::from(error) {
            Refusal::Failed(failure) => failure,
            // Whether it was written shows in the store.
            other => Failure::new(format!("{other:?}"), Retry::Soon),
        })
    }

    fn finalizer(&self, key: &str) -> String {
        format!("{key}/finalizers/{}", self.finalizer)
    }
}

fn done(is_done: bool, reply: &Reply) -> Result<(), Failure> {
    if is_done { Ok(()) } else { Err(reply.failure()) }
}

fn declared(stored: service::Declaration, finalizer: &str) -> Result<Declared, Failure> {
    let shape = serde_json::from_value(stored.shape);
    let shape: Shape = shape.map_err(|error| Failure::from_error(&error, Retry::OnChange))?;
    Ok(Declaration {
        object: Versioned::declared(FIELDS.normalized(shape)),
        has_finalizer: stored.finalizers.contains(finalizer),
        is_deleting: stored.deleting,
    })
}

impl Store for Declarations {
    type Key = String;
    type Value = Declared;

    async fn list(&self) -> Result<Snapshot<String, Declared>, Failure> {
        let mut reply = self.client.read("/declarations").await?;
        let Some(revision) = reply.body["revision"].as_u64() else { return Err(reply.failure()) };
        let all = serde_json::from_value(reply.body["declarations"].take());
        let all: BTreeMap<String, service::Declaration> =
            all.map_err(|error| Failure::from_error(&error, Retry::Soon))?;
        let mut values = BTreeMap::new();
        for (key, stored) in all {
            values.insert(key, declared(stored, &self.finalizer)?);
        }
        Ok(Snapshot { revision, values })
    }

    async fn watch(
        &self,
        after: Revision,
    ) -> Result<Box<dyn StoreWatch<String, Declared>>, Failure> {
        let lines = self.client.stream(&format!("/declarations/watch/{after}")).await?;
        Ok(Box::new(Watching { lines, finalizer: self.finalizer.clone() }))
    }
}

struct Watching {
    lines: Lines,
    finalizer: String,
}

/// A change, as a line of the watch.
#[derive(Deserialize)]
struct Changed {
    revision: Revision,
    name: String,
    declaration: Option<service::Declaration>,
}

impl StoreWatch<String, Declared> for Watching {
    fn next(&mut self) -> Later<'_, Result<WatchEvent<String, Declared>, Failure>> {
        Box::pin(async {
            let unreadable = |error| Failure::from_error(&error, Retry::Soon);
            let line: Value =
                serde_json::from_str(&self.lines.next().await?).map_err(unreadable)?;
            if line.get("compacted").is_some() {
                return Ok(WatchEvent::Compacted);
            }
            if line.get("regressed").is_some() {
                return Ok(WatchEvent::Regressed);
            }
            let Changed { revision, name: key, declaration } =
                serde_json::from_value(line).map_err(unreadable)?;
            let value = declaration.map(|one| declared(one, &self.finalizer)).transpose()?;
            Ok(WatchEvent::Changed { revision, key, value })
        })
    }
}

impl Finalizers for Declarations {
    type Object = Versioned<Shape>;

    async fn set_finalizer(&self, key: &String) -> Result<bool, Failure> {
        let reply = self.send("PUT", &self.finalizer(key), &Value::Null).await?;
        match reply.status {
            200 => Ok(true),
            404 | 409 => Ok(false),
            _ => Err(reply.failure()),
        }
    }

    async fn remove_finalizer(&self, key: &String) -> Result<(), Failure> {
        let reply = self.send("DELETE", &self.finalizer(key), &Value::Null).await?;
        done(matches!(reply.status, 200 | 404), &reply)
    }
}
