//! A long write in one namespace, and what all others wait for it: heals in another namespace, HTTP and the socket. Needs
//! root.
//!
//! Some of it the kernel makes everybody wait for: the changes of links and routes of all namespaces take one lock (RTNL). A
//! plain program that deletes and adds a route in a third namespace meanwhile shows how much that is.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use homeostat_netlink::{Batch, Family, Options, Socket, uapi};
use homeostat_netns::Netns;
use homeostat_testkit::namespace::Namespace;

use super::document::Document;
use super::listener::RouteListener;
use super::wire::{FOREIGN, OURS, Verb, send_raw};
use crate::program::Running;
use crate::{Budget, Group, Run, Unit, clock};

/// The worst of each while the write lasts.
pub(super) fn groups() -> Vec<Group> {
    const KERNEL: &str = "a route deleted and added by a plain program: the kernel's lock";
    const MOST: f64 = 0.05;
    let group = |name, load: Load| {
        Group::new(name, Unit::Seconds)
            .with("the write itself", move |run| measure(run, load), &[])
            .with(KERNEL, move |run| record(run, load, |worst| worst.plain), &[])
            .with(
                "heal of a route",
                move |run| record(run, load, |worst| worst.heal),
                &[Budget::Beyond(MOST, KERNEL)],
            )
            .with(
                "/healthz",
                move |run| record(run, load, |worst| worst.http),
                &[Budget::AtMost(MOST)],
            )
            .with(
                "status over the socket",
                move |run| record(run, load, |worst| worst.socket),
                &[Budget::AtMost(MOST)],
            )
    };
    vec![
        group("long write: 1,500 pairs of links, and others", Load::Links),
        group("long write: a set of 200k elements, and others", Load::Elements),
    ]
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Links,
    Elements,
}

/// How long others waited at most, and the write itself.
#[derive(Clone, Copy)]
struct Worst {
    load: Load,
    write: Duration,
    plain: Duration,
    heal: Duration,
    http: Duration,
    socket: Duration,
}

thread_local! {
    /// Of the last round: the first contestant measures for all.
    static WORST: RefCell<Option<Worst>> = const { RefCell::new(None) };
}

fn record(run: &mut Run, load: Load, figure: fn(&Worst) -> Duration) -> Result<()> {
    WORST.with_borrow(|worst| {
        let worst = worst.as_ref().filter(|worst| worst.load == load);
        run.record(figure(worst.context("nothing was written")?).as_secs_f64());
        Ok(())
    })
}

/// So many that none is deleted often enough to be contention.
const ROUTES: usize = 2000;
/// Between two looks of one observer.
const PAUSE: Duration = Duration::from_millis(5);
const ADDRESS: &str = "127.0.0.1:9876";
/// Longer than a busy machine needs.
const TIMEOUT: Duration = Duration::from_mins(2);

fn measure(run: &mut Run, load: Load) -> Result<()> {
    let namespace = Namespace::enter()?;
    namespace.ip(&["link", "set", "lo", "up"])?;
    let before = before()?;
    let document = Document::new(&before)?;
    let running = document.keep_with_own_names(&["--listen", ADDRESS])?;
    let after = format!("{before}{}", load.text(run, &document)?);
    let (stop, socket_path) = (AtomicBool::new(false), document.socket());
    let heal = HealObserver::new(&named(&running, "kept")?)?;
    let plain = Socket::open_in(&named(&running, "plain")?, Family::Route, &Options::default())?;
    let (write, worst) = std::thread::scope(|scope| {
        let observe = |look: Box<dyn FnMut(usize) -> Result<()> + Send>| {
            let stop = &stop;
            scope.spawn(move || observe(stop, look))
        };
        let mut heal = heal;
        let observers = [
            observe(Box::new(move |nth| delete_and_add(&plain, nth))),
            observe(Box::new(move |nth| heal.look(nth))),
            observe(Box::new(|_| ask_http())),
            observe(Box::new(move |_| ask_socket(&socket_path))),
        ];
        let written = clock::time(|| write_all(&document, &after));
        stop.store(true, Ordering::Relaxed);
        (written, observers.map(ended))
    });
    let (written, write) = write;
    written?;
    let [plain, heal, http, socket] = worst;
    let worst = Worst { load, write, plain: plain?, heal: heal?, http: http?, socket: socket? };
    WORST.set(Some(worst));
    run.record(worst.write.as_secs_f64());
    Ok(())
}

/// Hands the document over, and waits until it is written and verified.
fn write_all(document: &Document, text: &str) -> Result<()> {
    document.rewrite(text)?;
    document.ask(&["reload"])?;
    document.ask(&["status", "--wait", "--timeout", "5m"])
}

