//! Roles and databases of a real server, judged with `psql`.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "it starts a server, and judges it with its own client"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use homeostat_engine::{EventKind, Finding, Ownership};
use homeostat_kit::simple::{Adapted, Api as _, DesiredObjects, TwoStep};
use homeostat_kit::{Objects, Reconciler, Strategy};
use homeostat_postgres::{Key, Object, Server};
use homeostat_testkit::laws::{self, Ability, DesiredState, Disturbance, Harness, Meter};
use tempfile::TempDir;

/// A server of its own, in a directory of its own, that listens on a unix socket only.
struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    /// Debian's user for it, since the server refuses to run as root.
    user: Option<u32>,
}

impl Postgres {
    fn start() -> Self {
        let versions = std::fs::read_dir("/usr/lib/postgresql")
            .expect("install `postgresql`: cargo xtask setup");
        let programs = versions.map(|entry| entry.unwrap().path().join("bin")).max().unwrap();
        let is_root = std::fs::metadata("/proc/self")
            .map(|own| std::os::unix::fs::MetadataExt::uid(&own))
            .unwrap()
            == 0;
        let user = is_root.then(|| {
            let users = std::fs::read_to_string("/etc/passwd").unwrap();
            let user = users
                .lines()
                .find_map(|line| line.strip_prefix("postgres:x:"))
                .expect("the user postgres");
            user.split(':').next().unwrap().parse().unwrap()
        });
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        chown(directory.path(), user, None).unwrap();
        let server = Postgres { programs, directory, user };
        let data = server.data();
        server.run(
            "initdb",
            &["-D", &data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"],
        );
        let options = format!(
            "-c listen_addresses='' -k {} -c fsync=off -c autovacuum=off",
            server.directory.path().display()
        );
        let log = server.directory.path().join("log").display().to_string();
        server
            .run("pg_ctl", &["-D", &data, "-w", "-t", "120", "-l", &log, "-o", &options, "start"]);
        server
    }

    fn data(&self) -> String {
        self.directory.path().join("data").display().to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user);
        }
        if program == "pg_ctl" {
            // The server would keep the pipe open.
            command.stdout(Stdio::null()).stderr(Stdio::null());
            assert!(command.status().unwrap().success(), "{program} {arguments:?}");
            return String::new();
        }
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// What `psql` answers to statements, each in a transaction of its own.
    fn psql(&self, statements: &[&str]) -> String {
        let socket = self.socket().display().to_string();
        let mut arguments =
            vec!["-h", &socket, "-U", "postgres", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"];
        arguments.extend(statements.iter().flat_map(|statement| ["-c", statement]));
        self.run("psql", &arguments)
    }

    fn socket(&self) -> &Path {
        self.directory.path()
    }

    fn server(&self) -> Server {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.socket()).user("postgres").dbname("postgres");
        Server::new(config, strategy())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let data = self.data();
        self.run("pg_ctl", &["-D", &data, "-m", "immediate", "-w", "stop"]);
    }
}

fn strategy() -> Strategy {
    Strategy::marker("me").unwrap()
}

fn role(name: &str, connections: i32) -> (Key, TwoStep<Object>) {
    (Key::Role(name.to_owned()), Object::Role { login: true, connections }.into())
}

fn database(name: &str, owner: &str) -> (Key, TwoStep<Object>) {
    let object = Object::Database { owner: owner.to_owned() };
    (Key::Database(name.to_owned()), object.into())
}

const SHOW: &str = "SELECT rolname || ' ' || rolconnlimit || ' ' || coalesce(shobj_description(oid, 'pg_authid'), '-') \
    FROM pg_roles WHERE rolname !~ '^pg_' AND rolname <> 'postgres' UNION ALL \
    SELECT datname || ' of ' || pg_get_userbyid(datdba) || ' ' || coalesce(shobj_description(oid, 'pg_database'), '-') \
    FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres' ORDER BY 1";

