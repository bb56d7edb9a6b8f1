//! The requests that we make, typed.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Method;
use serde_json::{Map, Value};

use crate::client::{Ask, Client};
use crate::error::Error;
use crate::form::escape;
use crate::model::{Key, Kind, Run, Vmid};
use crate::normalize;
use crate::shape::{fields, number, rows, text};
use crate::upid::Upid;

/// Where a guest is in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: String,
    pub(crate) kind: Kind,
    pub(crate) vmid: Vmid,
}

impl Place {
    pub(crate) fn path(&self) -> String {
        format!("/nodes/{}/{}/{}", escape(&self.node), self.kind.word(), self.vmid)
    }
}

/// A guest in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) run: Option<Run>,
    pub(crate) tags: BTreeSet<String>,
    pub(crate) name: String,
    /// Who holds its lock.
    pub(crate) lock: Option<String>,
    pub(crate) keeper: Keeper,
}

/// Who sees to it that a guest runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// Not told: lists do not.
    #[default]
    Untold,
    /// Nobody.
    Nobody,
    /// The cluster's resource manager, and what it does with the guest.
    Manager(String),
}

/// A guest in the list of the whole cluster, which may be old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) node: String,
    pub(crate) listed: Listed,
}

/// A configuration, as configured: with what waits for a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) digest: String,
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    Running,
    Stopped(String),
}

/// Which tasks are looked for.
pub(crate) struct Sought<'a> {
    pub(crate) vmid: Vmid,
    pub(crate) source: &'a str,
    /// Seconds since 1970.
    pub(crate) since: u64,
    pub(crate) user: Option<&'a str>,
}

impl Client {
    /// The nodes, and whether each is there.
    pub(crate) async fn nodes(&self) -> Result<BTreeMap<String, bool>, Error> {
        let rows = self.list(Ask::get("/nodes"), |row| {
            let is_online = row.get("status").and_then(Value::as_str) == Some("online");
            Some((row.get("node")?.as_str()?.to_owned(), is_online))
        });
        Ok(rows.await?.into_iter().collect())
    }

    /// The guests of a node that the token may see.
    pub(crate) async fn guests(
        &self,
        node: &str,
        kind: Kind,
    ) -> Result<BTreeMap<Vmid, Listed>, Error> {
        let path = format!("/nodes/{}/{}", escape(node), kind.word());
        let rows = self.list(Ask::get(path), |row| Some((vmid(row)?, listed(row))));
        Ok(rows.await?.into_iter().collect())
    }

    /// The guests of all nodes, as they were some seconds ago.
    pub(crate) async fn resources(&self) -> Result<BTreeMap<Key, Resource>, Error> {
        let rows = self.list(Ask::get("/cluster/resources").with("type", "vm"), |row| {
            let node = row.get("node")?.as_str()?.to_owned();
            Some((Key(vmid(row)?), Resource { node, listed: listed(row) }))
        });
        Ok(rows.await?.into_iter().collect())
    }

    /// Whether a guest runs.
    pub(crate) async fn current(&self, place: &Place) -> Result<Listed, Error> {
        let current = self.object(Ask::get(format!("{}/status/current", place.path()))).await?;
        Ok(listed(&current.into()))
    }

    /// A guest's configuration.
    pub(crate) async fn options(&self, place: &Place) -> Result<Options, Error> {
        let ask = Ask::get(format!("{}/config", place.path()));
        let request = ask.name();
        let read = self.object(ask).await?;
        let mut options: BTreeMap<_, _> =
            read.into_iter().map(|(name, value)| (name, text(&value))).collect();
        // Without it, nothing would keep a write from going over somebody else's.
        let digest = options.remove("digest").filter(|digest| !digest.is_empty());
        let why = || "it has no digest".to_owned();
        let digest = digest.ok_or_else(|| Error::Senseless { request, why: why() })?;
        Ok(Options { options, digest })
    }

    /// The options of a running guest that wait for its restart.
    pub(crate) async fn pending(&self, place: &Place) -> Result<BTreeSet<String>, Error> {
        let rows = self.list(Ask::get(format!("{}/pending", place.path())), |row| {
            Some((row.get("key")?.as_str()?.to_owned(), waits(row)))
        });
        let waiting = rows.await?.into_iter().filter(|(_, waits)| *waits);
        Ok(waiting.map(|(key, _)| key).collect())
    }

    /// Changes a configuration, if it still has this digest.
    pub(crate) async fn set(
        &self,
        place: &Place,
        (sets, deletes): (&[(String, String)], &[String]),
        digest: &str,
    ) -> Result<(), Error> {
        let mut ask = Ask::get(format!("{}/config", place.path())).with("digest", digest);
        ask.method = Method::PUT;
        ask.parameters.extend(sets.iter().cloned());
        if !deletes.is_empty() {
            ask = ask.with("delete", deletes.join(","));
        }
        self.ask(ask).await.map(|_| ())
    }

