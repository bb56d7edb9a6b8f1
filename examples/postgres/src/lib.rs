//! Roles and databases of a `PostgreSQL` server: all that an author writes to have them kept as declared.
//!
//! The mark is the comment of a role or a database. A role is created and commented by one statement list, which the
//! server runs as one transaction. `CREATE DATABASE` runs outside of transactions, so a database gets its comment by a
//! second call: it is marked after the create. A database needs its owner.
//!
//! `PostgreSQL` has no event triggers for objects that all databases share, so not every change sends an event. Who
//! changes a role by a script may send `NOTIFY homeostat, 'role app'`, and it is looked at at once; what comes without a
//! notice is found by the resync, every five seconds. So the coverage is `Some`.

use std::fmt;
use std::future::poll_fn;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use homeostat_kit::simple::{Api, Listed, Marking, Refusal, TwoStep, Watch, Written};
use homeostat_kit::{Coverage, Failure, Strategy};
use postgres_protocol::escape::{escape_identifier as name, escape_literal as text};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls};

/// What an object is called: `role app`, `database app`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Role(String),
    Database(String),
}

/// What is kept of an object. A limit of -1 connections is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Object {
    Role { login: bool, connections: i32 },
    Database { owner: String },
}

type Kept = TwoStep<Object>;

/// The roles and databases of one server, for one owner.
pub struct Server {
    config: Config,
    strategy: Strategy,
    /// Our mark, quoted.
    mark: String,
    client: Mutex<Option<Arc<Client>>>,
}

impl Server {
    #[must_use]
    pub fn new(config: Config, strategy: Strategy) -> Self {
        let mark = text(&strategy.mark().unwrap_or_default());
        Server { config, strategy, mark, client: Mutex::new(None) }
    }

    /// The connection, opened again if it is lost.
    async fn client(&self) -> Result<Arc<Client>, Failure> {
        let mut open = self.client.lock().await;
        if let Some(client) = open.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let (client, connection) = self.config.connect(NoTls).await.map_err(Failure::soon)?;
        tokio::spawn(connection);
        Ok(Arc::clone(open.insert(Arc::new(client))))
    }

    /// Runs statements as one transaction, if there are several.
    async fn run(&self, statements: &str) -> Result<(), Refusal> {
        self.client().await?.batch_execute(statements).await.map_err(refusal)
    }

    /// Runs statements in one transaction that fails if the object is not the one that was seen: with our comment, or
    /// with none while only the ledger knows that it is ours.
    async fn run_on_ours(&self, key: &Key, before: &Kept, statements: &str) -> Result<(), Refusal> {
        let (table, column, plain) = match key {
            Key::Role(role) => ("pg_authid", "rolname", role),
            Key::Database(database) => ("pg_database", "datname", database),
        };
        let mark = if before.is_marked() { &self.mark } else { "NULL" };
        let check = format!(
            "DECLARE it oid; BEGIN SELECT oid INTO it FROM {table} WHERE {column} = {}; \
             IF it IS NULL THEN RAISE 'it is gone' USING ERRCODE = '42704'; END IF; \
             IF shobj_description(it, '{table}') IS DISTINCT FROM {mark} THEN \
             RAISE 'it has another comment' USING ERRCODE = '42710'; END IF; END",
            text(plain)
        );
        self.run(&format!("DO {}; {statements}", text(&check))).await
    }

    fn comment(&self, key: &Key) -> String {
        format!("COMMENT ON {} IS {}", sql(key), self.mark)
    }
}