#[tokio::test]
async fn roles_and_databases_are_kept_and_what_is_foreign_is_left_alone() {
    let postgres = Postgres::start();
    postgres.psql(&["CREATE ROLE theirs CONNECTION LIMIT 3"]);
    let server = Reconciler::new(postgres.server(), strategy());
    let odd = "it's \"$$ odd\" \\";
    let desired: Objects<Server> =
        [role("app", 5), database("app", "app"), role("theirs", 1), role(odd, 2)].into();
    let report = server.reconcile(&desired).await.unwrap();
    let foreign = report.finding(&Key::Role("theirs".to_owned()));
    assert!(matches!(foreign, Some(Finding::Conflict { .. })), "{report}");
    assert_eq!(postgres.psql(&[SHOW]), format!("app 5 me\napp of app me\n{odd} 2 me\ntheirs 3 -"));
    let changed: Objects<Server> = [role("app", 5), database("app", "app"), role(odd, 9)].into();
    assert!(server.reconcile(&changed).await.unwrap().is_converged(), "names are quoted");
    // The database goes before its owner, in one pass.
    let report = server.reconcile(&Objects::<Server>::new()).await.unwrap();
    assert!(report.is_converged(), "{report}");
    assert_eq!(postgres.psql(&[SHOW]), "theirs 3 -");
}

#[tokio::test]
async fn a_notice_has_drift_healed_before_the_next_resync() {
    let postgres = Postgres::start();
    let server = Arc::new(Reconciler::new(postgres.server(), strategy()));
    let mut events = server.events().subscribe();
    let running = Arc::clone(&server);
    let desired: Objects<Server> = [role("app", 5)].into();
    let running =
        tokio::spawn(async move { running.run(Arc::new(desired), std::future::pending()).await });
    let mut healed_by_hint = false;
    let mut is_undone = false;
    while !healed_by_hint {
        match events.recv().await.unwrap().kind {
            EventKind::Completed { converged: true, .. } if !is_undone => {
                is_undone = true;
                postgres
                    .psql(&["ALTER ROLE app CONNECTION LIMIT 1", "NOTIFY homeostat, 'role app'"]);
            }
            // A focused pass follows a hint; a resync looks at everything.
            EventKind::Started { keys: Some(1), .. } if is_undone => healed_by_hint = true,
            _ => {}
        }
    }
    loop {
        if let EventKind::StepApplied { .. } = events.recv().await.unwrap().kind {
            break;
        }
    }
    assert_eq!(postgres.psql(&[SHOW]), "app 5 me");
    running.abort();
}

/// One server for all checks; its objects are dropped between them.
struct Bench(Postgres);

impl Harness for Bench {
    type Source = Adapted<Server>;

