//! The requests of the API that we use, typed.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Method;
use serde_json::{Map, Value};

use crate::client::{Call, Client};
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
    /// The reason of its lock.
    pub(crate) lock: Option<String>,
    pub(crate) ha: HaState,
}

/// What the HA manager does with a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HaState {
    /// Lists do not contain it.
    #[default]
    NotListed,
    Unmanaged,
    /// With the state that the manager shows, such as `started`.
    Managed(String),
}

/// A guest in the list of the cluster, which may be ten seconds old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) node: String,
    pub(crate) listed: Listed,
}

/// A configuration, with the options that take effect with the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    Running,
    Stopped(String),
}

/// A change of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigChange {
    pub(crate) sets: Vec<(String, String)>,
    pub(crate) deletes: Vec<String>,
}

impl ConfigChange {
    /// Sets an option, or deletes it if the value is empty.
    pub(crate) fn put(&mut self, option: String, value: String) {
        if value.is_empty() {
            self.deletes.push(option);
        } else {
            self.sets.push((option, value));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.deletes.is_empty()
    }

    /// The names of all options that it changes.
    pub(crate) fn options(&self) -> impl Iterator<Item = &String> {
        self.sets.iter().map(|(option, _)| option).chain(&self.deletes)
    }
}

/// Selects tasks of one guest.
pub(crate) struct TaskFilter<'a> {
    pub(crate) vmid: Vmid,
    /// `active`, `archive` or `all`.
    pub(crate) source: &'a str,
    /// Seconds since 1970.
    pub(crate) since: u64,
    pub(crate) user: Option<&'a str>,
}

