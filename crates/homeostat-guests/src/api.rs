//! The requests of the API that we use, typed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use homeostat_core::text::{bounded, quoted};
use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::{Call, Client};
use crate::error::Error;
use crate::form::escape;
use crate::model::{Kind, Run, Vmid};
use crate::normalize;
use crate::shape::{Rows, Scalar};
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

/// A list of guests may be longer than other answers.
const GUESTS_OF_A_NODE: usize = 2 << 20;
const GUESTS_OF_A_CLUSTER: usize = 16 << 20;
/// Large, so that any task fits: if its end could not be read, nothing more could be done to its guest.
const END_OF_A_TASK: usize = 16 << 20;
/// All nodes are requested at once.
const MOST_NODES: usize = 256;
/// Names are parts of paths, errors and records.
const LONGEST_NAME: usize = 255;
/// More than any option needs. A longer value is not cut, since it may be written back.
const LONGEST_VALUE: usize = 64 << 10;

/// The API of a cluster, by a client of it.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) client: Client,
}

impl Api {
    /// The same API with another timeout.
    pub(crate) fn within(&self, timeout: Duration) -> Self {
        Api { client: self.client.within(timeout) }
    }

    /// Whether each node is online.
    pub(crate) async fn nodes(&self) -> Result<BTreeMap<String, bool>, Error> {
        let read = |Rows(rows): Rows<NodeRow>| {
            if rows.len() > MOST_NODES {
                return Err(format!("it has {} nodes", rows.len()));
            }
            let nodes = rows.into_iter().map(|NodeRow { node, status }| {
                let is_online = status.text().is_some_and(|status| status == "online");
                Ok((name(node)?, is_online))
            });
            nodes.collect()
        };
        self.ask(Call::get("/nodes"), read).await
    }

    /// The guests of a node that the token may see.
    pub(crate) async fn guests(
        &self,
        node: &str,
        kind: Kind,
    ) -> Result<BTreeMap<Vmid, Listed>, Error> {
        let path = format!("/nodes/{}/{}", escape(node), kind.word());
        let read = |Rows(rows): Rows<GuestRow>| {
            let guests = rows.into_iter().map(|row| {
                let place = Place { node: node.to_owned(), kind, vmid: row.vmid()? };
                Ok((place.vmid, row.listed(place)))
            });
            guests.collect()
        };
        self.ask(Call::get(path).up_to(GUESTS_OF_A_NODE), read).await
    }

    /// The guests of all nodes; the list may be ten seconds old.
    pub(crate) async fn resources(&self) -> Result<BTreeMap<Vmid, Listed>, Error> {
        let read = |Rows(rows): Rows<GuestRow>| {
            let guests = rows.into_iter().map(|mut row| {
                let kind = std::mem::take(&mut row.kind).text().ok_or("a guest has no type")?;
                let kind = if kind == "lxc" { Kind::Lxc } else { Kind::Qemu };
                let node = name(std::mem::take(&mut row.node))?;
                let place = Place { node, kind, vmid: row.vmid()? };
                Ok((place.vmid, row.listed(place)))
            });
            guests.collect()
        };
        let call = Call::get("/cluster/resources").with("type", "vm");
        self.ask(call.up_to(GUESTS_OF_A_CLUSTER), read).await
    }

    /// The present state of a guest.
    pub(crate) async fn current(&self, place: &Place) -> Result<Listed, Error> {
        let call = Call::get(format!("{}/status/current", place.path()));
        self.ask(call, |row: GuestRow| Ok(row.listed(place.clone()))).await
    }

    pub(crate) async fn options(&self, place: &Place) -> Result<Options, Error> {
        let call = Call::get(format!("{}/config", place.path()));
        let read = |read: BTreeMap<String, Scalar>| {
            let read = read.into_iter().map(|(name, value)| (name, value.into_text()));
            let mut options: BTreeMap<_, _> = read.collect();
            if let Some((name, _)) = options.iter().find(|(_, value)| value.len() > LONGEST_VALUE) {
                return Err(format!("the value of `{name}` is too long"));
            }
            // Without it, a write could overwrite a concurrent one.
            let digest = options.remove("digest").filter(|digest| !digest.is_empty());
            Ok(Options { options, digest: digest.ok_or("it has no digest")? })
        };
        self.ask(call, read).await
    }

    /// The options of a running guest that take effect with its next start.
    pub(crate) async fn pending(&self, place: &Place) -> Result<BTreeSet<String>, Error> {
        let read = |Rows(rows): Rows<PendingRow>| {
            Ok(rows.into_iter().filter(PendingRow::is_pending).map(|row| row.key).collect())
        };
        self.ask(Call::get(format!("{}/pending", place.path())), read).await
    }

    /// Changes a configuration, if it still has the digest. Returns the task that does it, if there is one.
    pub(crate) async fn set(&self, write: &ConfigWrite) -> Result<Option<Upid>, Error> {
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
        let read = |answer| match answer {
            Scalar::None => Ok(None),
            task => upid(task).map(Some),
        };
        self.ask(call, read).await
    }

    /// Starts a task that starts or stops a guest.
    pub(crate) async fn power(
        &self,
        place: &Place,
        verb: &str,
        parameters: Vec<(String, String)>,
    ) -> Result<Upid, Error> {
        let call = Call::new(Method::POST, format!("{}/status/{verb}", place.path()));
        self.ask(Call { parameters, ..call }, upid).await
    }

