//! The program, as a user runs it: a document of shapes against the service.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "the test runs the program as a user does")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use homeostat_shapes::client::Client;
use homeostat_shapes::declarations::Declarations;
use homeostat_shapes::service::Service;
use homeostat_shapes::shape::Shape;

const DOCUMENT: &str = include_str!("../shapes.toml");

fn shapes(service: &Service, document: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_shapes");
    let addr = service.addr().to_string();
    let state = document.with_file_name("state");
    let mut command = Command::new(program);
    command.arg("--once").arg(addr).arg(document).arg(state);
    command.stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn check(output: &Output, expected: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    assert!(output.status.success());
}

#[test]
fn the_program_reconciles_a_document_of_shapes() {
    let directory = tempfile::tempdir().unwrap();
    let document = directory.path().join("shapes.toml");
    let service = Service::start().unwrap();
    for ownership in ["mark", "checkpoint"] {
        let text = DOCUMENT.replace(r#"ownership = "mark""#, &format!("ownership = {ownership:?}"));
        std::fs::write(&document, &text).unwrap();
        check(&shapes(&service, &document), "+ door\n+ window\n");
        check(&shapes(&service, &document), "");
        std::fs::write(&document, text.split("[shapes.window]").next().unwrap()).unwrap();
        check(&shapes(&service, &document), "- window\n");
        std::fs::write(&document, text.split("[shapes.door]").next().unwrap()).unwrap();
        check(&shapes(&service, &document), "- door\n");
        assert_eq!(service.shown(), "");
    }
}

#[test]
fn the_program_ends_with_an_error_when_a_stranger_is_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let document = directory.path().join("shapes.toml");
    std::fs::write(&document, DOCUMENT).unwrap();
    let service = Service::start().unwrap();
    service.paint("door", "red");
    let output = shapes(&service, &document);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not everything is as declared"));
    assert_eq!(service.shown(), "red door, blue window");
}

/// Ends with the test, whatever becomes of it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the service holds this, while the program runs.
async fn until(service: &Service, shown: &str) {
    let mut turn = tokio::time::interval(Duration::from_millis(5));
    let waited = tokio::time::timeout(Duration::from_mins(1), async {
        while service.shown() != shown {
            turn.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "there is {:?}, and never {shown:?}", service.shown());
}

/// Waits until the program has printed a line of trouble with this word.
async fn until_printed(path: &Path, word: &str) {
    let mut turn = tokio::time::interval(Duration::from_millis(5));
    let printed = || std::fs::read_to_string(path).unwrap();
    let waited = tokio::time::timeout(Duration::from_mins(1), async {
        while !printed().lines().any(|line| line.starts_with("! ") && line.contains(word)) {
            turn.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "no trouble with `{word}` in {:?}", printed());
}

#[tokio::test]
async fn the_program_heals_what_others_do_follows_its_document_and_reports_a_broken_one() {
    let directory = tempfile::tempdir().unwrap();
    let document = directory.path().join("shapes.toml");
    std::fs::write(&document, DOCUMENT).unwrap();
    let service = Service::start().unwrap();
    service.paint("cloud", "white");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shapes"));
    let printed = directory.path().join("printed");
    let output = std::fs::File::create(&printed).unwrap();
    command.arg(service.addr().to_string()).arg(&document).stdout(output);
    let _running = Running(command.spawn().unwrap());
    until(&service, "white cloud, green door, blue window").await;
    service.paint("door", "red");
    service.remove("window");
    until(&service, "white cloud, green door, blue window").await;
    for (broken, reason) in [
        ("owner = ", "line 1, column 9"),
        ("owner = \"\"\nownership = \"mark\"\n", "the owner cannot be used"),
    ] {
        std::fs::write(&document, broken).unwrap();
        until_printed(&printed, reason).await;
        service.paint("door", "red");
        until(&service, "white cloud, green door, blue window").await;
    }
    std::fs::write(&document, DOCUMENT.split("[shapes.window]").next().unwrap()).unwrap();
    until(&service, "white cloud, green door").await;
}

#[tokio::test]
async fn the_program_follows_the_declarations_of_a_store() {
    let service = Service::start().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shapes-declarations"));
    command.arg(service.addr().to_string()).stdin(Stdio::null());
    let _running = Running(command.spawn().unwrap());
    let client = Client::new(service.addr());
    let user = Declarations { client, finalizer: "shapes".to_owned() };
    user.declare("door", &Shape::square("green")).await.unwrap();
    until(&service, "green door").await;
    user.delete("door").await.unwrap();
    until(&service, "").await;
}
