//! Files that are made of templates and inputs, from the document to the disk.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::keeping::until;
use crate::world::World;

/// `@` stands for the directory of the files, which `check` must see at their real paths.
const DOCUMENT: &str = r#"
[values]
greeting = "hello"

[settings.files]
resync = "1h"

[files.web]
check = ["/bin/sh", "-c", "! grep -n bad @/a.cfg /dev/null >&2"]

[files.web.inputs]
servers = { file = "servers.json" }
blocked = { file = "blocked.txt", as = "lines" }

[files.web.write]
"@/a.cfg" = { template = "a.cfg.j2" }
"@/b.cfg" = { text = "{% for line in inputs.blocked %}\nblock {{ line }}\n{% endfor %}\n" }
"#;

const TEMPLATE: &str = "# {{ values.greeting }}\n{% include \"servers.j2\" %}\n";
const INCLUDED: &str =
    "{% for server in inputs.servers %}\nserver {{ server.name }}\n{% endfor %}\n";

fn world() -> World {
    let world = World::new();
    fs::create_dir(world.path().join("etc")).unwrap();
    world.write("a.cfg.j2", TEMPLATE);
    world.write("servers.j2", INCLUDED);
    world.write("servers.json", r#"[{ "name": "one" }]"#);
    world.write("blocked.txt", "192.0.2.1\n");
    world.write("host.toml", document(&world, DOCUMENT));
    world
}

fn document(world: &World, text: &str) -> String {
    text.replace('@', &world.path().join("etc").display().to_string())
}

fn holds(world: &World, name: &str) -> Option<String> {
    fs::read_to_string(world.path().join("etc").join(name)).ok()
}

/// As a careful program writes it.
fn replace(world: &World, name: &str, text: &str) {
    world.write("new", text);
    fs::rename(world.path().join("new"), world.path().join(name)).unwrap();
}

#[track_caller]
fn shows(world: &World, args: &str, code: i32, words: &[&str]) {
    let ran = world.run(args).exits(code);
    let text = format!("{}{}", ran.stdout, ran.stderr);
    for word in words {
        assert!(text.contains(word), "{args}: {word} is not in\n{text}");
    }
}

#[test]
fn a_template_with_inputs_is_checked_planned_applied_and_verified() {
    let world = world();
    shows(&world, "check host.toml", 0, &[]);
    shows(&world, "plan host.toml", 0, &["+# hello", "+server one", "+block 192.0.2.1"]);
    assert_eq!(holds(&world, "a.cfg"), None, "a plan writes nothing");
    assert!(!world.state().join("files").exists(), "a plan keeps nothing");
    shows(&world, "apply --yes host.toml", 0, &["2 created"]);
    assert_eq!(holds(&world, "a.cfg").as_deref(), Some("# hello\nserver one\n"));
    shows(&world, "verify host.toml", 0, &[]);
    world.write("servers.json", r#"[{ "name": "one" }, { "name": "two" }]"#);
    shows(&world, "verify host.toml", 2, &["+server two"]);
    shows(&world, "apply --yes host.toml", 0, &["+server two", "1 updated"]);
}

#[test]
fn mistakes_in_templates_are_found_by_check_at_their_places() {
    let world = world();
    world.write("servers.j2", "{% for server in inputs.server %}\n{% endfor %}\n");
    shows(&world, "check host.toml", 1, &["the input `server` is not declared", "servers.j2:1:18"]);
    world.write("servers.j2", INCLUDED);
    world.write("a.cfg.j2", "one\n{{ valuse.greeting }}\n");
    shows(&world, "check host.toml", 1, &["`valuse` is undefined", "a.cfg.j2:2:4"]);
    world.write("a.cfg.j2", "{{ values.greetings }}\n");
    shows(&world, "check host.toml", 1, &["a.cfg.j2:1:4", "undefined"]);
    world.write("a.cfg.j2", TEMPLATE);
    let broken = DOCUMENT.replace("{{ line }}", "{{ line");
    world.write("host.toml", document(&world, &broken));
    shows(&world, "check host.toml", 1, &["host.toml:", "`text` is a template"]);
}

#[test]
fn a_set_waits_for_an_input_and_the_accepted_value_stands_in_for_one_that_is_gone() {
    let world = world();
    fs::remove_file(world.path().join("blocked.txt")).unwrap();
    let waits = ["waits on input blocked", "No such file"];
    shows(&world, "plan host.toml", 0, &waits);
    shows(&world, "apply --yes host.toml", 1, &waits);
    assert_eq!((holds(&world, "a.cfg"), holds(&world, "b.cfg")), (None, None));
    world.write("blocked.txt", "192.0.2.1\n");
    shows(&world, "apply --yes host.toml", 0, &["2 created"]);
    fs::remove_file(world.path().join("blocked.txt")).unwrap();
    world.write("servers.json", r#"[{ "name": "other" }]"#);
    let stands_in = ["input blocked", "its last accepted value stands in", "No such file"];
    shows(&world, "apply --yes host.toml", 1, &stands_in);
    assert_eq!(holds(&world, "a.cfg").as_deref(), Some("# hello\nserver other\n"));
    assert_eq!(holds(&world, "b.cfg").as_deref(), Some("block 192.0.2.1\n"));
}

#[test]
fn a_refused_input_holds_no_other_and_hand_edits_are_healed_meanwhile() {
    let world = world();
    let _daemon = world.keep(&document(&world, DOCUMENT));
    until("the files", || holds(&world, "b.cfg").is_some());
    replace(&world, "servers.json", r#"[{ "name": "bad" }]"#);
    replace(&world, "blocked.txt", "192.0.2.2\n");
    until("the good input", || holds(&world, "b.cfg").as_deref() == Some("block 192.0.2.2\n"));
    let refused = || {
        let status = world.run("status --json").stdout;
        status.contains("input servers") && status.contains("server bad")
    };
    until("the status", refused);
    assert_eq!(holds(&world, "a.cfg").as_deref(), Some("# hello\nserver one\n"));
    for _ in 0..3 {
        fs::write(world.path().join("etc/a.cfg"), "edited\n").unwrap();
        until("the heal", || holds(&world, "a.cfg").as_deref() == Some("# hello\nserver one\n"));
    }
    replace(&world, "servers.json", r#"[{ "name": "good" }]"#);
    until("the new value", || holds(&world, "a.cfg").as_deref() == Some("# hello\nserver good\n"));
    until("the status", || !world.run("status --json").stdout.contains("input servers"));
}

#[test]
fn an_input_that_is_truncated_and_filled_slowly_never_leads_to_half_a_file() {
    let world = world();
    let _daemon = world.keep(&document(&world, DOCUMENT));
    until("the files", || holds(&world, "b.cfg").is_some());
    let whole = |count: usize| {
        (0..count).map(|n| format!("block 192.0.2.{n}\n")).collect::<Vec<_>>().concat()
    };
    let mut former = "block 192.0.2.1\n".to_owned();
    for count in [3, 5] {
        let mut file = File::create(world.path().join("blocked.txt")).unwrap();
        for n in 0..count {
            writeln!(file, "192.0.2.{n}").unwrap();
            file.sync_all().unwrap();
            // The other input makes passes meanwhile.
            let name = format!("n{count}x{n}");
            replace(&world, "servers.json", &format!(r#"[{{ "name": "{name}" }}]"#));
            until("a pass", || holds(&world, "a.cfg").unwrap().contains(&name));
            assert_eq!(holds(&world, "b.cfg").unwrap(), former);
        }
        drop(file);
        until("the whole list", || holds(&world, "b.cfg").unwrap() == whole(count));
        former = whole(count);
    }
}

#[test]
fn a_file_that_loses_most_of_its_lines_is_held() {
    let world = world();
    let many: Vec<String> = (0..30).map(|n| format!("192.0.2.{n}\n")).collect();
    world.write("blocked.txt", many.concat());
    shows(&world, "apply --yes host.toml", 0, &["2 created"]);
    world.write("blocked.txt", "192.0.2.1\n");
    let held = ["it would have 1 lines in place of 30", "--allow-mass-delete"];
    shows(&world, "plan host.toml", 0, &held);
    shows(&world, "apply --yes host.toml", 1, &held);
    assert_eq!(holds(&world, "b.cfg").unwrap().lines().count(), 30);
    // What others do to it is healed all the same, and is no reason to hold anything.
    fs::write(world.path().join("etc/b.cfg"), "x\n".repeat(100)).unwrap();
    shows(&world, "apply --yes host.toml", 1, &held);
    assert_eq!(holds(&world, "b.cfg").unwrap().lines().count(), 30);
    shows(&world, "apply --yes --allow-mass-delete host.toml", 0, &["1 updated"]);
    assert_eq!(holds(&world, "b.cfg").unwrap(), "block 192.0.2.1\n");
}

#[test]
fn a_daemon_follows_the_facts_of_the_machine() {
    let world = World::new();
    fs::create_dir(world.path().join("etc")).unwrap();
    let text = "[files.web.write]\n\"@/a\" = { text = \"{{ links | list | join(',') }}\\n\" }\n";
    let _daemon = world.keep(&document(&world, text));
    until("the links", || holds(&world, "a").is_some_and(|text| text.contains("lo")));
    world.ip("link add fact0 type bridge");
    until("the new link", || holds(&world, "a").is_some_and(|text| text.contains("fact0")));
    world.ip("link del fact0");
    until("its end", || holds(&world, "a").is_some_and(|text| !text.contains("fact0")));
}

#[test]
fn a_secret_input_is_in_no_output_and_in_no_public_file() {
    let world = world();
    let secret = DOCUMENT
        .replace("as = \"lines\" }", "as = \"lines\", secret = true }")
        .replace("\\n{% endfor %}\\n\" }", "\\n{% endfor %}\\n\", secret = true }");
    world.write("host.toml", document(&world, &secret));
    let mut all = String::new();
    let mut run = |args: &str| {
        let ran = world.run(args);
        all.push_str(&ran.stdout);
        all.push_str(&ran.stderr);
    };
    world.write("blocked.txt", "CANARY-ONE\n");
    for args in [
        "check host.toml",
        "plan host.toml",
        "plan --json host.toml",
        "plan --out saved.plan host.toml",
        "apply --yes --json host.toml",
        "show",
    ] {
        run(args);
    }
    world.write("blocked.txt", "CANARY-TWO\n");
    fs::write(world.path().join("etc/b.cfg"), "CANARY-THREE\n").unwrap();
    for args in ["plan host.toml", "verify --json host.toml", "apply --yes host.toml"] {
        run(args);
    }
    // One that cannot be understood, and one that is refused.
    world.write("blocked.txt", "CANARY without an end");
    run("apply --yes host.toml");
    let public = secret.replace("{% endfor %}\\n\", secret = true }", "{% endfor %}\\n\" }");
    world.write("host.toml", document(&world, &public));
    world.write("blocked.txt", "CANARY-FOUR\n");
    shows(&world, "check host.toml", 1, &["the input `blocked` is secret, and the file is not"]);
    run("check host.toml");
    run("apply --yes host.toml");
    let saved = fs::read_to_string(world.path().join("saved.plan")).unwrap();
    assert!(all.contains("its content is secret"), "{all}");
    assert!(!all.contains("CANARY") && !saved.contains("CANARY"), "{all}");
    assert_eq!(holds(&world, "b.cfg").as_deref(), Some("block CANARY-TWO\n"));
    readable_by_root_only(&world.state().join("files"));
}

fn readable_by_root_only(directory: &std::path::Path) {
    use std::os::unix::fs::MetadataExt as _;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::metadata(&path).unwrap();
        if metadata.is_dir() {
            readable_by_root_only(&path);
        } else {
            assert_eq!(metadata.mode() & 0o077, 0, "{}", path.display());
        }
    }
}

#[test]
fn what_a_daemon_says_holds_no_secret() {
    let world = world();
    let secret = DOCUMENT
        .replace("as = \"lines\" }", "as = \"lines\", secret = true }")
        .replace("\\n{% endfor %}\\n\" }", "\\n{% endfor %}\\n\", secret = true }");
    world.write("blocked.txt", "CANARY-ONE\n");
    let _daemon = world.keep(&document(&world, &secret));
    until("the file", || holds(&world, "b.cfg").as_deref() == Some("block CANARY-ONE\n"));
    let mut events = world.follow();
    let mut list = OpenOptions::new().append(true).open(world.path().join("blocked.txt")).unwrap();
    writeln!(list, "CANARY-TWO").unwrap();
    drop(list);
    let said = RefCell::new(String::new());
    let mut until_applied = |cause: &str| {
        events.until(|event| {
            said.borrow_mut().push_str(&event.to_string());
            let is_update = event["event"] == "step-applied" && event["action"] == "update";
            is_update && event["cause"] == cause
        });
    };
    // A file that holds the new value is not enough: its pass may not have ended.
    until_applied("config");
    fs::write(world.path().join("etc/b.cfg"), "CANARY-THREE\n").unwrap();
    until_applied("drift");
    assert_eq!(holds(&world, "b.cfg").as_deref(), Some("block CANARY-ONE\nblock CANARY-TWO\n"));
    let status = world.run("status --json").stdout;
    let said = said.into_inner();
    let log = world.log();
    for text in [&status, &said, &log] {
        assert!(!text.contains("CANARY"), "{text}");
    }
    assert!(status.contains("files/web"), "{status}");
}

#[test]
fn the_example_is_made_as_its_comments_say() {
    let world = World::new();
    world.ip("link set lo up");
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for name in ["files/servers.json", "files/web.cfg.j2", "files/macros.j2"] {
        world.write(name, fs::read(format!("{examples}/{name}")).unwrap());
    }
    let text = fs::read_to_string(format!("{examples}/files.toml")).unwrap();
    let etc = world.path().join("etc").display().to_string();
    world.write("host.toml", text.replace("/etc/example", &etc));
    shows(&world, "check host.toml", 0, &[]);
    shows(&world, "apply --yes host.toml", 0, &["3 created"]);
    let expected = "# example.net\nlisten 127.0.0.1\nlisten ::1\n\
                    server \"one\" 192.0.2.1\nserver \"two\" 2001:db8::2 weight 10\n";
    assert_eq!(holds(&world, "web.cfg").as_deref(), Some(expected));
    let expected = "one.example.net 192.0.2.1\ntwo.example.net 2001:db8::2\n";
    assert_eq!(holds(&world, "hosts.map").as_deref(), Some(expected));
}

#[test]
fn a_trial_that_nobody_confirms_brings_back_what_former_templates_made() {
    let world = world();
    shows(&world, "apply --yes host.toml", 0, &["2 created"]);
    world.write("servers.j2", "tried\n");
    world.run("apply --yes --confirm-within 1s host.toml").exits(1);
    let former = "# hello\nserver one\n";
    until("the rollback", || holds(&world, "a.cfg").as_deref() == Some(former));
}

/// Answers every request with the same text, until it is dropped.
struct Server {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(at: SocketAddr, text: &str) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let (address, is_over) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while let (Ok((mut stream, _)), false) =
                (listener.accept(), over.load(Ordering::SeqCst))
            {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Server { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_url_is_followed_and_its_accepted_value_outlives_an_outage_and_a_restart() {
    let world = world();
    world.ip("link set lo up");
    let server = Server::start(([127, 0, 0, 1], 0).into(), "192.0.2.10\n");
    let address = server.address;
    let url = format!("{{ url = \"http://{address}/list\", every = \"50ms\", as = \"lines\" }}");
    let text = DOCUMENT.replace("{ file = \"blocked.txt\", as = \"lines\" }", &url);
    let text = document(&world, &text);
    let daemon = world.keep(&text);
    until("the list", || holds(&world, "b.cfg").as_deref() == Some("block 192.0.2.10\n"));
    drop(server);
    until("the outage", || {
        world.run("status --json").stdout.contains("last accepted value stands in")
    });
    drop(daemon);
    fs::write(world.path().join("etc/b.cfg"), "edited\n").unwrap();
    let _daemon = world.keep(&text);
    until("the heal", || holds(&world, "b.cfg").as_deref() == Some("block 192.0.2.10\n"));
    let _server = Server::start(address, "192.0.2.11\n");
    until("the new list", || holds(&world, "b.cfg").as_deref() == Some("block 192.0.2.11\n"));
    world.converges();
}

#[test]
fn the_phases_of_a_set_are_events_of_one_pass() {
    let world = world();
    let _daemon = world.keep(&document(&world, DOCUMENT));
    world.converges();
    let mut events = world.follow();
    replace(&world, "servers.json", r#"[{ "name": "new" }]"#);
    let [rendered, rest @ ..] = ["rendered", "validated", "deployed"].map(|phase| {
        events.until(|event| event["event"] == phase && event["scope"] == "files/web")
    });
    assert!(rendered["pass"].as_u64().is_some_and(|pass| pass > 1), "{rendered}");
    for event in rest {
        assert_eq!(event["pass"], rendered["pass"], "{event}");
    }
}

#[test]
fn a_daemon_follows_the_name_of_its_host() {
    let world = World::new();
    fs::create_dir(world.path().join("etc")).unwrap();
    let text = "[files.web.write]\n\"@/a\" = { text = \"{{ host.name }}\\n\" }\n";
    world.write("host.toml", document(&world, text));
    let mut command = world.command("unshare");
    let run = world.homeostat("run host.toml");
    command.arg("--uts").arg(run.get_program()).args(run.get_args());
    let daemon = world.keep_by(command);
    until("the name", || holds(&world, "a").is_some());
    for name in ["one", "two"] {
        let mut rename = world.command("nsenter");
        rename.arg(format!("--uts=/proc/{}/ns/uts", daemon.pid())).args(["hostname", name]);
        assert!(rename.status().unwrap().success());
        until("the new name", || holds(&world, "a").as_deref() == Some(&format!("{name}\n")));
    }
}

#[test]
fn a_template_that_is_included_by_a_computed_name_is_followed() {
    let world = world();
    world.write("a.cfg.j2", "{% include inputs.servers[0].name ~ '.j2' %}\n");
    world.write("one.j2", "{% if host.name %}\nfirst\n{% endif %}\n");
    let _daemon = world.keep(&document(&world, DOCUMENT));
    until("the file", || holds(&world, "a.cfg").as_deref() == Some("first\n"));
    replace(&world, "one.j2", "second\n");
    until("the new part", || holds(&world, "a.cfg").as_deref() == Some("second\n"));
    // One that is not there yet is waited for.
    replace(&world, "servers.json", r#"[{ "name": "two" }]"#);
    until("the refusal", || world.run("status --json").stdout.contains("two.j2"));
    world.write("two.j2", "two\n");
    until("the other part", || holds(&world, "a.cfg").as_deref() == Some("two\n"));
}