    /// Begins a task that starts or stops a guest.
    pub(crate) async fn power(
        &self,
        place: &Place,
        (verb, parameters): (&str, Vec<(String, String)>),
    ) -> Result<Upid, Error> {
        let mut ask = Ask::get(format!("{}/status/{verb}", place.path()));
        (ask.method, ask.parameters) = (Method::POST, parameters);
        let request = ask.name();
        let answer = self.ask(ask).await?;
        let upid = answer.as_str().and_then(|text| text.parse().ok());
        let why = || format!("`{answer}` is no name of a task");
        upid.ok_or_else(|| Error::Senseless { request, why: why() })
    }

    /// Whether the token may see a guest of this number.
    pub(crate) async fn may_see(&self, vmid: Vmid) -> Result<bool, Error> {
        let path = format!("/vms/{vmid}");
        let told = self.object(Ask::get("/access/permissions").with("path", path.clone())).await?;
        let privilege = told.get(&path).and_then(|privileges| privileges.get("VM.Audit"));
        Ok(privilege.is_some())
    }

    /// What a task does.
    pub(crate) async fn task(&self, upid: &Upid) -> Result<TaskState, Error> {
        let path =
            format!("/nodes/{}/tasks/{}/status", escape(upid.node()), escape(&upid.to_string()));
        let ask = Ask::get(path);
        let request = ask.name();
        let told = self.object(ask).await?;
        match told.get("status").and_then(Value::as_str) {
            Some("running") => Ok(TaskState::Running),
            Some("stopped") => {
                Ok(TaskState::Stopped(told.get("exitstatus").map(text).unwrap_or_default()))
            }
            _ => Err(Error::Senseless { request, why: "it has no status".to_owned() }),
        }
    }

    /// The tasks of a guest, the newest first.
    pub(crate) async fn tasks(&self, node: &str, sought: &Sought<'_>) -> Result<Vec<Upid>, Error> {
        let mut ask = Ask::get(format!("/nodes/{}/tasks", escape(node)))
            .with("source", sought.source)
            .with("vmid", sought.vmid.to_string())
            .with("limit", "500");
        if sought.since > 0 {
            ask = ask.with("since", sought.since.to_string());
        }
        if let Some(user) = sought.user {
            ask = ask.with("userfilter", user);
        }
        self.list(ask, |row| row.get("upid")?.as_str()?.parse().ok()).await
    }

    async fn list<T>(&self, ask: Ask, read: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>, Error> {
        let request = ask.name();
        let answer = self.ask(ask).await?;
        rows(answer, read).map_err(|why| Error::Senseless { request, why })
    }

    async fn object(&self, ask: Ask) -> Result<Map<String, Value>, Error> {
        let request = ask.name();
        fields(self.ask(ask).await?).map_err(|why| Error::Senseless { request, why })
    }
}

fn vmid(row: &Value) -> Option<Vmid> {
    u32::try_from(number(row.get("vmid")?)?).ok().map(Vmid)
}

/// Whether an option is not in effect as it is configured. One side may come as a number, the other as text.
fn waits(row: &Value) -> bool {
    let [value, pending] = ["value", "pending"].map(|name| row.get(name).map(text));
    let differs = pending.is_some() && pending != value;
    differs || row.get("delete").is_some_and(|delete| number(delete) != Some(0))
}

fn listed(row: &Value) -> Listed {
    let run = match row.get("status").and_then(Value::as_str) {
        Some("running") => Some(Run::Running),
        Some("stopped") => Some(Run::Stopped),
        _ => None,
    };
    let text = |name: &str| row.get(name).and_then(Value::as_str).map(str::to_owned);
    let tags = normalize::tags(&text("tags").unwrap_or_default());
    let name = text("name").unwrap_or_default();
    Listed { run, tags, name, lock: text("lock"), keeper: keeper(row) }
}

fn keeper(row: &Value) -> Keeper {
    let Some(told) = row.get("ha") else { return Keeper::Untold };
    match told.get("managed").and_then(number) {
        None => Keeper::Untold,
        Some(0) => Keeper::Nobody,
        Some(_) => Keeper::Manager(told.get("state").map(text).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_option_waits_if_what_is_configured_is_not_in_effect_whether_told_as_number_or_text() {
        let check = |row: Value, expected: bool| assert_eq!(waits(&row), expected, "{row}");
        check(json!({ "key": "memory", "value": 512 }), false);
        check(json!({ "key": "memory", "value": 512, "pending": "512" }), false);
        check(json!({ "key": "memory", "value": 512, "pending": 1024 }), true);
        check(json!({ "key": "memory", "pending": 1024 }), true);
        check(json!({ "key": "memory", "value": 512, "delete": "1" }), true);
        check(json!({ "key": "memory", "value": 512, "delete": 0 }), false);
    }
}
