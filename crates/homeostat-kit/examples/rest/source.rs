//! A source for the shapes service: this file is all that its author writes.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_engine::{Failure, Owner, Retry, Seen};
use homeostat_kit::simple::{Api, Listed, Refusal, Written};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Client, Label, Reply};

/// The label that marks a shape as ours.
const MARK: &str = "homeostat-owner";

/// The managed part of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) kind: String,
    pub(crate) colour: String,
}

/// A shape as the service tells it.
#[derive(Deserialize)]
struct Remote {
    name: String,
    #[serde(flatten)]
    shape: Shape,
    labels: BTreeMap<String, String>,
}

/// The shapes of one service, for one owner.
pub(crate) struct Shapes {
    pub(crate) client: Client,
    pub(crate) owner: &'static str,
}

impl Shapes {
    fn owner_of(&self, remote: &Remote) -> Owner {
        match remote.labels.get(MARK) {
            Some(owner) if owner == self.owner => Owner::Ours,
            Some(other) => Owner::Foreign(format!("owner {other}").into()),
            None => Owner::foreign("a stranger"),
        }
    }

    fn seen(&self, body: Value) -> Result<Seen<String, Shape>, Failure> {
        let remote = remote(body)?;
        let owner = self.owner_of(&remote);
        Ok(Seen::Present { key: remote.name, object: remote.shape, owner })
    }

    /// Sends a write, on condition of a label, and reads what the service now holds.
    async fn write(&self, request: (&str, &str), on: Label<'_>, body: &Value) -> Written<Self> {
        let reply = self.client.send(request, on, body).await?;
        match reply.status {
            200 => Ok(Some(remote(reply.body)?.shape)),
            204 => Ok(None),
            404 => Err(Refusal::Gone),
            409 | 412 => Err(Refusal::Conflict(self.owner_of(&remote(reply.body)?))),
            _ => Err(reply.failure().into()),
        }
    }

    fn body(&self, key: &str, wanted: &Shape) -> Value {
        let labels = json!({ MARK: self.owner });
        json!({ "name": key, "kind": wanted.kind, "colour": wanted.colour, "labels": labels })
    }
}

fn remote(body: Value) -> Result<Remote, Failure> {
    serde_json::from_value(body).map_err(|error| Failure::from_error(&error, Retry::Soon))
}

impl Api for Shapes {
    const NAME: &'static str = "shapes";
    type Key = String;
    type Object = Shape;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        match self.client.read("/shapes").await? {
            Reply { status: 200, body: Value::Array(all) } => {
                all.into_iter().map(|shape| self.seen(shape)).collect()
            }
            reply => Err(reply.failure()),
        }
    }

    async fn look(&self, keys: &BTreeSet<String>) -> Result<Listed<Self>, Failure> {
        let mut found = Vec::new();
        for key in keys {
            match self.client.read(&format!("/shapes/{key}")).await? {
                Reply { status: 200, body } => found.push(self.seen(body)?),
                Reply { status: 404, .. } => {}
                reply => return Err(reply.failure()),
            }
        }
        Ok(found)
    }

    async fn create(&self, key: &String, wanted: &Shape) -> Written<Self> {
        self.write(("POST", "/shapes"), None, &self.body(key, wanted)).await
    }

    async fn update(&self, key: &String, _: &Shape, wanted: &Shape) -> Written<Self> {
        let path = format!("/shapes/{key}");
        self.write(("PATCH", &path), Some((MARK, self.owner)), &json!(wanted)).await
    }

    async fn adopt(&self, key: &String, _: &Shape, wanted: &Shape) -> Written<Self> {
        self.write(("PATCH", &format!("/shapes/{key}")), None, &self.body(key, wanted)).await
    }

    async fn delete(&self, key: &String, _: &Shape) -> Result<(), Refusal> {
        let path = format!("/shapes/{key}");
        self.write(("DELETE", &path), Some((MARK, self.owner)), &Value::Null).await.map(|_| ())
    }
}