impl Client {
    /// Whether each node is online.
    pub(crate) async fn nodes(&self) -> Result<BTreeMap<String, bool>, Error> {
        let rows = self.list(Call::get("/nodes"), |row| {
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
        let rows = self.list(Call::get(path), |row| Some((vmid(row)?, listed(row))));
        Ok(rows.await?.into_iter().collect())
    }

    /// The guests of all nodes; the list may be ten seconds old.
    pub(crate) async fn resources(&self) -> Result<BTreeMap<Key, Resource>, Error> {
        let rows = self.list(Call::get("/cluster/resources").with("type", "vm"), |row| {
            let node = row.get("node")?.as_str()?.to_owned();
            Some((Key(vmid(row)?), Resource { node, listed: listed(row) }))
        });
        Ok(rows.await?.into_iter().collect())
    }

    /// The present state of a guest.
    pub(crate) async fn current(&self, place: &Place) -> Result<Listed, Error> {
        let current = self.object(Call::get(format!("{}/status/current", place.path()))).await?;
        Ok(listed(&current.into()))
    }

    pub(crate) async fn options(&self, place: &Place) -> Result<Options, Error> {
        let call = Call::get(format!("{}/config", place.path()));
        let request = call.name();
        let read = self.object(call).await?;
        let mut options: BTreeMap<_, _> =
            read.into_iter().map(|(name, value)| (name, text(&value))).collect();
        // Without it, a write could overwrite a concurrent one.
        let digest = options.remove("digest").filter(|digest| !digest.is_empty());
        let why = || "it has no digest".to_owned();
        let digest = digest.ok_or_else(|| Error::Senseless { request, why: why() })?;
        Ok(Options { options, digest })
    }

    /// The options of a running guest that take effect with its next start.
    pub(crate) async fn pending(&self, place: &Place) -> Result<BTreeSet<String>, Error> {
        let rows = self.list(Call::get(format!("{}/pending", place.path())), |row| {
            Some((row.get("key")?.as_str()?.to_owned(), is_pending(row)))
        });
        let pending = rows.await?.into_iter().filter(|(_, is_pending)| *is_pending);
        Ok(pending.map(|(key, _)| key).collect())
    }

    /// Changes a configuration, if it still has this digest.
    pub(crate) async fn set(
        &self,
        place: &Place,
        change: &ConfigChange,
        digest: &str,
    ) -> Result<(), Error> {
        let mut call = Call::get(format!("{}/config", place.path())).with("digest", digest);
        call.method = Method::PUT;
        call.parameters.extend(change.sets.iter().cloned());
        if !change.deletes.is_empty() {
            call = call.with("delete", change.deletes.join(","));
        }
        self.send(call).await.map(|_| ())
    }

    /// Starts a task that starts or stops a guest.
    pub(crate) async fn power(
        &self,
        place: &Place,
        verb: &str,
        parameters: Vec<(String, String)>,
    ) -> Result<Upid, Error> {
        let mut call = Call::get(format!("{}/status/{verb}", place.path()));
        (call.method, call.parameters) = (Method::POST, parameters);
        let request = call.name();
        let answer = self.send(call).await?;
        let upid = answer.as_str().and_then(|text| text.parse().ok());
        let why = || format!("`{answer}` is no name of a task");
        upid.ok_or_else(|| Error::Senseless { request, why: why() })
    }

    /// Whether the token may see a guest of this number.
    pub(crate) async fn may_see(&self, vmid: Vmid) -> Result<bool, Error> {
        let path = format!("/vms/{vmid}");
        let permissions =
            self.object(Call::get("/access/permissions").with("path", path.clone())).await?;
        let privilege = permissions.get(&path).and_then(|privileges| privileges.get("VM.Audit"));
        Ok(privilege.is_some())
    }

    pub(crate) async fn task(&self, upid: &Upid) -> Result<TaskState, Error> {
        let path =
            format!("/nodes/{}/tasks/{}/status", escape(upid.node()), escape(&upid.to_string()));
        let call = Call::get(path);
        let request = call.name();
        let task = self.object(call).await?;
        match task.get("status").and_then(Value::as_str) {
            Some("running") => Ok(TaskState::Running),
            Some("stopped") => {
                Ok(TaskState::Stopped(task.get("exitstatus").map(text).unwrap_or_default()))
            }
            _ => Err(Error::Senseless { request, why: "it has no status".to_owned() }),
        }
    }

    /// The tasks of a guest, the newest first.
    pub(crate) async fn tasks(
        &self,
        node: &str,
        filter: &TaskFilter<'_>,
    ) -> Result<Vec<Upid>, Error> {
        let mut call = Call::get(format!("/nodes/{}/tasks", escape(node)))
            .with("source", filter.source)
            .with("vmid", filter.vmid.to_string())
            .with("limit", "500");
        if filter.since > 0 {
            call = call.with("since", filter.since.to_string());
        }
        if let Some(user) = filter.user {
            call = call.with("userfilter", user);
        }
        self.list(call, |row| row.get("upid")?.as_str()?.parse().ok()).await
    }

    async fn list<T>(
        &self,
        call: Call,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let request = call.name();
        let answer = self.send(call).await?;
        rows(answer, read).map_err(|why| Error::Senseless { request, why })
    }

    async fn object(&self, call: Call) -> Result<Map<String, Value>, Error> {
        let request = call.name();
        fields(self.send(call).await?).map_err(|why| Error::Senseless { request, why })
    }
}

fn vmid(row: &Value) -> Option<Vmid> {
    u32::try_from(number(row.get("vmid")?)?).ok().map(Vmid)
}

/// Whether an option differs from what is in effect. One value may be a number, the other a string.
fn is_pending(row: &Value) -> bool {
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
    Listed { run, tags, name, lock: text("lock"), ha: ha_state(row) }
}

fn ha_state(row: &Value) -> HaState {
    let Some(ha) = row.get("ha") else { return HaState::NotListed };
    match ha.get("managed").and_then(number) {
        None => HaState::NotListed,
        Some(0) => HaState::Unmanaged,
        Some(_) => HaState::Managed(ha.get("state").map(text).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_option_is_pending_if_it_differs_from_what_is_in_effect() {
        let check = |row: Value, expected: bool| assert_eq!(is_pending(&row), expected, "{row}");
        check(json!({ "key": "memory", "value": 512 }), false);
        check(json!({ "key": "memory", "value": 512, "pending": "512" }), false);
        check(json!({ "key": "memory", "value": 512, "pending": 1024 }), true);
        check(json!({ "key": "memory", "pending": 1024 }), true);
        check(json!({ "key": "memory", "value": 512, "delete": "1" }), true);
        check(json!({ "key": "memory", "value": 512, "delete": 0 }), false);
    }
}
