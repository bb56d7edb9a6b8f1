//! The requests of the API that we use, typed.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Method;
use serde_json::Value;

use crate::client::{Call, Client};
use crate::error::Error;
use crate::form::escape;
use crate::model::{Kind, Run, Vmid};
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
        format!("/nodes/{}/{}/{}", escape(&self.node), self.kind.word(), self.vmid.0)
    }
}

/// A guest, as a list or its present state shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) place: Place,
    pub(crate) run: Option<Run>,
    pub(crate) tags: BTreeSet<String>,
    pub(crate) name: String,
    /// The reason of its lock.
    pub(crate) lock: Option<String>,
    pub(crate) ha: HaState,
}

/// What the HA manager does with a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HaState {
    /// Lists do not contain it.
    NotListed,
    Unmanaged,
    /// With the state that the manager shows, such as `started`.
    Managed(String),
}

/// A configuration, with the options that take effect with the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) digest: String,
}

impl Options {
    pub(crate) fn tags(&self) -> BTreeSet<String> {
        normalize::tags(self.options.get("tags").map_or("", String::as_str))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    Running,
    Stopped(String),
}

/// A change of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct ConfigWrite {
    pub(crate) place: Place,
    /// The new value of each option; empty deletes it.
    pub(crate) options: Vec<(String, String)>,
    /// The digest that the configuration must still have.
    pub(crate) digest: String,
}

impl Client {
    /// Whether each node is online.
    pub(crate) async fn nodes(&self) -> Result<BTreeMap<String, bool>, Error> {
        let read = |row: &Value| {
            let is_online = row.get("status").and_then(Value::as_str) == Some("online");
            Some((row.get("node")?.as_str()?.to_owned(), is_online))
        };
        self.list(Call::get("/nodes"), read).await
    }

    /// The guests of a node that the token may see.
    pub(crate) async fn guests(
        &self,
        node: &str,
        kind: Kind,
    ) -> Result<BTreeMap<Vmid, Listed>, Error> {
        let path = format!("/nodes/{}/{}", escape(node), kind.word());
        let read = |row: &Value| {
            let place = Place { node: node.to_owned(), kind, vmid: vmid(row)? };
            Some((place.vmid, listed(row, place)))
        };
        self.list(Call::get(path), read).await
    }

    /// The guests of all nodes; the list may be ten seconds old.
    pub(crate) async fn resources(&self) -> Result<BTreeMap<Vmid, Listed>, Error> {
        let read = |row: &Value| {
            let kind = match row.get("type")?.as_str()? {
                "lxc" => Kind::Lxc,
                _ => Kind::Qemu,
            };
            let node = row.get("node")?.as_str()?.to_owned();
            let place = Place { node, kind, vmid: vmid(row)? };
            Some((place.vmid, listed(row, place)))
        };
        self.list(Call::get("/cluster/resources").with("type", "vm"), read).await
    }

    /// The present state of a guest.
    pub(crate) async fn current(&self, place: &Place) -> Result<Listed, Error> {
        let call = Call::get(format!("{}/status/current", place.path()));
        self.ask(call, |answer| Ok(listed(&fields(answer)?.into(), place.clone()))).await
    }

    pub(crate) async fn options(&self, place: &Place) -> Result<Options, Error> {
        let call = Call::get(format!("{}/config", place.path()));
        let read = |answer| {
            let read = fields(answer)?.into_iter().map(|(name, value)| (name, text(&value)));
            let mut options: BTreeMap<_, _> = read.collect();
            // Without it, a write could overwrite a concurrent one.
            let digest = options.remove("digest").filter(|digest| !digest.is_empty());
            Ok(Options { options, digest: digest.ok_or("it has no digest")? })
        };
        self.ask(call, read).await
    }

    /// The options of a running guest that take effect with its next start.
    pub(crate) async fn pending(&self, place: &Place) -> Result<BTreeSet<String>, Error> {
        let read = |row: &Value| Some((row.get("key")?.as_str()?.to_owned(), is_pending(row)));
        let call = Call::get(format!("{}/pending", place.path()));
        let options: Vec<_> = self.list(call, read).await?;
        Ok(options.into_iter().filter_map(|(key, is_pending)| is_pending.then_some(key)).collect())
    }

