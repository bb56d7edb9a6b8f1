//! Requests go on while everything changes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use homeostat_engine::Explain as _;

use crate::bench::report_lines;
use crate::without_reload::{Applied, Running, Setup, certificate};

/// The ports on which servers answer.
const PORTS: std::ops::Range<u16> = 8101..8107;

/// Answers each request, and holds those that ask for it until they are let go.
fn serve(listener: &TcpListener, held: &Arc<Mutex<Vec<Sender<()>>>>) {
    for stream in listener.incoming().flatten() {
        let held = Arc::clone(held);
        // It ends with its connection.
        thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            while let Some(head) = read_head(&mut reader) {
                if head.contains("GET /held") {
                    let (let_go, wait): (Sender<()>, Receiver<()>) = channel();
                    held.lock().unwrap().push(let_go);
                    let _ = wait.recv();
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                if reader.get_mut().write_all(answer).is_err() {
                    return;
                }
            }
        });
    }
}

/// The lines up to the empty one; nothing, if the other side hung up.
fn read_head(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    loop {
        let length = reader.read_line(&mut head).ok().filter(|length| *length > 0)?;
        if length <= 2 {
            return Some(head);
        }
    }
}

/// What clients have met.
#[derive(Debug, Default)]
struct Met {
    requests: AtomicU64,
    failed: AtomicU64,
    closed: AtomicU64,
}

impl Met {
    fn counts(&self) -> (u64, u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.requests), count(&self.failed), count(&self.closed))
    }
}

/// A client that asks on one connection, as often as it is told to.
fn ask_on(met: &Met, turns: &Receiver<()>) {
    let connect = || BufReader::new(TcpStream::connect("127.0.0.1:8001").unwrap());
    let mut reader = connect();
    while turns.recv().is_ok() {
        if let Some(head) = ask(&mut reader, "/") {
            met.requests.fetch_add(1, Ordering::Relaxed);
            let is_good = head.starts_with("HTTP/1.1 200");
            met.failed.fetch_add(u64::from(!is_good), Ordering::Relaxed);
        } else {
            met.closed.fetch_add(1, Ordering::Relaxed);
            reader = connect();
        }
    }
}

fn ask(reader: &mut BufReader<TcpStream>, path: &str) -> Option<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a.test\r\n\r\n");
    reader.get_mut().write_all(request.as_bytes()).ok()?;
    let head = read_head(reader)?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let mut body = vec![0; length.trim().parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let closes = head.to_lowercase().contains("connection: close");
    (!closes).then_some(head)
}

struct Traffic {
    met: Arc<Met>,
    clients: Vec<(Sender<()>, JoinHandle<()>)>,
}

impl Traffic {
    fn start() -> Self {
        let met = Arc::new(Met::default());
        let clients = (0..4).map(|_| {
            let (turn, turns) = channel();
            let met = Arc::clone(&met);
            (turn, thread::spawn(move || ask_on(&met, &turns)))
        });
        Traffic { clients: clients.collect(), met }
    }

    /// Lets each client ask some more, beside what the caller does next.
    fn go_on(&self) {
        const REQUESTS: usize = 20;
        for (turn, _) in &self.clients {
            (0..REQUESTS).for_each(|_| turn.send(()).unwrap());
        }
    }

    fn stop(self) -> (u64, u64, u64) {
        for (turn, client) in self.clients {
            drop(turn);
            client.join().unwrap();
        }
        self.met.counts()
    }
}

/// A balancer, and servers that answer on all ports. Threads have the network of the one that starts them.
fn start(setup: &Setup) -> (Running, Arc<Mutex<Vec<Sender<()>>>>) {
    let running = Running::start(setup);
    let held = Arc::default();
    for port in PORTS {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let held = Arc::clone(&held);
        thread::spawn(move || serve(&listener, &held));
    }
    (running, held)
}

fn server(n: usize, weight: usize) -> String {
    let port = usize::from(PORTS.start) + n % PORTS.len();
    format!("server s{n} 127.0.0.1:{port} weight {}", 1 + weight % 256)
}

/// The nth state of a configuration that changes all the time.
fn changed(setup: &mut Setup, n: usize) {
    match n % 20 {
        // Two servers of five leave and come.
        0 => setup.web = (0..3).map(|one| server(one, n)).collect(),
        10 => setup.web = (0..5).map(|one| server(one, n)).collect(),
        5 => setup.map = format!("a.test web\nhost-{n}.test web\n"),
        15 => setup.certificate = certificate(&format!("n{n}.test")),
        _ => setup.web[n % 3] = server(n % 3, n),
    }
}

