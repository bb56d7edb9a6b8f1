//! Declarations that live in the service's store, each with its finalizers.

use homeostat_engine::{Failure, Retry};
use homeostat_kit::simple::Refusal;
use serde_json::Value;

use crate::client::{Client, Conditions, Reply};
use crate::lifecycle::{Declared, Listed, Store};
use crate::service::Declaration;
use crate::shape::Shape;

/// The store of a service, with the name of our finalizer.
pub struct Declarations {
    /// Where it is.
    pub client: Client,
    /// The name of our finalizer.
    pub finalizer: String,
}

impl Declarations {
    /// Declares a shape, as a user would.
    pub async fn declare(&self, name: &str, shape: &Shape) -> Result<(), Failure> {
        let reply = self.send("PUT", name, &serde_json::json!(shape)).await?;
        done(reply.status == 200, &reply)
    }

    /// Asks for a declaration to go, as a user would.
    pub async fn delete(&self, name: &str) -> Result<(), Failure> {
        let reply = self.send("DELETE", name, &Value::Null).await?;
        done(reply.status == 200, &reply)
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Reply, Failure> {
        let path = format!("/declarations/{path}");
        let sent = self.client.send((method, &path), Conditions::default(), body).await;
        sent.map_err(|error| match Refusal::from(error) {
            Refusal::Failed(failure) => failure,
            // Whether it was written shows in the next list.
            other => Failure::new(format!("{other:?}"), Retry::Soon),
        })
    }
}

fn done(is_done: bool, reply: &Reply) -> Result<(), Failure> {
    if is_done { Ok(()) } else { Err(reply.failure()) }
}

impl Store for Declarations {
    type Key = String;
    type Object = Shape;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let reply = self.client.read("/declarations").await?;
        let (200, Value::Object(all)) = (reply.status, &reply.body) else {
            return Err(reply.failure());
        };
        let unreadable = |error| Failure::from_error(&error, Retry::OnChange);
        let mut listed = Vec::new();
        for (key, body) in all {
            let declared: Declaration = serde_json::from_value(body.clone()).map_err(unreadable)?;
            listed.push(Declared {
                key: key.clone(),
                object: serde_json::from_value(declared.shape).map_err(unreadable)?,
                is_held: declared.finalizers.contains(&self.finalizer),
                is_going: declared.deleting,
            });
        }
        Ok(listed)
    }

    async fn hold(&self, key: &String) -> Result<bool, Failure> {
        let path = format!("{key}/finalizers/{}", self.finalizer);
        let reply = self.send("PUT", &path, &Value::Null).await?;
        match reply.status {
            200 => Ok(true),
            404 | 409 => Ok(false),
            _ => Err(reply.failure()),
        }
    }

    async fn release(&self, key: &String) -> Result<(), Failure> {
        let path = format!("{key}/finalizers/{}", self.finalizer);
        let reply = self.send("DELETE", &path, &Value::Null).await?;
        done(matches!(reply.status, 200 | 404), &reply)
    }
}