    /// Changes a configuration, if it still has the digest.
    pub(crate) async fn set(&self, write: &ConfigWrite) -> Result<(), Error> {
        let ConfigWrite { place, options, digest } = write;
        let call = Call::new(Method::PUT, format!("{}/config", place.path()));
        let mut call = call.with("digest", digest);
        let (deletes, sets): (Vec<_>, Vec<_>) =
            options.iter().cloned().partition(|(_, value)| value.is_empty());
        call.parameters.extend(sets);
        if !deletes.is_empty() {
            let names: Vec<_> = deletes.into_iter().map(|(name, _)| name).collect();
            call = call.with("delete", names.join(","));
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
        let call = Call::new(Method::POST, format!("{}/status/{verb}", place.path()));
        let read = |answer: Value| {
            let upid = answer.as_str().and_then(Upid::parse);
            upid.ok_or_else(|| format!("`{answer}` is no name of a task"))
        };
        self.ask(Call { parameters, ..call }, read).await
    }

    /// Whether the token may see a guest of this number.
    pub(crate) async fn may_see(&self, vmid: Vmid) -> Result<bool, Error> {
        let path = format!("/vms/{}", vmid.0);
        let call = Call::get("/access/permissions").with("path", path.as_str());
        let permissions = self.ask(call, fields).await?;
        let privilege = permissions.get(&path).and_then(|privileges| privileges.get("VM.Audit"));
        Ok(privilege.is_some())
    }

    pub(crate) async fn task(&self, upid: &Upid) -> Result<TaskState, Error> {
        let path = format!("/nodes/{}/tasks/{}/status", escape(&upid.node), escape(&upid.task));
        let read = |answer| {
            let task = fields(answer)?;
            match task.get("status").and_then(Value::as_str) {
                Some("running") => Ok(TaskState::Running),
                Some("stopped") => {
                    Ok(TaskState::Stopped(task.get("exitstatus").map(text).unwrap_or_default()))
                }
                _ => Err("it has no status".to_owned()),
            }
        };
        self.ask(Call::get(path), read).await
    }

    /// The tasks of a guest that a filter selects, the newest first.
    pub(crate) async fn tasks(
        &self,
        node: &str,
        vmid: Vmid,
        filter: &[(&str, String)],
    ) -> Result<Vec<Upid>, Error> {
        let call = Call::get(format!("/nodes/{}/tasks", escape(node)));
        let call = call.with("vmid", vmid.0.to_string()).with("limit", "500");
        let call = filter.iter().fold(call, |call, (name, value)| call.with(name, value));
        self.list(call, |row| Upid::parse(row.get("upid")?.as_str()?)).await
    }

    async fn list<T, C: FromIterator<T>>(
        &self,
        call: Call,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<C, Error> {
        self.ask(call, |answer| rows(answer, read)).await
    }

    /// Sends a request and reads the data of its answer. The error of `read` says what is wrong with them.
    async fn ask<T>(
        &self,
        call: Call,
        read: impl FnOnce(Value) -> Result<T, String>,
    ) -> Result<T, Error> {
        let request = call.name();
        read(self.send(call).await?).map_err(|why| Error::UnexpectedAnswer { request, why })
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

fn listed(row: &Value, place: Place) -> Listed {
    let run = match row.get("status").and_then(Value::as_str) {
        Some("running") => Some(Run::Running),
        Some("stopped") => Some(Run::Stopped),
        _ => None,
    };
    let text = |name: &str| row.get(name).and_then(Value::as_str).map(str::to_owned);
    let tags = normalize::tags(&text("tags").unwrap_or_default());
    let name = text("name").unwrap_or_default();
    Listed { place, run, tags, name, lock: text("lock"), ha: ha_state(row) }
}

fn ha_state(row: &Value) -> HaState {
    let managed = row.get("ha").and_then(|ha| Some((ha, number(ha.get("managed")?)?)));
    match managed {
        None => HaState::NotListed,
        Some((_, 0)) => HaState::Unmanaged,
        Some((ha, _)) => HaState::Managed(ha.get("state").map(text).unwrap_or_default()),
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
