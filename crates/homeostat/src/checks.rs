//! Runs checks of whether something works: an address answers, a port accepts connections, a server answers a request, a
//! program succeeds. Each runs in a network namespace, for a bounded time.

use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Result;
use futures_util::future::join_all;
pub(crate) use homeostat_engine::Check;
use homeostat_netns::Netns;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, ipproto, socket_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::unix::pipe;
use tokio::time::timeout;

use crate::output::line::plain;
use crate::sys;

/// How long each kind may take.
const PING: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(2);
const PROGRAM: Duration = Duration::from_secs(10);
/// How much of what a program prints is read for the reason of its failure, in bytes.
const PRINTED: usize = 4096;
/// How long the first line of an answer over HTTP may be, in bytes.
const LONGEST_STATUS: usize = 4096;
/// How long a reason may be, in characters.
const REASON: usize = 200;

/// What one run of a check came to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct CheckResult {
    pub(crate) check: Check,
    /// Why it failed, if it did.
    pub(crate) error: Option<String>,
}

impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let check = plain(&self.check.to_string());
        match &self.error {
            None => write!(f, "{check} is good"),
            Some(error) => write!(f, "{check} fails: {}", plain(error)),
        }
    }
}

/// Runs a check once.
pub(crate) async fn run(check: &Check, netns: &Netns) -> CheckResult {
    let (longest, ran) = match check {
        Check::Ping(address) => (PING, timeout(PING, ping(*address, netns)).await),
        Check::Tcp(address) => (CONNECT, timeout(CONNECT, connect(*address, netns)).await),
        Check::Http { address, path } => {
            (CONNECT, timeout(CONNECT, request(*address, path, netns)).await)
        }
        Check::Program { path, arguments } => {
            (PROGRAM, timeout(PROGRAM, run_program(path, arguments, netns)).await)
        }
    };
    let error = match ran {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => Some(format!("no answer within {longest:?}")),
    };
    let error = error.map(|error| error.chars().take(REASON).collect());
    CheckResult { check: check.clone(), error }
}

/// Runs all of these once, at the same time.
pub(crate) async fn run_all(checks: &[Check], netns: &Netns) -> Vec<CheckResult> {
    join_all(checks.iter().map(|check| run(check, netns))).await
}

async fn connect(address: SocketAddr, netns: &Netns) -> Result<()> {
    open_stream(address, netns).await.map(drop)
}

async fn open_stream(address: SocketAddr, netns: &Netns) -> Result<tokio::net::TcpStream> {
    let family = family(address.ip());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = netns.run(|| socket_with(family, SocketType::STREAM, flags, None))??;
    let stream =
        tokio::net::TcpSocket::from_std_stream(TcpStream::from(socket)).connect(address).await?;
    is_another(&stream.local_addr()?, &address)?;
    Ok(stream)
}

/// Asks for a path. What the answer says beside its status is not read.
async fn request(address: SocketAddr, path: &str, netns: &Netns) -> Result<()> {
    let mut stream = open_stream(address, netns).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: homeostat\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let (mut line, mut chunk) = (Vec::new(), [0; 256]);
    while line.len() < LONGEST_STATUS && !line.contains(&b'\n') {
        match stream.read(&mut chunk).await? {
            0 => break,
            length => line.extend(chunk.iter().take(length)),
        }
    }
    let line = String::from_utf8_lossy(&line);
    judge_status(line.lines().next().unwrap_or_default())
}

fn judge_status(line: &str) -> Result<()> {
    let mut words = line.split(' ');
    let version = words.next().unwrap_or_default();
    let status = words.next().and_then(|word| word.parse::<u16>().ok());
    match status.filter(|_| version.starts_with("HTTP/1.")) {
        Some(200..=399) => Ok(()),
        Some(_) => Err(anyhow::anyhow!("it answers {}", line.trim())),
        None => Err(anyhow::anyhow!("what answers there does not speak HTTP")),
    }
}

/// Quirk `a-connection-to-itself` (Linux 6.18): a connection from this host to a port of its own that nobody listens on
/// succeeds if the kernel happens to give it the same port: it is connected to itself.
fn is_another(from: &SocketAddr, to: &SocketAddr) -> Result<()> {
    anyhow::ensure!(from != to, "connection refused: no process listens there");
    Ok(())
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// A socket for echo requests, and whether its messages begin with the header of IP.
struct EchoSocket {
    socket: OwnedFd,
    has_header: bool,
}

/// Datagram sockets are for groups that `net.ipv4.ping_group_range` names, raw ones for who has the capability.
fn open_echo_socket(address: IpAddr) -> rustix::io::Result<EchoSocket> {
    let protocol: Protocol = if address.is_ipv4() { ipproto::ICMP } else { ipproto::ICMPV6 };
    let open = |kind| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(family(address), kind, flags, Some(protocol))
    };
    if let Ok(socket) = open(SocketType::DGRAM) {
        return Ok(EchoSocket { socket, has_header: false });
    }
    let socket = open(SocketType::RAW)?;
    Ok(EchoSocket { socket, has_header: address.is_ipv4() })
}

