//! Keeps a role and its database on the server of a directory with its socket: `homeostat-postgres /run/postgresql`.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_kit::{Reconciler, Strategy};
use homeostat_postgres::{Key, Object, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::env::args().nth(1).ok_or("name the directory of the server's socket")?;
    let mut config = tokio_postgres::Config::new();
    config.host_path(socket).user("postgres").dbname("postgres");
    let desired = BTreeMap::from([
        (Key::Role("app".into()), Object::Role { login: true, connections: 5 }.into()),
        (Key::Database("app".into()), Object::Database { owner: "app".into() }.into()),
    ]);
    let strategy = Strategy::marker("homeostat-example")?;
    let server = Reconciler::new(Server::new(config, strategy.clone()), strategy).state("state");
    Ok(server.run(Arc::new(desired), async { _ = tokio::signal::ctrl_c().await }).await?)
}
