//! `fleet enroll`: makes a key and a certificate request for a node, and says which rights it needs in etcd.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::records::{Inventory, Record as _};
use homeostat_fleet::{Name, records};
use homeostat_store::{Committed, Guard, Transaction};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;

use super::Call;
use super::args::EnrollArgs;
use super::connection::of_store;
use crate::failure::helped;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

pub(super) async fn run(args: &EnrollArgs, call: &Call<'_>) -> Result<ExitCode> {
    let (node, fleet) = (&args.node, call.connection.fleet_name()?);
    let (key, request) =
        (args.out.join(format!("{node}.key")), args.out.join(format!("{node}.csr")));
    if let Some(known) = [&key, &request].into_iter().find(|path| path.exists()) {
        return Err(helped(
            format!("{} is there already", known.display()),
            "remove it, or give another --out",
        ));
    }
    let made = certificate_request(node).context("cannot make a key and a certificate request")?;
    if !args.offline {
        record(args, call).await?;
    }
    write_private(&key, &made.key)?;
    std::fs::write(&request, &made.request)
        .with_context(|| format!("cannot write {}", request.display()))?;
    let commands = etcdctl_commands(&fleet, node);
    let openssl = format!(
        "openssl x509 -req -in {} -CA ca.pem -CAkey ca.key -CAcreateserial -copy_extensions copyall -days 365 -out {}",
        request.display(),
        args.out.join(format!("{node}.pem")).display()
    );
    let snippet = snippet(&fleet, node, call);
    stream::print(call.global.color, |to| {
        if call.is_json {
            let all = json!({
                "format_version": FORMAT_VERSION, "node": node, "fleet": fleet, "key": key, "request": request,
                "openssl": openssl, "etcdctl": commands, "document": snippet,
            });
            return writeln!(to, "{all}");
        }
        writeln!(to, "Wrote {} and {}.\n", key.display(), request.display())?;
        writeln!(to, "1. Let the authority of the fleet sign the request:\n  {openssl}\n")?;
        writeln!(to, "2. Give the node its rights in etcd:")?;
        commands.iter().try_for_each(|command| writeln!(to, "  {command}"))?;
        writeln!(to, "\n3. Bring key and certificate to the node, and write to its document:\n")?;
        snippet.lines().try_for_each(|line| writeln!(to, "  {line}"))?;
        writeln!(to, "\n4. Add [nodes.{node}] to the inventory file.")
    })?;
    Ok(ExitCode::SUCCESS)
}

struct KeyAndRequest {
    key: String,
    request: String,
}

/// The name of the node is the common name, which etcd takes for the user.
fn certificate_request(node: &Name) -> Result<KeyAndRequest, rcgen::Error> {
    let key = KeyPair::generate()?;
    // Without an extension, `openssl x509` makes a certificate of version 1, which rustls refuses.
    let mut params = CertificateParams::new(vec![node.to_string()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, node.as_str());
    let request = params.serialize_request(&key)?.pem()?;
    Ok(KeyAndRequest { key: key.serialize_pem(), request })
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Puts the node into the store; a second one of the same name is refused.
async fn record(args: &EnrollArgs, call: &Call<'_>) -> Result<()> {
    let fleet = call.connection.open()?;
    let EnrollArgs { node, groups, labels, ring, .. } = args;
    let labels = labels.iter().cloned().collect();
    let record: records::Inventory = Inventory { labels, groups: groups.clone(), ring: *ring };
    let key = fleet.keys.inventory(node);
    let guard = Guard::Absent { key: key.clone() };
    let transaction = Transaction::new().only_if(guard).put(key, record.write());
    match fleet.store.commit(transaction).await.map_err(of_store)? {
        Committed::Done { .. } => Ok(()),
        Committed::Refused { .. } => Err(helped(
            format!("the fleet `{}` has a node `{node}` already", fleet.name),
            format!(
                "choose another name, or take the other one out: `homeostat fleet retire {node}`"
            ),
        )),
    }
}

/// The role of a node. It has the name of the fleet, since one etcd may have several.
pub(super) fn role_of(fleet: &Name, node: &Name) -> String {
    format!("homeostat-{fleet}-{node}")
}

/// A node reads what concerns it, and writes how it stands. A guard of a transaction needs the right to read.
fn etcdctl_commands(fleet: &Name, node: &Name) -> Vec<String> {
    let (keys, role) = (Keys::new(fleet), role_of(fleet, node));
    let group = Name::all();
    let below = |kind: &str| keys.all(kind);
    let mut commands =
        vec![format!("etcdctl user add {node} --no-password"), format!("etcdctl role add {role}")];
    let grant = |kind: &str, prefix: bool, key: String| {
        let prefix = if prefix { "--prefix=true " } else { "" };
        format!("etcdctl role grant-permission {role} {prefix}{kind} {key}")
    };
    let node_keys = format!("{}{node}/", below("node"));
    let content = ["blob", "doc"].map(|kind| format!("{}{group}/", below(kind)));
    commands.push(grant("read", true, node_keys));
    commands.extend(content.map(|key| grant("read", true, key)));
    commands.push(grant("read", true, below("rollout")));
    commands.push(grant("read", false, keys.fleet()));
    let own = [keys.status(node), keys.alive(node), keys.plan(node)];
    commands.extend(own.map(|key| grant("readwrite", false, key)));
    commands.push(format!("etcdctl user grant-role {node} {role}"));
    commands
}

fn snippet(fleet: &Name, node: &Name, call: &Call<'_>) -> String {
    let endpoints = call.connection.endpoints().iter().map(|it| format!("\"{it}\""));
    let endpoints = endpoints.collect::<Vec<_>>().join(", ");
    format!(
        "[fleet]\nfleet = \"{fleet}\"\nnode = \"{node}\"\nendpoints = [{endpoints}]\n\
         ca = \"/etc/homeostat/fleet/ca.pem\"\ncertificate = \"/etc/homeostat/fleet/{node}.pem\"\n\
         key = \"/etc/homeostat/fleet/{node}.key\"\nallowed-signers = \"/etc/homeostat/fleet/allowed_signers\"\n"
    )
}