    /// Whether the token may see a guest of this number.
    pub(crate) async fn may_see(&self, vmid: Vmid) -> Result<bool, Error> {
        let path = format!("/vms/{}", vmid.0);
        let call = Call::get("/access/permissions").with("path", path.as_str());
        let read = |permissions: BTreeMap<String, BTreeMap<String, Scalar>>| {
            Ok(permissions.get(&path).is_some_and(|has| has.contains_key("VM.Audit")))
        };
        self.ask(call, read).await
    }

    pub(crate) async fn task(&self, upid: &Upid) -> Result<TaskState, Error> {
        let path = format!("/nodes/{}/tasks/{}/status", escape(&upid.node), escape(&upid.task));
        let read = |TaskStatus { status, exitstatus }| match status.text().as_deref() {
            Some("running") => Ok(TaskState::Running),
            Some("stopped") => Ok(TaskState::Stopped(quoted(exitstatus.into_text()))),
            _ => Err("it has no status".to_owned()),
        };
        self.ask(Call::get(path).up_to(END_OF_A_TASK), read).await
    }

    /// The tasks of a guest that a filter selects, the newest first, each as the target names it.
    pub(crate) async fn tasks(
        &self,
        node: &str,
        vmid: Vmid,
        filter: &[(&str, String)],
    ) -> Result<Vec<String>, Error> {
        let call = Call::get(format!("/nodes/{}/tasks", escape(node)));
        let call = call.with("vmid", vmid.0.to_string()).with("limit", "500");
        let call = filter.iter().fold(call, |call, (name, value)| call.with(name, value));
        let read = |Rows(rows): Rows<TaskRow>| {
            rows.into_iter().map(|TaskRow { upid }| name(upid)).collect()
        };
        self.ask(call, read).await
    }

    /// Sends a request and reads the data of its answer. The error of `read` says what is wrong with them.
    async fn ask<A: DeserializeOwned, T>(
        &self,
        call: Call,
        read: impl FnOnce(A) -> Result<T, String>,
    ) -> Result<T, Error> {
        let request = call.name();
        let why = |why: String| Error::UnexpectedAnswer { request, why: bounded(why) };
        read(self.client.send(call).await?).map_err(why)
    }
}

#[derive(Deserialize)]
struct NodeRow {
    node: Scalar,
    #[serde(default)]
    status: Scalar,
}

/// A guest in a list, or by itself.
#[derive(Default, Deserialize)]
#[serde(default)]
struct GuestRow {
    vmid: Scalar,
    node: Scalar,
    #[serde(rename = "type")]
    kind: Scalar,
    status: Scalar,
    name: Scalar,
    tags: Scalar,
    lock: Scalar,
    ha: Option<HaRow>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HaRow {
    managed: Scalar,
    state: Scalar,
}

#[derive(Deserialize)]
struct TaskRow {
    upid: Scalar,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskStatus {
    status: Scalar,
    exitstatus: Scalar,
}

/// An option with its value and the one that it has after the next start.
#[derive(Deserialize)]
struct PendingRow {
    key: String,
    value: Option<Scalar>,
    pending: Option<Scalar>,
    delete: Option<Scalar>,
}

impl GuestRow {
    fn vmid(&self) -> Result<Vmid, String> {
        let number = self.vmid.number().and_then(|number| u32::try_from(number).ok());
        number.map(Vmid).ok_or_else(|| "a guest has no number".to_owned())
    }

    fn listed(self, place: Place) -> Listed {
        let run = match self.status.text().as_deref() {
            Some("running") => Some(Run::Running),
            Some("stopped") => Some(Run::Stopped),
            _ => None,
        };
        let ha = self.ha.and_then(|ha| Some((ha.managed.number()?, ha.state)));
        Listed {
            place,
            run,
            tags: normalize::tags(&self.tags.text().unwrap_or_default()),
            name: quoted(self.name.text().unwrap_or_default()),
            lock: self.lock.text().map(quoted),
            ha: match ha {
                None => HaState::NotListed,
                Some((0, _)) => HaState::Unmanaged,
                Some((_, state)) => HaState::Managed(quoted(state.into_text())),
            },
        }
    }
}

impl PendingRow {
    /// Whether it differs from what is in effect. One value may be a number, the other a text.
    fn is_pending(&self) -> bool {
        let [value, pending] =
            [&self.value, &self.pending].map(|value| value.clone().map(Scalar::into_text));
        let differs = pending.is_some() && pending != value;
        differs || self.delete.as_ref().is_some_and(|delete| delete.number() != Some(0))
    }
}

/// The name of a node or a task.
fn name(value: Scalar) -> Result<String, String> {
    let name = value.text().filter(|name| !name.is_empty() && name.len() <= LONGEST_NAME);
    name.ok_or_else(|| "a row has no name, or one that is too long".to_owned())
}

fn upid(answer: Scalar) -> Result<Upid, String> {
    let task = answer.into_text();
    Upid::parse(&task).ok_or_else(|| format!("`{}` is no name of a task", quoted(task)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_pending_if_it_differs_from_what_is_in_effect() {
        let check = |row: &str, expected: bool| {
            let read: PendingRow = serde_json::from_str(row).unwrap();
            assert_eq!(read.is_pending(), expected, "{row}");
        };
        check(r#"{ "key": "memory", "value": 512 }"#, false);
        check(r#"{ "key": "memory", "value": 512, "pending": "512" }"#, false);
        check(r#"{ "key": "memory", "value": 512, "pending": 1024 }"#, true);
        check(r#"{ "key": "memory", "pending": 1024 }"#, true);
        check(r#"{ "key": "memory", "value": 512, "delete": "1" }"#, true);
        check(r#"{ "key": "memory", "value": 512, "delete": 0 }"#, false);
    }
}
