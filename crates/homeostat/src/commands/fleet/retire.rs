//! `fleet retire`: takes a node out of the store, and says what is left to do.

use std::process::ExitCode;

use anyhow::Result;
use homeostat_store::Transaction;
use serde_json::json;

use super::Call;
use super::args::RetireArgs;
use super::connection::of_store;
use super::enroll::role_of;
use super::snapshot::Snapshot;
use crate::failure::helped;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

pub(super) async fn run(args: &RetireArgs, call: &Call<'_>) -> Result<ExitCode> {
    let fleet = call.connection.open()?;
    let node = &args.node;
    let snapshot = Snapshot::read(&fleet).await?;
    let Some(records) = snapshot.nodes.get(node) else {
        return Err(helped(
            format!("there is no node `{node}` in the fleet `{}`", fleet.name),
            "`homeostat fleet inventory` lists them",
        ));
    };
    if !args.force {
        if records.is_alive {
            return Err(helped(
                format!("{node} is alive"),
                "stop its daemon first, or give --force: a node that is alive writes its keys again",
            ));
        }
        let running = snapshot.rollouts.iter().find(|(_, rollout)| {
            let is_over = rollout.state.as_ref().is_some_and(|state| state.phase.is_over());
            !is_over && rollout.leaves.iter().any(|leaf| leaf.node == *node)
        });
        if let Some((id, _)) = running {
            return Err(helped(
                format!("{node} belongs to rollout {id}, which is not over"),
                "wait for it, abort it, or give --force",
            ));
        }
    }
    let keys = &fleet.keys;
    let all = [
        keys.inventory(node),
        keys.want(node),
        keys.plan_request(node),
        keys.status(node),
        keys.plan(node),
    ];
    let transaction = all.into_iter().fold(Transaction::new(), Transaction::delete);
    let _ = fleet.store.commit(transaction).await.map_err(of_store)?;
    let role = role_of(&fleet.name, node);
    let commands = [format!("etcdctl user delete {node}"), format!("etcdctl role delete {role}")];
    stream::print(call.global.color, |to| {
        if call.is_json {
            let all =
                json!({ "format_version": FORMAT_VERSION, "node": node, "etcdctl": commands });
            return writeln!(to, "{all}");
        }
        writeln!(to, "{node} is out of the fleet {}. Its machine stays as it is.", fleet.name)?;
        writeln!(to, "Take its rights away, and its lines out of the inventory file:")?;
        commands.iter().try_for_each(|command| writeln!(to, "  {command}"))?;
        writeln!(
            to,
            "Its certificate is valid until it ends, or until the list of etcd's --client-crl-file has it."
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