async fn ping(address: IpAddr, netns: &Netns) -> Result<()> {
    let EchoSocket { socket, has_header } = netns.run(|| open_echo_socket(address))??;
    // The calls are the same for every kind of datagram.
    let socket = tokio::net::UdpSocket::from_std(UdpSocket::from(socket))?;
    socket.connect(SocketAddr::new(address, 0)).await?;
    let nonce = RandomState::new().build_hasher().finish().to_be_bytes();
    socket.send(&echo_request(address, nonce)).await?;
    let mut answer = [0; 256];
    loop {
        let length = socket.recv(&mut answer).await?;
        let answer = answer.get(..length).unwrap_or_default();
        if is_reply(answer, has_header, address, nonce) {
            return Ok(());
        }
    }
}

/// Type, code, checksum, identifier and sequence; then a value that only the right answer repeats.
fn echo_request(address: IpAddr, nonce: [u8; 8]) -> [u8; 16] {
    let mut request = [0; 16];
    // An identifier of a datagram socket is replaced by the kernel's own.
    let (header, rest) = request.split_at_mut(8);
    header.copy_from_slice(&[if address.is_ipv4() { 8 } else { 128 }, 0, 0, 0, 0, 1, 0, 1]);
    rest.copy_from_slice(&nonce);
    // The kernel adds the checksum of IPv6, which covers addresses too.
    if address.is_ipv4() {
        let sum = checksum(request).to_be_bytes();
        if let Some(place) = request.get_mut(2..4) {
            place.copy_from_slice(&sum);
        }
    }
    request
}

