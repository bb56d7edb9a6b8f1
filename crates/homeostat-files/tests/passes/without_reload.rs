//! A running `HAProxy` is changed without a reload where that is possible, and reloaded where it is not.

mod random;
mod traffic;

use std::fs;

use homeostat_engine::Explain as _;
use homeostat_files::DesiredState;
use rcgen::{CertificateParams, KeyPair};

use crate::balancer::Balancer;
use crate::bench::report_lines;

/// A balancer with one frontend that chooses a backend by a map.
struct Running {
    balancer: Balancer,
}

/// What a configuration is made of.
#[derive(Clone, Debug)]
struct Setup {
    /// The lines of the backend `web`.
    web: Vec<String>,
    map: String,
    certificate: String,
    /// More sections.
    more: String,
    defaults: String,
}

impl Default for Setup {
    fn default() -> Self {
        let server = |n: u8| format!("server s{n} 127.0.0.1:810{n} weight {}", 10 + n);
        Setup {
            web: (1..=3).map(server).collect(),
            map: "a.test web\nb.test web\n".to_owned(),
            certificate: certificate("one.test"),
            more: String::new(),
            defaults: String::new(),
        }
    }
}

/// A new certificate and its key.
fn certificate(name: &str) -> String {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    format!("{}{}", certificate.pem(), key.serialize_pem())
}

impl Running {
    fn start(setup: &Setup) -> Self {
        let mut balancer = Balancer::new();
        let desired = configuration(&balancer, setup);
        balancer.bench.pass(&desired);
        balancer.start();
        balancer.bench.converge_soon(&desired);
        Running { balancer }
    }

    fn desired(&self, setup: &Setup) -> DesiredState {
        configuration(&self.balancer, setup)
    }

    /// Applies a change, and says whether the process is another one afterwards.
    #[track_caller]
    fn apply(&self, setup: &Setup) -> Applied {
        let desired = self.desired(setup);
        let (worker, reloads) = (self.balancer.worker(), self.counted_reloads());
        let report = self.balancer.bench.converge(&desired);
        let lines = report_lines(&report);
        let is_reloaded = self.balancer.worker() != worker;
        assert_eq!(is_reloaded, self.counted_reloads() > reloads, "{lines:?}");
        self.balancer.bench.assert_quiet(&desired);
        if is_reloaded { Applied::Reloaded } else { Applied::Told }
    }

    fn counted_reloads(&self) -> u64 {
        self.balancer.bench.source.counters.reloads.get()
    }

    fn servers(&self) -> Vec<String> {
        let answer = self.balancer.ask("admin", "show servers state web");
        let lines = answer.lines().filter(|line| !line.starts_with('#') && line.contains(' '));
        let mut servers: Vec<String> = lines
            .map(|line| {
                let columns: Vec<&str> = line.split(' ').collect();
                let [_, _, _, name, ip, _, admin, weight, ..] = columns.as_slice() else {
                    panic!("{line}")
                };
                format!("{name} {ip}:{} {weight} {admin}", columns[18])
            })
            .collect();
        servers.sort();
        servers
    }
}

type Lines = Vec<String>;

#[derive(Debug, PartialEq, Eq)]
enum Applied {
    Told,
    Reloaded,
}

fn configuration(balancer: &Balancer, setup: &Setup) -> DesiredState {
    let Setup { web, map, certificate, more, defaults } = setup;
    let admin = balancer.bench.state().join("admin").display().to_string();
    let (map_path, certificate_path) = (balancer.path("host.map"), balancer.path("site.pem"));
    let web = format!("  {}\n", web.join("\n  "));
    let text = format!(
        "global\n  setenv HOMEOSTAT {{{{ generation }}}}\n  stats socket {admin} mode 600 level admin\n\
         defaults\n  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 5s\n{defaults}\
         frontend front\n  bind 127.0.0.1:8001\n  bind 127.0.0.1:8002 ssl crt {certificate_path}\n  \
         use_backend %[req.hdr(host),map({map_path},web)]\n\
         backend web\n{web}{more}",
    );
    let files = [("haproxy.cfg", &*text), ("host.map", &**map), ("site.pem", &**certificate)];
    balancer.declared(&files)
}

