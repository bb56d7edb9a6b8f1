//! The page of a daemon that keeps a full Internet table: how soon it is there, and what those who follow it cost the healing.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::fixture::Fixture;
use super::latency::{LARGE, record, size};
use crate::{Budget, Group, Run, Unit, clock};

pub(super) fn group() -> Group {
    Group::new("heal: the page, 1M routes", Unit::Seconds)
        .with("first answer, p50", |run| answers(run, 50), &[Budget::AtMost(0.005)])
        .with("first answer, p99", |run| answers(run, 99), &[])
        .with("heal without followers, p50", |run| heals(run, 0), &[])
        .with(
            "heal with 100 followers, p50",
            |run| heals(run, FOLLOWERS),
            &[Budget::Within(1.5, "heal without followers, p50")],
        )
}

/// As many as the daemon allows.
const FOLLOWERS: usize = 100;
const ASKED: usize = 200;
const HEALS: usize = 500;

/// In the namespace of the fixture.
const PORT: u16 = 9776;

thread_local! {
    static KEPT: RefCell<Option<Fixture>> = const { RefCell::new(None) };
}

fn with_page<T>(run: &Run, act: impl FnOnce(&mut Fixture) -> Result<T>) -> Result<T> {
    KEPT.with_borrow_mut(|kept| {
        let size = size(run, LARGE);
        if kept.is_none() {
            let listen = format!("127.0.0.1:{PORT}");
            *kept = Some(Fixture::with_options(size, &["--listen", &listen])?);
        }
        let fixture = kept.as_mut().context("no fixture")?;
        fixture.network.enter()?;
        act(fixture)
    })
}

/// From the connection to the last byte, each time by a new client.
fn answers(run: &mut Run, percentile: usize) -> Result<()> {
    let asked = run.size(ASKED, 10);
    let times = with_page(run, |_| (0..asked).map(|_| answer()).collect::<Result<Vec<_>>>());
    let mut times = times?;
    times.sort_unstable();
    record(run, &times, percentile)
}

fn answer() -> Result<Duration> {
    let mut page = String::new();
    let (read, elapsed) = clock::time(|| -> Result<()> {
        let mut stream = ask("/", "Connection: close\r\n")?;
        stream.read_to_string(&mut page)?;
        Ok(())
    });
    read?;
    ensure!(page.starts_with("HTTP/1.1 200") && page.ends_with("</html>"), "no page: {page}");
    Ok(elapsed)
}

fn heals(run: &mut Run, followers: usize) -> Result<()> {
    let heals = run.size(HEALS, 20);
    let times = with_page(run, |fixture| {
        let followers = Followers::start(followers)?;
        let times = (0..heals).map(|_| fixture.heal_another()).collect::<Result<Vec<_>>>()?;
        followers.stop()?;
        Ok(times)
    });
    let mut times = times?;
    times.sort_unstable();
    record(run, &times, 50)
}

fn ask(path: &str, more: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], PORT)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n{more}\r\n")?;
    Ok(stream)
}

/// Open pages: one thread reads whatever comes to any of them.
struct Followers {
    is_over: Arc<AtomicBool>,
    reader: JoinHandle<Result<usize>>,
    expected: usize,
}

impl Followers {
    fn start(count: usize) -> Result<Self> {
        let mut streams = (0..count).map(|_| ask("/live", "")).collect::<Result<Vec<_>>>()?;
        for stream in &mut streams {
            // Each is followed once its head is there.
            let mut head = [0; 12];
            stream.read_exact(&mut head)?;
            ensure!(head == *b"HTTP/1.1 200", "the page is not followed");
            stream.set_nonblocking(true)?;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let reader = std::thread::spawn(move || read_all(&mut streams, &over));
        Ok(Followers { is_over, reader, expected: count })
    }

    fn stop(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let told = self.reader.join().ok().context("the reader panicked")??;
        ensure!(told == self.expected, "only {told} of {} were told of heals", self.expected);
        Ok(())
    }
}

/// Reads until it is over; says how many were told something.
fn read_all(streams: &mut [TcpStream], is_over: &AtomicBool) -> Result<usize> {
    const PAUSE: Duration = Duration::from_millis(5);
    let mut told = vec![false; streams.len()];
    let mut buffer = [0; 16 << 10];
    loop {
        // What has come until then is read.
        let is_last = is_over.load(Ordering::Relaxed);
        for (stream, told) in streams.iter_mut().zip(&mut told) {
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(_) => *told = true,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if is_last {
            return Ok(told.into_iter().filter(|told| *told).count());
        }
        std::thread::sleep(PAUSE);
    }
}