fn ended(observer: ScopedJoinHandle<'_, Result<Duration>>) -> Result<Duration> {
    observer.join().map_err(|_| anyhow!("an observer panicked"))?
}

/// Looks until it is told to stop, at least once, and returns how long the longest look took.
fn observe(stop: &AtomicBool, mut look: impl FnMut(usize) -> Result<()>) -> Result<Duration> {
    let mut worst = Duration::ZERO;
    for nth in 0.. {
        let (looked, took) = clock::time(|| look(nth));
        looked?;
        worst = worst.max(took);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(worst)
}

/// Three namespaces: one with routes that are healed, one for the plain program, and one for the write.
fn before() -> Result<String> {
    let mut text = String::from("[namespaces.kept]\ncreate = true\nroutes = [\n");
    for nth in 0..ROUTES {
        writeln!(text, "{{ to = \"{}/32\", type = \"blackhole\" }},", destination(nth))?;
    }
    text.push_str("]\n[namespaces.plain]\ncreate = true\n[namespaces.written]\ncreate = true\n");
    Ok(text)
}

impl Load {
    /// What is declared for the third namespace.
    fn text(self, run: &Run, document: &Document) -> Result<String> {
        let mut text = String::new();
        match self {
            Load::Links => {
                for nth in 0..run.size(1500, 20) {
                    let name = format!("[namespaces.written.links.a{nth}]");
                    writeln!(text, "{name}\nkind = \"veth\"\npeer = \"b{nth}\"")?;
                }
            }
            Load::Elements => {
                let mut set = String::from("table ip t {\nset s { type ipv4_addr; elements = {\n");
                for nth in 0..run.size(200_000, 500) {
                    writeln!(set, "{},", destination(nth))?;
                }
                set.push_str("}; }\n}\n");
                document.write("set.nft", &set)?;
                text.push_str("[namespaces.written.nftables]\nfile = \"set.nft\"\n");
            }
        }
        Ok(text)
    }
}

fn destination(nth: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits((11 << 24) + u32::try_from(nth).unwrap_or(u32::MAX))
}

/// A namespace that the daemon has made under this name.
fn named(daemon: &Running, name: &str) -> Result<Netns> {
    Ok(Netns::at(format!("/proc/{}/root/run/netns/{name}", daemon.pid()))?)
}

/// One acked request about a route of this protocol.
fn route(verb: Verb, nth: usize, protocol: u8) -> Result<Batch> {
    const INET: u8 = 2;
    const BLACKHOLE: u8 = 6;
    let (kind, flags, scope) = match verb {
        Verb::Add => (uapi::RTM_NEWROUTE, uapi::NLM_F_CREATE | uapi::NLM_F_EXCL, 0),
        Verb::Delete => (uapi::RTM_DELROUTE, 0, uapi::RT_SCOPE_NOWHERE),
    };
    let mut batch = Batch::new();
    let mut message = batch.message(kind, flags | uapi::NLM_F_ACK);
    message.fixed(&[INET, 32, 0, 0, 254, protocol, scope, BLACKHOLE, 0, 0, 0, 0]);
    message.attr(uapi::RTA_DST, &destination(nth).octets());
    message.finish()?;
    Ok(batch)
}

/// As many requests as a heal takes, about a route that is not the daemon's.
fn delete_and_add(socket: &Socket, nth: usize) -> Result<()> {
    if nth == 0 {
        return send_raw(socket, &route(Verb::Add, 0, FOREIGN)?);
    }
    send_raw(socket, &route(Verb::Delete, 0, FOREIGN)?)?;
    send_raw(socket, &route(Verb::Add, 0, FOREIGN)?)
}

/// Deletes routes of the daemon and waits for the kernel's event of their return.
struct HealObserver {
    socket: Socket,
    listener: RouteListener,
}

impl HealObserver {
    fn new(netns: &Netns) -> Result<Self> {
        let socket = Socket::open_in(netns, Family::Route, &Options::default())?;
        Ok(HealObserver { socket, listener: netns.run(RouteListener::open)?? })
    }

    fn look(&mut self, nth: usize) -> Result<()> {
        let nth = nth % ROUTES;
        self.listener.drain()?;
        send_raw(&self.socket, &route(Verb::Delete, nth, OURS)?)?;
        self.listener.await_added(destination(nth).octets())
    }
}

fn ask_http() -> Result<()> {
    let mut stream = TcpStream::connect(ADDRESS)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{}", answer.lines().next().unwrap_or_default());
    Ok(())
}

fn ask_socket(path: &Path) -> Result<()> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"{\"verb\":\"status\"}\n")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    ensure!(answer.contains("format_version"), "an odd answer: {answer}");
    Ok(())
}