#[test]
fn servers_are_changed_added_and_removed_without_a_reload() {
    let mut setup = Setup::default();
    let running = Running::start(&setup);
    setup.web[0] = "server s1 127.0.0.1:8101 weight 99".to_owned();
    assert_eq!(running.apply(&setup), Applied::Told, "weight");
    setup.web[1] = "server s2 127.0.0.2:8199 weight 12".to_owned();
    assert_eq!(running.apply(&setup), Applied::Told, "address and port");
    setup.web.push("server s4 [::1]:8104".to_owned());
    assert_eq!(running.apply(&setup), Applied::Told, "add");
    setup.web.remove(2);
    assert_eq!(running.apply(&setup), Applied::Told, "remove");
    let expected = ["s1 127.0.0.1:8101 99 0", "s2 127.0.0.2:8199 12 0", "s4 ::1:8104 1 0"];
    assert_eq!(running.servers(), expected);
    assert!(running.balancer.bench.source.counters.runtime_changes.get() >= 4);
    // The file has it as well: a process that reads it has the same.
    running.balancer.ask("master", "reload");
    running.balancer.bench.converge_soon(&running.desired(&setup));
    assert_eq!(running.servers(), expected);
}

#[test]
fn servers_with_checks_are_added_with_their_checks() {
    let with_check =
        |n: u8| format!("server s{n} 127.0.0.1:810{n} check inter 20s fall 5 maxconn 50");
    let mut setup = Setup { web: vec![with_check(1)], ..Setup::default() };
    let running = Running::start(&setup);
    setup.web.push(with_check(2));
    assert_eq!(running.apply(&setup), Applied::Told);
    let state = running.balancer.ask("admin", "show servers state web");
    // srv_check_state: enabled and configured.
    let checks: Vec<&str> = state.lines().filter_map(|line| line.split(' ').nth(13)).collect();
    assert_eq!(checks, ["srv_check_health", "6", "6"], "{state}");
    // What all have is not told to one: the text decides.
    setup.web[1] = with_check(2).replace("fall 5", "fall 6");
    assert_eq!(running.apply(&setup), Applied::Reloaded);
}

#[test]
fn maps_are_changed_without_a_reload() {
    let mut setup = Setup::default();
    let running = Running::start(&setup);
    let shown = || {
        let answer = running
            .balancer
            .ask("admin", &format!("show map {}", running.balancer.path("host.map")));
        let entries = answer.lines().filter_map(|line| line.split_once(' '));
        entries.map(|(_, entry)| entry.to_owned()).collect::<Vec<_>>()
    };
    // Set, delete and append.
    setup.map = "a.test other\nc.test web\n".to_owned();
    assert_eq!(running.apply(&setup), Applied::Told);
    assert_eq!(shown(), ["a.test other", "c.test web"]);
    // Another order, a key twice, values that would have to be quoted.
    setup.map = "# all\nc.test a b; \\\"c\" <<\n\n  a.test web\na.test two\n#d.test x\n".to_owned();
    assert_eq!(running.apply(&setup), Applied::Told);
    assert_eq!(shown(), ["c.test a b; \\\"c\" <<", "a.test web", "a.test two"]);
    // More than one request can hold.
    let entries = (0..5000).map(|n| format!("host-{n}.test backend-{}\n", n % 7));
    setup.map = entries.collect::<Vec<_>>().concat();
    assert_eq!(running.apply(&setup), Applied::Told);
    assert_eq!(shown().len(), 5000);
    setup.map = String::new();
    assert_eq!(running.apply(&setup), Applied::Told);
    assert_eq!(shown(), [""; 0]);
}

