//! The requests that we make, typed.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Method;
use serde_json::Value;

use crate::client::{Ask, Client};
use crate::error::Error;
use crate::form::escape;
use crate::model::{Key, Kind, Run, Vmid};
use crate::normalize;
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
        let rows = self.ask(Ask::get("/nodes")).await?;
        let nodes = rows.as_array().into_iter().flatten().filter_map(|row| {
            let is_online = row.get("status").and_then(Value::as_str) == Some("online");
            Some((row.get("node")?.as_str()?.to_owned(), is_online))
        });
        Ok(nodes.collect())
    }

    /// The guests of a node that the token may see.
    pub(crate) async fn guests(
        &self,
        node: &str,
        kind: Kind,
    ) -> Result<BTreeMap<Vmid, Listed>, Error> {
        let path = format!("/nodes/{}/{}", escape(node), kind.word());
        let rows = self.ask(Ask::get(path)).await?;
        let guests = rows.as_array().into_iter().flatten().filter_map(|row| {
            let vmid = u32::try_from(number(row.get("vmid")?)?).ok()?;
            Some((Vmid(vmid), listed(row)))
        });
        Ok(guests.collect())
    }

    /// The guests of all nodes, as they were some seconds ago.
    pub(crate) async fn resources(&self) -> Result<BTreeMap<Key, Resource>, Error> {
        let rows = self.ask(Ask::get("/cluster/resources").with("type", "vm")).await?;
        let guests = rows.as_array().into_iter().flatten().filter_map(|row| {
            let vmid = u32::try_from(number(row.get("vmid")?)?).ok()?;
            let node = row.get("node")?.as_str()?.to_owned();
            Some((Key(Vmid(vmid)), Resource { node, listed: listed(row) }))
        });
        Ok(guests.collect())
    }

    /// Whether a guest runs.
    pub(crate) async fn current(&self, place: &Place) -> Result<Listed, Error> {
        let row = self.ask(Ask::get(format!("{}/status/current", place.path()))).await?;
        Ok(listed(&row))
    }

    /// A guest's configuration.
    pub(crate) async fn options(&self, place: &Place) -> Result<Options, Error> {
        let mut read = self.ask(Ask::get(format!("{}/config", place.path()))).await?;
        let options = read.as_object_mut().map(std::mem::take).unwrap_or_default();
        let mut options: BTreeMap<_, _> =
            options.into_iter().map(|(name, value)| (name, text(&value))).collect();
        let digest = options.remove("digest").unwrap_or_default();
        Ok(Options { options, digest })
    }

    /// The options of a running guest that wait for its restart.
    pub(crate) async fn pending(&self, place: &Place) -> Result<BTreeSet<String>, Error> {
        let rows = self.ask(Ask::get(format!("{}/pending", place.path()))).await?;
        let waiting = rows.as_array().into_iter().flatten().filter(|row| {
            let differs = row.get("pending").is_some_and(|value| row.get("value") != Some(value));
            differs || row.get("delete").is_some_and(|delete| number(delete) != Some(0))
        });
        let names = waiting.filter_map(|row| row.get("key")?.as_str().map(str::to_owned));
        Ok(names.collect())
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
        let request = format!("POST {}", ask.path);
        let answer = self.ask(ask).await?;
        let upid = answer.as_str().and_then(|text| text.parse().ok());
        let why = || format!("`{answer}` is no name of a task");
        upid.ok_or_else(|| Error::Senseless { request, why: why() })
    }

    /// Whether the token may see a guest of this number.
    pub(crate) async fn may_see(&self, vmid: Vmid) -> Result<bool, Error> {
        let path = format!("/vms/{vmid}");
        let told = self.ask(Ask::get("/access/permissions").with("path", path.clone())).await?;
        let privilege = told.get(&path).and_then(|privileges| privileges.get("VM.Audit"));
        Ok(privilege.is_some())
    }

    /// What a task does.
    pub(crate) async fn task(&self, upid: &Upid) -> Result<TaskState, Error> {
        let path =
            format!("/nodes/{}/tasks/{}/status", escape(upid.node()), escape(&upid.to_string()));
        let told = self.ask(Ask::get(path)).await?;
        if told.get("status").and_then(Value::as_str) == Some("running") {
            return Ok(TaskState::Running);
        }
        let exit = told.get("exitstatus").and_then(Value::as_str).unwrap_or_default();
        Ok(TaskState::Stopped(exit.to_owned()))
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
        let rows = self.ask(ask).await?;
        let upids = rows
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|row| row.get("upid")?.as_str()?.parse().ok());
        Ok(upids.collect())
    }
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

/// Numbers come as numbers, or as texts.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
