//! Random configurations, one after the other, judged by the process itself: it must have what a fresh one has that is
//! started on the same files.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::balancer::Balancer;
use crate::without_reload::{Applied, Running, Setup, certificate};

#[test]
fn after_each_change_the_process_has_what_a_fresh_one_has() {
    let rounds = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 1000 } else { 24 };
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut setup = Setup::default();
    let running = Running::start(&setup);
    let (mut told, mut reloaded) = (0, 0);
    for round in 0..rounds {
        let before = setup.clone();
        for _ in 0..=dice.below(3) {
            dice.change(&mut setup);
        }
        match running.apply(&setup) {
            Applied::Told => told += 1,
            Applied::Reloaded => reloaded += 1,
        }
        let (is, fresh) = (State::of(&running.balancer, "admin"), fresh_state(&running.balancer));
        assert_eq!(is, fresh, "round {round}: {before:#?}\nbecame {setup:#?}");
    }
    assert!(told > 0 && reloaded > 0, "{told} without and {reloaded} with a reload");
}

/// A small generator of numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).unwrap()
    }

    fn server(&mut self, keywords: &str) -> String {
        let (name, host, port) = (self.below(9), 1 + self.below(3), 8101 + self.below(4));
        let weight = [String::new(), format!(" weight {}", self.below(257))][self.below(2)].clone();
        format!("server s{name} 127.0.0.{host}:{port}{weight}{keywords}")
    }

    fn change(&mut self, setup: &mut Setup) {
        const KEYWORDS: [&str; 4] = ["", " maxconn 7", " backup", " check inter 60s port 8001"];
        let is_server = |line: &&String| line.starts_with("server ");
        let name = |line: &str| line.split(' ').nth(1).unwrap_or_default().to_owned();
        let keywords = |line: &String| {
            let found = KEYWORDS.iter().rev().find(|one| line.ends_with(*one));
            (*found.unwrap()).to_owned()
        };
        let usual = setup.web.iter().find(is_server).map(keywords).unwrap_or_default();
        match self.below(20) {
            0..=7 => {
                let server = self.server(&usual);
                setup.web.retain(|line| name(line) != name(&server));
                setup.web.push(server);
            }
            8..=10 if setup.web.iter().filter(is_server).count() > 1 => {
                let servers = setup.web.iter().enumerate().filter(|(_, line)| is_server(line));
                let servers: Vec<usize> = servers.map(|(at, _)| at).collect();
                setup.web.remove(servers[self.below(servers.len())]);
            }
            11..=13 => {
                let entry = format!("h{}.test b{}", self.below(9), self.below(3));
                let mut lines: Vec<&str> = setup.map.lines().collect();
                match self.below(3) {
                    0 => lines.push(&entry),
                    1 => lines.insert(self.below(lines.len() + 1), &entry),
                    _ if lines.is_empty() => {}
                    _ => _ = lines.remove(self.below(lines.len())),
                }
                setup.map = lines.join("\n") + "\n";
            }
            14 => setup.certificate = certificate(&format!("n{}.test", self.below(100))),
            15 => {
                let more = ["balance leastconn", "balance source", "option forwardfor"];
                setup.web.retain(|line| line.starts_with("server "));
                setup.web.insert(0, more[self.below(3)].to_owned());
            }
            16 => {
                let more = ["", "backend other\n  server s1 127.0.0.1:8101\n"];
                more[self.below(2)].clone_into(&mut setup.more);
            }
            17 => {
                let more = ["", "  default-server maxconn 9\n", "  balance leastconn\n"];
                more[self.below(3)].clone_into(&mut setup.defaults);
            }
            18 => {
                let keywords = KEYWORDS[self.below(4)];
                let server = self.server(keywords);
                setup.web.retain(|line| name(line) != name(&server));
                setup.web.push(server);
            }
            _ => {
                let keywords = KEYWORDS[self.below(4)];
                for line in setup.web.iter_mut().filter(|line| line.starts_with("server ")) {
                    if keywords.is_empty() || !line.contains(keywords) {
                        let plain =
                            KEYWORDS.iter().fold(line.clone(), |line, one| line.replace(one, ""));
                        *line = format!("{plain}{keywords}");
                    }
                }
            }
        }
    }
}

/// What a process says that it has.
#[derive(Debug, PartialEq, Eq)]
struct State {
    servers: Vec<String>,
    map: Vec<String>,
    certificate: String,
}

impl State {
    fn of(balancer: &Balancer, socket: &str) -> Self {
        let answer = balancer.ask(socket, "show servers state");
        let lines = answer.lines().filter(|line| !line.starts_with('#') && line.contains(' '));
        let mut servers: Vec<String> = lines
            .map(|line| {
                // Without numbers that depend on the order, what checks have found and when, whether one is under way, and
                // the weight of the file.
                let columns: Vec<&str> = line.split(' ').collect();
                let check = columns[13].parse::<u8>().unwrap() & !1;
                let stable = [1, 3, 4, 6, 7, 14, 15, 16, 17, 18, 19, 20, 21, 22];
                format!("{} {check}", stable.map(|at| columns[at]).join(" "))
            })
            .collect();
        servers.sort();
        let answer = balancer.ask(socket, &format!("show map {}", balancer.path("host.map")));
        let entries = answer.lines().filter_map(|line| line.split_once(' '));
        let map = entries.map(|(_, entry)| entry.to_owned()).collect();
        let certificate =
            balancer.ask(socket, &format!("show ssl cert {}", balancer.path("site.pem")));
        State { servers, map, certificate }
    }
}

/// The state of another process, on the same files but for its socket and ports.
fn fresh_state(balancer: &Balancer) -> State {
    let (socket, admin) =
        (balancer.bench.state().join("fresh"), balancer.bench.state().join("admin"));
    let text = fs::read_to_string(balancer.main()).unwrap();
    let text = text.replace(admin.to_str().unwrap(), socket.to_str().unwrap());
    let text = text.replace("bind 127.0.0.1:8", "bind 127.0.0.1:9");
    let file = balancer.bench.state().join("fresh.cfg");
    fs::write(&file, text).unwrap();
    let _ = fs::remove_file(&socket);
    let _process = Fresh::start(&file);
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        std::thread::yield_now();
    }
    State::of(balancer, "fresh")
}

struct Fresh(Child);

impl Fresh {
    #[expect(clippy::disallowed_methods, reason = "the program that is under care")]
    fn start(file: &std::path::Path) -> Self {
        let mut command = Command::new("/usr/sbin/haproxy");
        command.arg("-db").arg("-f").arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Fresh(command.spawn().unwrap())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