impl Api for Server {
    const NAME: &'static str = "postgres";
    const COVERAGE: Coverage = Coverage::Some;
    const MARKING: Marking<Kept> = Marking::AfterCreate { is_marked: TwoStep::is_marked };
    type Key = Key;
    type Object = Kept;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        const ROLES: &str = "SELECT rolname::text, rolcanlogin, rolconnlimit, shobj_description(oid, 'pg_authid') \
            FROM pg_roles WHERE rolname !~ '^pg_'";
        const DATABASES: &str = "SELECT datname::text, pg_get_userbyid(datdba)::text, \
            shobj_description(oid, 'pg_database') FROM pg_database WHERE NOT datistemplate";
        let client = self.client().await?;
        let mut all = Vec::new();
        for row in client.query(ROLES, &[]).await.map_err(Failure::soon)? {
            let object = Object::Role { login: row.get(1), connections: row.get(2) };
            all.push(TwoStep::seen(&self.strategy, Key::Role(row.get(0)), object, row.get(3)));
        }
        for row in client.query(DATABASES, &[]).await.map_err(Failure::soon)? {
            let object = Object::Database { owner: row.get(1) };
            all.push(TwoStep::seen(&self.strategy, Key::Database(row.get(0)), object, row.get(2)));
        }
        Ok(all)
    }

    async fn create(&self, key: &Key, wanted: &Kept) -> Written<Self> {
        let create = format!("CREATE {} {}", sql(key), options(wanted));
        if let Key::Role(_) = key {
            let both = format!("{create}; {}", self.comment(key));
            return self.run(&both).await.map(|()| Some(wanted.clone()));
        }
        self.run(&create).await?;
        wanted.marked(self.run(&self.comment(key)).await)
    }

    async fn update(&self, key: &Key, before: &Kept, wanted: &Kept) -> Written<Self> {
        let change = match &**wanted {
            Object::Role { .. } => options(wanted),
            Object::Database { owner } => format!("OWNER TO {}", name(owner)),
        };
        let both = format!("ALTER {} {change}; {}", sql(key), self.comment(key));
        self.run_on_ours(key, before, &both).await.map(|()| Some(wanted.clone()))
    }

    async fn delete(&self, key: &Key, before: &Kept) -> Result<(), Refusal> {
        let drop = format!("DROP {}", sql(key));
        if let Key::Role(_) = key {
            return self.run_on_ours(key, before, &drop).await;
        }
        // A database cannot be dropped in a transaction: what replaces it between these two calls goes with them.
        self.run_on_ours(key, before, "").await?;
        self.run(&drop).await
    }

    fn needs(_: &Key, object: &Kept) -> Vec<Key> {
        match &**object {
            Object::Database { owner } => vec![Key::Role(owner.clone())],
            Object::Role { .. } => Vec::new(),
        }
    }

    async fn watch(&self) -> Result<Box<dyn Watch<Key>>, Failure> {
        let (client, mut connection) = self.config.connect(NoTls).await.map_err(Failure::soon)?;
        let (notices, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notice) = message {
                    _ = notices.send(notice.payload().parse().ok());
                }
            }
        });
        client.batch_execute("LISTEN homeostat").await.map_err(Failure::soon)?;
        Ok(Box::new((received, client)))
    }
}

fn sql(key: &Key) -> String {
    match key {
        Key::Role(role) => format!("ROLE {}", name(role)),
        Key::Database(database) => format!("DATABASE {}", name(database)),
    }
}

fn options(object: &Object) -> String {
    match object {
        Object::Role { login, connections } => {
            let login = if *login { "LOGIN" } else { "NOLOGIN" };
            format!("{login} CONNECTION LIMIT {connections}")
        }
        Object::Database { owner } => format!("OWNER {}", name(owner)),
    }
}

fn refusal(error: Error) -> Refusal {
    match error.code() {
        Some(&(SqlState::DUPLICATE_OBJECT | SqlState::DUPLICATE_DATABASE)) => {
            Refusal::foreign("another owner")
        }
        Some(&(SqlState::UNDEFINED_OBJECT | SqlState::INVALID_CATALOG_NAME)) => Refusal::Gone,
        Some(&SqlState::OBJECT_IN_USE) => Refusal::not_now(error, Duration::from_secs(1)),
        Some(&(SqlState::INSUFFICIENT_PRIVILEGE | SqlState::SYNTAX_ERROR)) => {
            Failure::never(error).into()
        }
        Some(_) => Failure::soon(error).into(),
        None => Refusal::unknown(error),
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Role(role) => write!(f, "role {role}"),
            Key::Database(database) => write!(f, "database {database}"),
        }
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(' ') {
            Some(("role", role)) => Ok(Key::Role(role.to_owned())),
            Some(("database", database)) => Ok(Key::Database(database.to_owned())),
            _ => Err(format!("`{text}` is neither `role NAME` nor `database NAME`")),
        }
    }
}
