//! Which server we talk to, and that no other one learns the token.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::SystemTime;

use homeostat_core::{Failure, Reader as _};
use homeostat_engine::{Focus, Source as _, View};
use homeostat_guests::{Client, Guests, Run, Timeouts, Token, TokenError, Trust};
use homeostat_pve_simulator::{Call, End, Fault, Guest, Harm, Kind, Script, Simulator, World};

use crate::ground::{Ground, desired, runs, story};

/// The part of the token that must never be shown.
fn secret() -> String {
    Simulator::token().split_once('=').unwrap().1.to_owned()
}

fn ground() -> Ground {
    Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")))
}

async fn failure(endpoint: &str, trust: &Trust) -> Failure {
    let token = Token::parse(&Simulator::token()).unwrap();
    let client = Client::new(endpoint.parse().unwrap(), token, trust).unwrap();
    let source = Guests::new(&client, "default", Timeouts::default());
    let (focus, records) = (Focus::All, std::collections::BTreeMap::new());
    let desired = desired([(101, runs(Run::Running))]);
    let view = View::new(&focus, &desired, &records);
    source.reader().unwrap().observe(&view, &mut |_| {}).await.unwrap_err()
}

#[tokio::test]
async fn another_certificate_than_the_pinned_one_gets_no_request() {
    let ground = ground();
    let pin = ["AB"; 32].join(":").parse().unwrap();
    let failure = failure(&ground.simulator.endpoint(), &Trust::Pinned(pin)).await;
    assert!(failure.error.contains(&ground.simulator.fingerprint()), "{failure:?}");
    assert!(failure.help.unwrap().contains("fingerprint"));
    assert_eq!(ground.simulator.with(|world| world.calls.len()), 0);
}

#[tokio::test]
async fn the_system_does_not_trust_an_authority_that_it_does_not_know() {
    let ground = ground();
    let failure = failure(&ground.simulator.endpoint(), &Trust::System).await;
    assert!(failure.error.contains("cannot reach"), "{failure:?}");
    assert_eq!(ground.simulator.with(|world| world.calls.len()), 0);
}

#[tokio::test]
async fn a_server_without_tls_learns_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = vec![0; 4096];
        let length = stream.read(&mut received).unwrap();
        stream.write_all(b"HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\n\r\n").unwrap();
        received.truncate(length);
        received
    });
    let failure = failure(&endpoint, &Trust::System).await;
    let received = String::from_utf8_lossy(&received.join().unwrap()).into_owned();
    assert!(!received.contains(&secret()), "the token was sent in the clear");
    assert!(!format!("{failure:?}").contains(&secret()));
}

#[tokio::test]
async fn a_redirect_is_an_error_and_the_token_goes_nowhere_else() {
    let (ground, elsewhere) = (ground(), ground());
    let to = format!("{}/api2/json/nodes", elsewhere.simulator.endpoint());
    ground.simulator.with(|world| world.fail(Fault::on("/nodes", Harm::Redirect(to))));
    let trust = Trust::Pinned(ground.simulator.fingerprint().parse().unwrap());
    let failure = failure(&ground.simulator.endpoint(), &trust).await;
    assert!(failure.error.contains("302"), "{failure:?}");
    assert!(!format!("{failure:?}").contains(&secret()));
    assert_eq!(ground.simulator.with(|world| world.calls.len()), 1);
    assert_eq!(elsewhere.simulator.with(|world| world.calls.len()), 0);
}