    fn reset(&mut self) {
        let databases =
            "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'";
        let roles =
            "SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_' AND rolname <> 'postgres'";
        let drop = |kind: &str, names: String| -> Vec<String> {
            names.lines().map(|name| format!("DROP {kind} \"{name}\"")).collect()
        };
        let mut drops = drop("DATABASE", self.0.psql(&[databases]));
        drops.extend(drop("ROLE", self.0.psql(&[roles])));
        if !drops.is_empty() {
            self.0.psql(&drops.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    fn source(&self) -> Adapted<Server> {
        Adapted::new(self.0.server())
    }

    fn ownership(&self) -> Ownership {
        strategy().ownership()
    }

    fn desired(&self, which: DesiredState) -> DesiredObjects<Server> {
        let objects: Objects<Server> = match which {
            DesiredState::First => [role("app", 5), database("app", "app")].into(),
            DesiredState::Second => [role("app", 9), role("web", 2)].into(),
            DesiredState::Nothing => Objects::<Server>::new(),
        };
        DesiredObjects::from(objects)
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let rows = "SELECT 'role ' || rolname || '=' || concat_ws(' ', rolcanlogin, rolconnlimit, \
            shobj_description(oid, 'pg_authid')) FROM pg_roles WHERE rolname !~ '^pg_' UNION ALL \
            SELECT 'database ' || datname || '=' || concat_ws(' ', pg_get_userbyid(datdba), datconnlimit, \
            shobj_description(oid, 'pg_database')) FROM pg_database WHERE NOT datistemplate";
        let row = |row: &str| {
            row.split_once('=').map(|(key, rest)| (key.to_owned(), rest.to_owned())).unwrap()
        };
        self.0.psql(&[rows]).lines().map(row).collect()
    }

    /// Every transaction that writes, also one that fails, takes a number.
    fn meter(&self) -> Meter {
        let (programs, socket) = (self.0.programs.clone(), self.0.socket().display().to_string());
        let user = self.0.user;
        Arc::new(move || {
            let mut psql = Command::new(programs.join("psql"));
            psql.args([
                "-h",
                &socket,
                "-U",
                "postgres",
                "-XAtqc",
                "SELECT pg_snapshot_xmax(pg_current_snapshot())",
            ]);
            if let Some(user) = user {
                psql.uid(user);
            }
            let output = psql.current_dir("/").output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        })
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Remove(Key::Role(_)) => return Ability::Unable, // Its database may need it.
            Disturbance::Remove(Key::Database(name)) => {
                self.0.psql(&[&format!("DROP DATABASE {name}")]);
            }
            Disturbance::Alter(Key::Role(name)) => {
                self.0.psql(&[&format!("ALTER ROLE {name} CONNECTION LIMIT 77")]);
            }
            Disturbance::Alter(Key::Database(name)) => {
                self.0.psql(&[&format!("ALTER DATABASE {name} OWNER TO postgres")]);
            }
            Disturbance::Stranger => {
                self.0.psql(&["CREATE ROLE stranger"]);
            }
            Disturbance::Occupy(Key::Role(name)) => {
                self.0.psql(&[&format!("CREATE ROLE {name} CONNECTION LIMIT 1")]);
            }
            Disturbance::Occupy(Key::Database(name)) => {
                self.0.psql(&[&format!("CREATE DATABASE {name} CONNECTION LIMIT 1")]);
            }
        }
        Ability::Done
    }
}

#[tokio::test]
async fn the_source_keeps_the_laws_over_a_real_server() {
    let verdict = laws::check(&mut Bench(Postgres::start())).await.unwrap();
    let unchecked: Vec<u8> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(unchecked, [1, 1, 9], "{:?}", verdict.unchecked);
}

#[tokio::test]
async fn a_crash_at_any_point_leaves_nothing_behind() {
    laws::check_crashes(&mut Bench(Postgres::start())).await.unwrap();
}

#[tokio::test]
async fn a_subscription_that_is_dropped_closes_its_connection() {
    let postgres = Postgres::start();
    let listening =
        || postgres.psql(&["SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"]);
    let watch = postgres.server().watch().await.unwrap();
    assert_eq!(listening(), "1");
    drop(watch);
    while listening() != "0" {
        tokio::task::yield_now().await;
    }
}

/// The whole program: the source, and the one that runs it. Names are those of our crates.
#[test]
fn the_program_stays_within_two_hundred_lines_and_twelve_imported_names() {
    let source = concat!(include_str!("../src/lib.rs"), include_str!("../src/main.rs"));
    let code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let lines = source.lines().filter(code).count();
    assert!(lines <= 200, "{lines} lines");
    let imports = source.split("use homeostat_").skip(1).filter_map(|rest| rest.split_once(';'));
    let imports = imports.map(|(import, _)| import).filter(|path| !path.starts_with("postgres"));
    let last = |path: &str| path.rsplit("::").next().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = imports
        .flat_map(|import| last(import).split(',').map(str::to_owned).collect::<Vec<_>>())
        .map(|name| name.trim_matches(|c: char| !c.is_alphanumeric()).to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.len() <= 12, "{names:?}");
    assert!(!source.contains("homeostat_kit::engine"), "paths count as imports do");
}
