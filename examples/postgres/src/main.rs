//! Keeps a role and its database on the server of a directory with its socket: `homeostat-postgres /run/postgresql`.

use std::collections::BTreeMap;
use std::error::Error;

use homeostat_kit::Reconciler;
use homeostat_kit::provider::Static;
use homeostat_kit::simple::TwoStep;
use homeostat_kit::strategy::{Marker, Strategy};
use homeostat_postgres::{Key, Object, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).ok_or("name the directory of the server's socket")?;
    let mut config = tokio_postgres::Config::new();
    config.host_path(socket).user("postgres").dbname("postgres");
    let role = Object::Role { login: true, connections: 5 };
    let database = Object::Database { owner: "app".into() };
    let desired = BTreeMap::from([
        (Key::Role("app".into()), TwoStep::declared(role)),
        (Key::Database("app".into()), TwoStep::declared(database)),
    ]);
    let strategy = Strategy::Marker(Marker::new("homeostat-example")?);
    let server = Reconciler::new(Server::new(config, strategy.clone()), strategy).state("state");
    Ok(server.run(Static::new(desired), async { _ = tokio::signal::ctrl_c().await }).await?)
}