#[test]
fn certificates_are_changed_without_a_reload() {
    let mut setup = Setup::default();
    let running = Running::start(&setup);
    let name = || {
        let path = running.balancer.path("site.pem");
        let answer = running.balancer.ask("admin", &format!("show ssl cert {path}"));
        let line = answer.lines().find(|line| line.starts_with("Subject Alternative Name: "));
        line.unwrap().rsplit(':').next().unwrap().to_owned()
    };
    assert_eq!(name(), "one.test");
    setup.certificate = certificate("two.test");
    assert_eq!(running.apply(&setup), Applied::Told);
    assert_eq!(name(), "two.test");
    // Somebody has begun to change it: that is taken back.
    let (path, other) = (running.balancer.path("site.pem"), certificate("other.test"));
    running.balancer.ask("admin", &format!("set ssl cert {path} <<\n{other}\n"));
    setup.certificate = format!("\n{}\n", certificate("three.test"));
    assert_eq!(running.apply(&setup), Applied::Told);
    assert_eq!(name(), "three.test");
    // A certificate beside it is not reported by the process.
    let chain = certificate("chain.test");
    let chain = chain.split_once("-----BEGIN PRIVATE").unwrap().0;
    setup.certificate.push_str(chain);
    assert_eq!(running.apply(&setup), Applied::Reloaded);
}

/// The traps of the runtime interface: each of them is a reload.
#[test]
fn what_cannot_be_told_for_certain_is_reloaded() {
    let server = |n: u8, keywords: &str| format!("server s{n} 127.0.0.1:810{n} {keywords}");
    let line = |text: &str| text.to_owned();
    let add = |keywords: &str| {
        let before = vec![server(1, keywords), server(2, keywords)];
        let after = vec![server(1, keywords), server(2, keywords), server(3, keywords)];
        (before, after)
    };
    let with = |first: &str, (before, after): (Vec<String>, Vec<String>)| {
        let lines = |lines: Vec<String>| [vec![line(first)], lines].concat();
        (lines(before), lines(after))
    };
    let (before, after) = add("");
    let named = |mut lines: Vec<String>| {
        lines.push(line("server named localhost:8109"));
        lines
    };
    let cases: Vec<(&str, (Lines, Lines))> = vec![
        ("default-server", with("default-server inter 5s", add(""))),
        ("cookie", add("cookie x")),
        ("an unusual keyword", add("error-limit 7")),
        ("another algorithm", with("balance random", add(""))),
        (
            "a static algorithm",
            with("balance static-rr", (vec![server(1, "weight 3")], vec![server(1, "weight 4")])),
        ),
        ("a host name", (before.clone(), named(before.clone()))),
        ("a host name among them", (named(before.clone()), named(after.clone()))),
        ("a reference", with("use-server s1 if { hdr(x) -m found }", add(""))),
        (
            "a sample of a server",
            with("http-request deny if { srv_is_up(web/s1) } { hdr(x) -m found }", add("")),
        ),
        ("stickiness", with("stick-table type ip size 100", add(""))),
        ("another keyword", (vec![server(1, "maxconn 5")], vec![server(1, "maxconn 6")])),
        (
            "keywords that change places",
            (
                vec![server(1, "maxconn 5"), server(2, "")],
                vec![server(1, ""), server(2, "maxconn 5")],
            ),
        ),
        ("another line", (before.clone(), [vec![line("option httpchk")], before.clone()].concat())),
    ];
    let mut setup = Setup::default();
    let running = Running::start(&setup);
    for (name, (before, after)) in cases {
        setup.web = before;
        running.balancer.bench.converge_soon(&running.desired(&setup));
        setup.web = after;
        assert_eq!(running.apply(&setup), Applied::Reloaded, "{name}");
    }
    // Defaults count as much.
    setup = Setup { defaults: "  default-server inter 5s\n".to_owned(), ..Setup::default() };
    running.balancer.bench.converge_soon(&running.desired(&setup));
    setup.web.push(server(4, ""));
    assert_eq!(running.apply(&setup), Applied::Reloaded, "default-server among defaults");
    setup.web[0] = "server s1 127.0.0.9:8101 weight 77".to_owned();
    assert_eq!(running.apply(&setup), Applied::Told, "what all servers have is no matter for one");
    // Requests change this map themselves.
    let path = running.balancer.path("host.map");
    setup.more = format!("  http-request set-map({path}) %[src] x\n");
    running.balancer.bench.converge_soon(&running.desired(&setup));
    setup.map.push_str("z.test web\n");
    assert_eq!(running.apply(&setup), Applied::Reloaded, "set-map");
}

