//! A source for the shapes service: this file is all that its author writes.

use std::collections::BTreeSet;

use homeostat_engine::{Agreement, Coverage, Failure, Owner, Retry, Seen};
use homeostat_kit::simple::{
    Api, Listed, Numbered, Progress, Refusal, Versioned, Watch, Written, whole,
};
use homeostat_kit::strategy::Strategy;
use serde_json::{Value, json};

use crate::client::{Answered, Client, Conditions, Remote, Reply, Request};
use crate::shape::{FIELDS, Shape};

/// The label that holds our mark.
pub const MARK: &str = "homeostat-owner";

/// The shapes of one service, for one owner.
pub struct Shapes {
    pub client: Client,
    /// How our shapes are distinguished from others'.
    pub strategy: Strategy,
}

type Object = Versioned<Shape>;

impl Shapes {
    fn seen(&self, Remote { name, uid, version, mut shape }: Remote) -> Seen<String, Object> {
        let mark = shape.labels.remove(MARK);
        let object = Versioned::seen(shape, version.to_string()).identified(uid.to_string());
        self.strategy.seen(name, object, mark.as_deref())
    }

    fn owner(&self, remote: Remote) -> Owner {
        match self.seen(remote) {
            Seen::Present { owner, .. } => owner,
            Seen::Unknown { why, .. } => Owner::Foreign(why.into()),
        }
    }

    async fn write(&self, call: Request<'_>, on: Conditions<'_>, body: &Value) -> Written<Self> {
        match self.client.send(call, on, body).await?.answered()? {
            Answered::Holds(remote) => match self.seen(remote) {
                Seen::Present { object, .. } => Ok(Some(object)),
                Seen::Unknown { .. } => Ok(None),
            },
            Answered::Removed => Ok(None),
            Answered::Accepted(id) => Err(Refusal::Task { id }),
            Answered::Missing => Err(Refusal::Gone),
            Answered::Exists(remote) => Err(Refusal::Conflict(self.owner(remote))),
            Answered::Unmet(remote) => Err(match self.owner(remote) {
                Owner::Ours | Owner::Unmarked => Refusal::Moved,
                owner => Refusal::Conflict(owner),
            }),
            Answered::Busy(after) => Err(Refusal::NotNow { after, on: "the service".to_owned() }),
            Answered::Refused(failure) => Err(failure.into()),
        }
    }

    /// Writes to the very shape that was seen, and only while it carries our mark.
    async fn write_ours(&self, call: Request<'_>, before: &Object, body: &Value) -> Written<Self> {
        let mark = self.strategy.condition();
        let label = mark.as_deref().map(|mark| (MARK, mark));
        self.write(call, Conditions { label, version: before.version() }, body).await
    }

    /// A body with our mark in it, if ours are marked.
    fn marked(&self, mut body: Value) -> Value {
        if let Some(mark) = self.strategy.mark() {
            body["labels"][MARK] = json!(mark);
        }
        body
    }
}

impl Api for Shapes {
    const NAME: &'static str = "shapes";
    const COVERAGE: Coverage = Coverage::All;
    type Key = String;
    type Object = Object;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let (shapes, total) = self.client.read("/shapes").await?.remotes()?;
        Ok(whole(shapes, total)?.into_iter().map(|remote| self.seen(remote)).collect())
    }

    async fn look(&self, keys: &BTreeSet<String>) -> Result<Listed<Self>, Failure> {
        let mut found = Vec::new();
        for key in keys {
            match self.client.read(&path(key)).await? {
                reply @ Reply { status: 200, .. } => found.push(self.seen(reply.remote()?)),
                Reply { status: 404, .. } => {}
                reply => return Err(reply.failure()),
            }
        }
        Ok(found)
    }

    async fn create(&self, key: &String, wanted: &Object) -> Written<Self> {
        let mut body = self.marked(json!(wanted));
        body["name"] = json!(key);
        self.write(Request::new("POST", "/shapes"), Conditions::default(), &body).await
    }

    async fn update(&self, key: &String, before: &Object, wanted: &Object) -> Written<Self> {
        self.write_ours(Request::new("PATCH", &path(key)), before, &wanted.patch(before)).await
    }

    async fn adopt(&self, key: &String, before: &Object, wanted: &Object) -> Written<Self> {
        let on = Conditions { version: before.version(), ..Conditions::default() };
        self.write(Request::new("PATCH", &path(key)), on, &self.marked(wanted.patch(before))).await
    }

    async fn delete(&self, key: &String, before: &Object) -> Result<(), Refusal> {
        self.write_ours(Request::new("DELETE", &path(key)), before, &Value::Null).await.map(|_| ())
    }

    fn compare(wanted: &Object, seen: &Object) -> Agreement {
        FIELDS.compare(wanted, seen)
    }

    fn identity(seen: &Object) -> Option<String> {
        seen.identity().map(str::to_owned)
    }

    async fn task(&self, id: &str) -> Result<Progress, Failure> {
        let reply = self.client.read(&format!("/tasks/{id}")).await?;
        Ok(match reply.body["status"].as_str() {
            Some("running") => Progress::Running,
            Some("over") => Progress::Over,
            Some(_) => Progress::Failed(Failure::new(reply.body["error"].to_string(), Retry::Soon)),
            None if reply.status == 404 => Progress::Lost,
            None => return Err(reply.failure()),
        })
    }

    async fn watch(&self) -> Result<Box<dyn Watch<String>>, Failure> {
        Ok(Box::new(Numbered::new(self.client.watch().await?)))
    }
}

fn path(key: &str) -> String {
    format!("/shapes/{key}")
}