#[test]
fn no_request_fails_while_everything_changes_without_a_reload() {
    const RELOADS: usize = 10;
    let changes = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 1000 } else { 100 };
    let mut setup = Setup { web: (0..5).map(|n| server(n, 1)).collect(), ..Setup::default() };
    let (mut running, _held) = start(&setup);
    // A configuration that is not valid is never in place: after no system call that writes.
    let (main, looks) = (running.balancer.main(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&looks);
    let source = running.balancer.bench.source.clone().tapped(Arc::new(move |_| {
        assert!(!fs::read_to_string(&main).unwrap().contains("no-such-keyword"));
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    running.balancer.bench.source = source;
    let (bench, worker) = (&running.balancer.bench, running.balancer.worker());
    let reloads = running.counted_reloads();
    let traffic = Traffic::start();
    for n in 0..changes {
        if n % 10 == 9 {
            let more = "  no-such-keyword\n".to_owned();
            let invalid = Setup { more, ..setup.clone() };
            let lines = report_lines(&bench.pass(&running.desired(&invalid))).join("\n");
            assert!(lines.contains("its program refuses it"), "{lines}");
        }
        changed(&mut setup, n);
        traffic.go_on();
        // Whoever leaves goes when its requests have ended.
        running.balancer.bench.converge_soon(&running.desired(&setup));
    }
    assert!(looks.load(Ordering::Relaxed) > 0);
    let (requests, failed, closed) = traffic.stop();
    println!(
        "{changes} changes without a reload: {requests} requests, {failed} failed, {closed} connections closed"
    );
    assert_eq!((failed, closed), (0, 0), "of {requests} requests");
    assert!(requests > 0);
    assert_eq!(running.balancer.worker(), worker);
    assert_eq!(running.counted_reloads(), reloads);
    // The same by reloads, for comparison.
    let traffic = Traffic::start();
    for n in 0..RELOADS {
        changed(&mut setup, n);
        setup.more = format!("  http-request set-header x {n}\n");
        traffic.go_on();
        running.balancer.bench.converge_soon(&running.desired(&setup));
    }
    let (requests, failed, closed) = traffic.stop();
    println!(
        "{RELOADS} changes by reloads: {requests} requests, {failed} failed, {closed} connections closed"
    );
    assert_eq!(running.counted_reloads(), reloads + RELOADS as u64);
}

#[test]
fn a_server_leaves_when_its_connections_have_ended() {
    let mut setup = Setup { web: vec![server(0, 0)], ..Setup::default() };
    let (running, held) = start(&setup);
    let worker = running.balancer.worker();
    let begin = || {
        thread::spawn(|| {
            let mut reader = BufReader::new(TcpStream::connect("127.0.0.1:8001").unwrap());
            ask(&mut reader, "/held")
        })
    };
    let wait = || {
        while held.lock().unwrap().is_empty() {
            thread::yield_now();
        }
    };
    let client = begin();
    wait();
    setup.web = vec![server(1, 0)];
    let lines = report_lines(&running.balancer.bench.pass(&running.desired(&setup))).join("\n");
    assert!(lines.contains(". program haproxy: the connections of web/s0"), "{lines}");
    assert_eq!(running.servers(), ["s0 127.0.0.1:8101 1 1", "s1 127.0.0.1:8102 1 0"]);
    // It is declared again: it works again, and another one leaves.
    setup.web = vec![server(0, 0)];
    running.balancer.bench.converge_soon(&running.desired(&setup));
    assert_eq!(running.servers(), ["s0 127.0.0.1:8101 1 0"]);
    setup.web = vec![server(1, 0)];
    let report = running.balancer.bench.pass(&running.desired(&setup));
    assert!(!report.is_converged());
    held.lock().unwrap().clear();
    assert!(client.join().unwrap().unwrap().starts_with("HTTP/1.1 200"));
    running.balancer.bench.converge_soon(&running.desired(&setup));
    assert_eq!(running.servers(), ["s1 127.0.0.1:8102 1 0"]);
    assert_eq!(running.balancer.worker(), worker);
    // A server that is not there any more is enabled when it comes again.
    setup.web.push(server(0, 0));
    assert_eq!(running.apply(&setup), Applied::Told);
    assert_eq!(running.servers(), ["s0 127.0.0.1:8101 1 0", "s1 127.0.0.1:8102 1 0"]);
}