/// A client whose token is in a file, and that file.
fn by_file(ground: &Ground) -> (Client, std::path::PathBuf) {
    let path = ground.state.path().join("token");
    fs::write(&path, Simulator::token()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let trust = Trust::Pinned(ground.simulator.fingerprint().parse().unwrap());
    let endpoint = ground.simulator.endpoint().parse().unwrap();
    (Client::new(endpoint, Token::read(&path).unwrap(), &trust).unwrap(), path)
}

/// The cluster knows this token, and no other.
fn rotate(ground: &Ground, name: &str) {
    ground.simulator.with(|world| {
        world.tokens = [(name.to_owned(), "another-secret".to_owned())].into();
    });
}

#[tokio::test]
async fn a_token_that_was_replaced_in_its_file_is_picked_up_also_while_a_task_is_followed() {
    let ground = ground();
    let (client, path) = by_file(&ground);
    let mut process = ground.process_by(&client);
    let script = Script { takes: World::LONG, end: End::Ok };
    ground.simulator.with(|world| world.script(101, script));
    process.pass(&desired([(101, runs(Run::Running))])).await;
    rotate(&ground, "keeper@pve!second");
    fs::write(&path, "keeper@pve!second=another-secret").unwrap();
    tokio::join!(process.operations.tasks_finished(), ground.hurry_when_asked("/tasks/UPID"));
    process.converge(&desired([(101, runs(Run::Running))])).await;
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
    assert!(ground.simulator.with(|world| world.guests[&101].running));
}

#[tokio::test]
async fn a_token_file_that_is_being_written_is_not_read_after_a_refusal() {
    let ground = ground();
    let (client, path) = by_file(&ground);
    rotate(&ground, "keeper@pve!second");
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process_by(&client);
    let mut writer = fs::File::options().write(true).truncate(true).open(&path).unwrap();
    // Half of a token looks like one.
    writer.write_all(b"keeper@pve!second=another").unwrap();
    assert!(process.try_pass(&desired).await.is_err());
    let sent = |half: &str| {
        let is_half =
            |call: &Call| call.authorization.as_ref().is_some_and(|text| text.ends_with(half));
        ground.simulator.with(|world| world.calls.iter().any(is_half))
    };
    assert!(!sent("=another"), "half of a token was sent");
    writer.write_all(b"-secret").unwrap();
    writer.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    drop(writer);
    process.converge(&desired).await;
    assert!(sent("=another-secret"));
}

#[tokio::test]
async fn a_token_that_is_not_known_any_more_is_an_error_that_does_not_show_it() {
    let ground = ground();
    let (client, path) = by_file(&ground);
    rotate(&ground, "keeper@pve!homeostat");
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process_by(&client);
    let error = process.try_pass(&desired).await.err().unwrap();
    let reported = format!("{error} {error:?}");
    assert!(reported.contains("401") && !reported.contains(&secret()), "{reported}");
    // A file that others can read is not read, whatever it holds.
    fs::write(&path, "keeper@pve!homeostat=another-secret").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(process.try_pass(&desired).await.is_err());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    process.converge(&desired).await;
}

#[tokio::test]
async fn nothing_that_is_printed_has_the_token_in_it() {
    let ground = ground();
    let client = ground.client();
    let source = Guests::new(&client, "default", Timeouts::default());
    let token = Token::parse(&Simulator::token()).unwrap();
    let (reader, operations) = (source.reader().unwrap(), ground.process().operations);
    let mut printed = format!("{client:?} {source:?} {token:?} {reader:?} {operations:?}");
    drop(operations);
    let harms = [
        Harm::DropRequest,
        Harm::DropResponse,
        Harm::Refuse(401, "authentication failure".to_owned()),
        Harm::Refuse(500, "boom".to_owned()),
    ];
    for harm in harms {
        let mut process = ground.process();
        ground.simulator.with(|world| world.fail(Fault::on("/status/start", harm).times(1)));
        let report = process.pass(&desired([(101, runs(Run::Running))])).await;
        printed += &story(&report);
        process.operations.tasks_finished().await;
    }
    for entry in fs::read_dir(ground.state.path()).unwrap() {
        printed += &String::from_utf8_lossy(&fs::read(entry.unwrap().path()).unwrap());
    }
    assert!(!printed.contains(&secret()), "{printed}");
    let received =
        ground.simulator.with(|world| world.calls.first().unwrap().authorization.clone());
    assert!(received.unwrap().contains(&secret()), "the target itself receives the token");
}

#[test]
fn a_token_file_that_others_can_read_is_refused() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("token");
    fs::write(&path, format!("{}\n", Simulator::token())).unwrap();
    let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o644, 0o640, 0o620, 0o602, 0o700] {
        set(mode);
        let refused = Token::read(&path).unwrap_err();
        assert!(matches!(refused, TokenError::Mode { .. }), "{refused:?}");
        assert!(refused.help().contains("chmod 600"));
    }
    set(0o600);
    assert_eq!(Token::read(&path).unwrap().user(), "keeper@pve");
    set(0o400);
    assert!(Token::read(&path).is_ok());
    set(0o600);
    fs::write(&path, "hunter2").unwrap();
    let refused = Token::read(&path).unwrap_err();
    assert!(matches!(refused, TokenError::Shape { .. }));
    assert!(!format!("{refused} {refused:?} {}", refused.help()).contains("hunter2"));
}

#[test]
fn a_token_file_that_is_a_directory_or_a_pipe_is_refused_at_once_and_for_what_it_is() {
    let directory = tempfile::TempDir::new().unwrap();
    let pipe = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    for path in [directory.path(), &pipe] {
        let refused = Token::read(path).unwrap_err();
        assert!(matches!(&refused, TokenError::Read { .. }), "{refused:?}");
    }
}