fn checksum(message: [u8; 16]) -> u16 {
    let words = message.chunks_exact(2).filter_map(|pair| pair.try_into().ok());
    let mut sum: u32 = words.map(|pair| u32::from(u16::from_be_bytes(pair))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // It fits after the loop.
    !u16::try_from(sum).unwrap_or_default()
}

fn is_reply(answer: &[u8], has_header: bool, address: IpAddr, nonce: [u8; 8]) -> bool {
    let header = match answer.first() {
        Some(first) if has_header => usize::from(first & 0xf) * 4,
        _ => 0,
    };
    let kind = if address.is_ipv4() { 0 } else { 129 };
    let message = answer.get(header..).unwrap_or_default();
    message.first() == Some(&kind) && message.get(8..16) == Some(&nonce)
}

/// Ends a program with all that it started.
struct ProgramGroup(Child);

impl Drop for ProgramGroup {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

async fn run_program(path: &str, arguments: &[String], netns: &Netns) -> Result<()> {
    let (printed, prints) = io::pipe()?;
    let child = netns.run(|| start(path, arguments, prints))??;
    let mut program = ProgramGroup(child);
    let ended = pidfd_open(Pid::from_child(&program.0), PidfdFlags::NONBLOCK)?;
    let ended = sys::register(ended, Interest::READABLE)?;
    let mut printed = pipe::Receiver::from_owned_fd(OwnedFd::from(printed))?;
    let (mut text, mut chunk) = (Vec::new(), [0; 1024]);
    let mut is_open = true;
    loop {
        tokio::select! {
            readable = ended.readable() => { readable?.retain_ready(); break },
            // Everything is read, so that no program waits for its reader, but only the beginning is kept.
            read = printed.read(&mut chunk), if is_open => match read {
                Ok(0) | Err(_) => is_open = false,
                Ok(length) => {
                    let room = PRINTED.saturating_sub(text.len());
                    text.extend(chunk.iter().take(length.min(room)));
                }
            },
        }
    }
    let status = program.0.wait()?;
    read_rest(printed, &mut text);
    judge(status, &text)
}

#[expect(clippy::disallowed_methods, reason = "this is what a check of this kind is")]
fn start(path: &str, arguments: &[String], prints: io::PipeWriter) -> io::Result<Child> {
    let mut command = Command::new(path);
    command.args(arguments).current_dir("/").process_group(0).stdin(Stdio::null());
    command.stdout(prints.try_clone()?).stderr(prints).spawn()
}

/// What a program has printed just before its end.
fn read_rest(printed: pipe::Receiver, text: &mut Vec<u8>) {
    let Ok(rest) = printed.into_nonblocking_fd() else { return };
    let room = u64::try_from(PRINTED.saturating_sub(text.len())).unwrap_or_default();
    // It does not wait: nothing more is no error.
    let _ = File::from(rest).take(room).read_to_end(text);
}

fn judge(status: ExitStatus, printed: &[u8]) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(printed);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
    Err(anyhow::anyhow!("{status}{last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn failure(check: &str) -> Option<String> {
        run(&check.parse().unwrap(), &Netns::current().unwrap()).await.error
    }

    #[tokio::test]
    async fn programs_are_judged_by_their_exit_and_explained_by_their_last_line() {
        assert_eq!(failure("cmd:/bin/true").await, None);
        assert_eq!(failure("cmd:/bin/false").await.as_deref(), Some("exit status: 1"));
        let why = failure("cmd:/bin/ls /nonexistent").await.unwrap();
        assert!(why.contains("exit status: 2: ") && why.contains("No such file"), "{why}");
        let why = failure("cmd:/nonexistent").await.unwrap();
        assert!(why.contains("No such file"), "{why}");
        // More than any pipe holds.
        assert_eq!(failure("cmd:/bin/seq 1000000").await, None);
    }

    #[tokio::test]
    async fn addresses_and_ports_answer_or_do_not() {
        let namespace = homeostat_testkit::namespace::Namespace::enter().unwrap();
        namespace.ip(&["link", "set", "lo", "up"]).unwrap();
        for address in ["127.0.0.1", "::1"] {
            assert_eq!(failure(&format!("ping:{address}")).await, None, "{address}");
        }
        assert!(failure("ping:192.0.2.1").await.is_some(), "there is no route");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(failure(&format!("tcp:{address}")).await, None);
        drop(listener);
        let why = failure(&format!("tcp:{address}")).await.unwrap();
        assert!(why.contains("refused"), "{why}");
    }

    /// Answers each connection with this, and closes it.
    async fn serve(listener: tokio::net::TcpListener, answer: &'static str) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 512];
            let length = stream.read(&mut asked).await.unwrap();
            assert!(asked[..length].starts_with(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:"));
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_server_is_judged_by_the_status_that_it_answers() {
        let namespace = homeostat_testkit::namespace::Namespace::enter().unwrap();
        namespace.ip(&["link", "set", "lo", "up"]).unwrap();
        for (answer, why) in [
            ("HTTP/1.1 200 OK\r\n\r\nwell", None),
            ("HTTP/1.0 302 Found\r\n\r\n", None),
            (
                "HTTP/1.1 503 Service Unavailable\r\n\r\n",
                Some("it answers HTTP/1.1 503 Service Unavailable"),
            ),
            ("SSH-2.0-OpenSSH\r\n", Some("what answers there does not speak HTTP")),
            ("", Some("what answers there does not speak HTTP")),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let check = format!("http://{}/health", listener.local_addr().unwrap());
            let serving = tokio::spawn(serve(listener, answer));
            assert_eq!(failure(&check).await.as_deref(), why, "{answer}");
            serving.abort();
        }
    }

    #[test]
    fn a_connection_to_itself_proves_nothing() {
        let [one, other] = ["127.0.0.1:40000", "127.0.0.1:40001"].map(|text| text.parse().unwrap());
        assert!(is_another(&one, &other).is_ok());
        assert!(is_another(&one, &one).unwrap_err().to_string().contains("refused"));
    }

    #[tokio::test]
    async fn a_raw_socket_does_where_no_group_may_use_datagrams() {
        let namespace = homeostat_testkit::namespace::Namespace::enter().unwrap();
        namespace.ip(&["link", "set", "lo", "up"]).unwrap();
        std::fs::write("/proc/sys/net/ipv4/ping_group_range", "1 0").unwrap();
        assert_eq!(failure("ping:127.0.0.1").await, None);
        std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
        assert_eq!(failure("ping:127.0.0.1").await, None);
        let checks: Vec<Check> =
            vec!["ping:127.0.0.1".parse().unwrap(), "cmd:/bin/false".parse().unwrap()];
        let ran = run_all(&checks, &Netns::current().unwrap()).await;
        let drawn: Vec<String> = ran.iter().map(ToString::to_string).collect();
        assert_eq!(drawn, ["ping:127.0.0.1 is good", "cmd:/bin/false fails: exit status: 1"]);
    }
}