#[test]
fn what_somebody_told_the_process_is_healed_without_a_reload() {
    let setup = Setup::default();
    let running = Running::start(&setup);
    let (desired, expected) = (running.desired(&setup), running.servers());
    let path = running.balancer.path("host.map");
    for command in [
        "set server web/s1 weight 1".to_owned(),
        "set server web/s2 addr 127.0.0.77 port 1".to_owned(),
        "add server web/foreign 127.0.0.1:1".to_owned(),
        "set server web/s3 state maint;del server web/s3".to_owned(),
        format!("set map {path} a.test nowhere"),
        format!("clear map {path}"),
        format!(
            "set ssl cert {} <<\n{}\n",
            running.balancer.path("site.pem"),
            certificate("x.test")
        ),
    ] {
        running.balancer.ask("admin", &command);
        if command.starts_with("set ssl cert") {
            running
                .balancer
                .ask("admin", &format!("commit ssl cert {}", running.balancer.path("site.pem")));
        }
        let plan = report_lines(&running.balancer.bench.plan(&desired));
        assert_eq!(plan, ["~ program haproxy"], "{command}");
        assert_eq!(running.apply(&setup), Applied::Told, "{command}");
        assert_eq!(running.servers(), expected, "{command}");
    }
}

#[test]
fn states_that_an_operator_set_are_left_and_shown() {
    let mut setup = Setup::default();
    let running = Running::start(&setup);
    running.balancer.ask("admin", "set server web/s1 state maint;set server web/s2 state drain");
    let desired = running.desired(&setup);
    let report = running.balancer.bench.converge(&desired);
    assert!(report.plan().steps.is_empty());
    let mut lines = Vec::new();
    report
        .plan()
        .explain(homeostat_engine::Kind::Settled, &mut |entry| lines.push(format!("{entry:?}")));
    let lines = lines.join("\n");
    assert!(lines.contains("server web/s1 is in maintenance, by an operator"), "{lines}");
    assert!(lines.contains("server web/s2 is draining, by an operator"), "{lines}");
    setup.web[0] = "server s1 127.0.0.1:8101 weight 50".to_owned();
    assert_eq!(running.apply(&setup), Applied::Told);
    let expected = ["s1 127.0.0.1:8101 50 1", "s2 127.0.0.1:8102 12 8", "s3 127.0.0.1:8103 13 0"];
    assert_eq!(running.servers(), expected);
}

#[test]
fn a_server_that_is_gone_and_cannot_be_added_comes_back_by_a_reload() {
    let servers = ["server s1 127.0.0.1:8101 maxconn 5", "server s2 127.0.0.1:8102"];
    let setup = Setup { web: servers.map(str::to_owned).to_vec(), ..Setup::default() };
    let running = Running::start(&setup);
    running.balancer.ask("admin", "set server web/s2 state maint;del server web/s2");
    assert_eq!(running.apply(&setup), Applied::Reloaded);
    assert_eq!(running.servers().len(), 2);
}

#[test]
fn what_runs_already_is_restored_without_a_check_and_other_texts_are_checked() {
    let mut setup = Setup::default();
    let running = Running::start(&setup);
    let bench = &running.balancer.bench;
    // A hand edit goes, and nobody is told.
    let text = fs::read_to_string(running.balancer.main()).unwrap();
    fs::write(running.balancer.main(), "edited\n").unwrap();
    assert_eq!(running.apply(&setup), Applied::Told);
    assert_eq!(fs::read_to_string(running.balancer.main()).unwrap(), text);
    // What the program has not run yet is checked.
    setup.more = "  no-such-keyword\n".to_owned();
    let refused = bench.source.counters.refused_checks.get();
    let lines = report_lines(&bench.pass(&running.desired(&setup))).join("\n");
    assert!(lines.contains("its program refuses it"), "{lines}");
    assert_eq!(bench.source.counters.refused_checks.get(), refused + 1);
    assert_eq!(fs::read_to_string(running.balancer.main()).unwrap(), text);
}
