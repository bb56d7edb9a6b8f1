//! WireGuard links: keys by file, peers by public key, judged by `wg`, and by packets through a tunnel.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use homeostat_engine::Explain as _;
use homeostat_rtnl::{Link, LinkKind, Peer, PublicKey, Wireguard};
use tempfile::TempDir;

use crate::bench::{Bench, NAME, desired, explained};

/// Pairs of a private and a public key.
const OURS: [&str; 2] = [
    "cO6nXqdVCIwjdQ5dVbZ7e7HOmYoSqH1f4JApt1GteXY=",
    "WhHLZFso/OZFhE7Cf5SGKBIk/kh6tLTWmpc6KTPGG3c=",
];
const THEIRS: [&str; 2] = [
    "4AgR+GHlFHOAVa7HOtWM1q+ZAC5gzg8/6OgJaXz8+Fo=",
    "kDWDO6+auH/CcFiJpKg9VONY3ZEeFxGKg+1TWbnQSU0=",
];
const OTHERS: [&str; 2] = [
    "eGeNQn/yrrfgIRIxxxj6PvYLHsS79YaDs6WJfy+d7Vw=",
    "6PpKjzqYCLOzz143rhoTDe7mzVO71stFV9mzcD+fBBM=",
];
const SHARED: &str = "9mSs5rBWspZUQAjFApgHYHRmBLex6hV1ClqJWrEbLmk=";

/// The files of a test.
struct Keys(TempDir);

impl Keys {
    fn new() -> Self {
        Keys(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, key: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, format!("{key}\n")).unwrap();
        set_mode(&path, 0o600);
        path
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn link(wireguard: Wireguard) -> Link {
    Link { up: Some(true), ..Link::new(LinkKind::Wireguard(wireguard)) }
}

fn public(key: [&str; 2]) -> PublicKey {
    key[1].parse().unwrap()
}

fn behind(net: &str) -> Peer {
    Peer { allowed_ips: [net.parse().unwrap()].into(), ..Peer::default() }
}

fn tunnel(keys: &Keys, peers: &[([&str; 2], Peer)]) -> Wireguard {
    let peers = peers.iter().map(|(key, peer)| (public(*key), peer.clone()));
    Wireguard {
        private_key_file: Some(keys.file("own", OURS[0])),
        listen_port: Some(51820),
        peers: Some(peers.collect()),
        ..Wireguard::default()
    }
}

/// A bench in a kernel that has the kind; none, after the test for one that has not.
fn bench() -> Option<Bench> {
    let mut bench = Bench::new();
    if bench.has("probe type wireguard") {
        return Some(bench);
    }
    bench.lacks(&link(Wireguard::default()), "wireguard");
    None
}

#[expect(clippy::disallowed_methods, reason = "the judge is a program that is not ours")]
fn wg(args: &str) -> String {
    let ran = Command::new("wg").args(args.split_whitespace()).output().unwrap();
    assert!(ran.status.success(), "wg {args}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// What `wg` says of the link under test: of itself, and of each peer by its key.
fn shown() -> (Vec<String>, Vec<Vec<String>>) {
    let dump = wg(&format!("show {NAME} dump"));
    let mut lines = dump.lines().map(|line| line.split('\t').map(str::to_owned).collect());
    let own = lines.next().unwrap();
    let mut peers: Vec<Vec<String>> = lines.collect();
    peers.sort();
    (own, peers)
}

#[test]
fn a_tunnel_is_made_with_its_keys_and_peers() {
    let Some(mut bench) = bench() else { return };
    let keys = Keys::new();
    let near = Peer {
        preshared_key_file: Some(keys.file("shared", SHARED)),
        endpoint: Some("192.0.2.7:4500".parse().unwrap()),
        keepalive: Some(25),
        allowed_ips: ["10.1.0.0/16", "2001:db8:1::/48"].map(|net| net.parse().unwrap()).into(),
        ..Peer::default()
    };
    let far = Peer { endpoint: Some("[2001:db8::7]:4501".parse().unwrap()), ..behind("0.0.0.0/0") };
    let full =
        Wireguard { fwmark: Some(0xca6c), ..tunnel(&keys, &[(THEIRS, near), (OTHERS, far)]) };
    let desired = desired(&[(NAME, link(full))]);
    assert_eq!(bench.converge(&desired), [format!("+ link {NAME}")]);
    let (own, peers) = shown();
    assert_eq!(own, [OURS[0], OURS[1], "51820", "0xca6c"]);
    let (far, near) = (&peers[0], &peers[1]);
    assert_eq!(far[..4], [OTHERS[1], "(none)", "[2001:db8::7]:4501", "0.0.0.0/0"]);
    assert_eq!(near[..3], [THEIRS[1], SHARED, "192.0.2.7:4500"]);
    let mut nets: Vec<&str> = near[3].split(',').collect();
    nets.sort_unstable();
    assert_eq!((nets, &*near[7]), (vec!["10.1.0.0/16", "2001:db8:1::/48"], "25"));
    assert_eq!(far[7], "off");
    bench.clear();
}

#[test]
fn peers_are_exact_and_change_in_place() {
    let Some(mut bench) = bench() else { return };
    let keys = Keys::new();
    let shared =
        Peer { preshared_key_file: Some(keys.file("shared", SHARED)), ..behind("10.1.0.0/16") };
    let both = tunnel(&keys, &[(THEIRS, shared.clone()), (OTHERS, behind("10.2.0.0/16"))]);
    bench.converge(&desired(&[(NAME, link(both.clone()))]));
    let number = bench.shown(NAME)["ifindex"].clone();
    let update = [format!("~ link {NAME}")];
    // The networks change places, and one peer goes.
    let swapped =
        tunnel(&keys, &[(THEIRS, behind("10.2.0.0/16")), (OTHERS, behind("10.1.0.0/16"))]);
    assert_eq!(bench.converge(&desired(&[(NAME, link(swapped))])), update);
    let nets = |peers: &[Vec<String>]| -> Vec<String> {
        peers.iter().map(|peer| format!("{} {}", &peer[0], &peer[3])).collect()
    };
    let expected = [format!("{} 10.1.0.0/16", OTHERS[1]), format!("{} 10.2.0.0/16", THEIRS[1])];
    assert_eq!(nets(&shown().1), expected);
    let one = desired(&[(NAME, link(tunnel(&keys, &[(THEIRS, shared)])))]);
    assert_eq!(bench.converge(&one), update);
    // What somebody changes by hand is found by the next look.
    let psk = keys.file("other", THEIRS[0]);
    for drift in [
        format!("set {NAME} peer {} allowed-ips 10.9.0.0/16", OTHERS[1]),
        format!("set {NAME} peer {} remove", THEIRS[1]),
        format!("set {NAME} peer {} allowed-ips 10.1.0.0/16,10.3.0.0/16", THEIRS[1]),
        format!("set {NAME} peer {} preshared-key {}", THEIRS[1], psk.display()),
        format!("set {NAME} private-key {}", keys.file("else", OTHERS[0]).display()),
        format!("set {NAME} listen-port 7"),
    ] {
        wg(&drift);
        assert_eq!(bench.converge(&one), update, "{drift}");
        let (own, peers) = shown();
        assert_eq!((&*own[0], &*own[2]), (OURS[0], "51820"), "{drift}");
        assert_eq!(peers.len(), 1, "{drift}");
        assert_eq!(peers[0][1..4], [SHARED, "(none)", "10.1.0.0/16"], "{drift}");
    }
    // Another key in the same file is another key.
    keys.file("own", OTHERS[0]);
    assert_eq!(bench.converge(&one), update);
    assert_eq!(shown().0[1], OTHERS[1]);
    // What is not declared is left as it is.
    let open = Wireguard { peers: None, listen_port: None, ..both };
    wg(&format!("set {NAME} listen-port 9 peer {} allowed-ips 10.9.0.0/16", OURS[1]));
    assert!(bench.converge(&desired(&[(NAME, link(open))])).is_empty());
    assert_eq!(shown().1.len(), 2);
    assert_eq!(bench.shown(NAME)["ifindex"], number);
    bench.clear();
}

#[test]
fn a_key_that_cannot_be_read_is_an_error_without_the_key() {
    let Some(mut bench) = bench() else { return };
    let keys = Keys::new();
    let full = tunnel(&keys, &[(THEIRS, behind("10.1.0.0/16"))]);
    let path = full.private_key_file.clone().unwrap();
    let wanted = desired(&[(NAME, link(full))]);
    set_mode(&path, 0o644);
    let report = bench.pass(&wanted);
    let lines = explained(&report);
    assert!(lines[0].contains("has mode 0644") && lines[0].contains("chmod 600"), "{lines:?}");
    assert!(bench.ip(&format!("link show dev {NAME}")).is_err(), "half a link is none");
    set_mode(&path, 0o600);
    bench.converge(&wanted);
    fs::write(&path, "no key at all").unwrap();
    let report = bench.pass(&wanted);
    let lines = explained(&report);
    assert!(!report.is_converged() && lines[0].contains("holds no WireGuard key"), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("no key at all")), "{lines:?}");
    assert_eq!(shown().0[0], OURS[0], "the key that it has stays");
    keys.file("own", OURS[0]);
    let said = format!("{wanted:?} {:?}", bench.converge(&wanted));
    assert!(!said.contains(OURS[0]), "{said}");
    bench.clear();
}

/// The other end, in a namespace of its own.
struct Far {
    netns: String,
}

impl Far {
    fn new(bench: &Bench, keys: &Keys, test: &str) -> Self {
        let far = Far { netns: format!("wg-{test}-{}", std::process::id()) };
        bench.ip(&format!("netns add {}", far.netns)).unwrap();
        bench.ip(&format!("link set low1 netns {}", far.netns)).unwrap();
        for args in ["address add 10.9.0.1/24 dev low0", "link set low0 up"] {
            bench.ip(args).unwrap();
        }
        for args in [
            "address add 10.9.0.2/24 dev low1",
            "link set low1 up",
            "link add wg9 type wireguard",
            "address add 10.8.0.2/24 dev wg9",
            "link set wg9 up",
        ] {
            bench.ip(&format!("-n {} {args}", far.netns)).unwrap();
        }
        far.wg(bench, &format!("private-key {}", keys.file("far", THEIRS[0]).display()));
        let peer = format!("peer {} allowed-ips 10.8.0.1/32 endpoint 10.9.0.1:51820", OURS[1]);
        far.wg(bench, &format!("listen-port 51821 {peer}"));
        far
    }

    fn wg(&self, bench: &Bench, args: &str) {
        bench.ip(&format!("netns exec {} wg set wg9 {args}", self.netns)).unwrap();
    }

    #[track_caller]
    fn reaches_us(&self, bench: &Bench) {
        let ping = format!("netns exec {} ping -c 1 -W 3 10.8.0.1", self.netns);
        assert!((0..20).any(|_| bench.ip(&ping).is_ok()), "no packet passes the tunnel");
    }
}

#[test]
fn a_packet_passes_the_tunnel_and_a_peer_may_move() {
    let Some(mut bench) = bench() else { return };
    let keys = Keys::new();
    let far = Far::new(&bench, &keys, "move");
    let at = |port: u16| {
        let endpoint = Some(([10, 9, 0, 2], port).into());
        let peer = Peer { endpoint, ..behind("10.8.0.2/32") };
        desired(&[(NAME, link(tunnel(&keys, &[(THEIRS, peer)])))])
    };
    bench.converge(&at(51821));
    bench.ip(&format!("address add 10.8.0.1/24 dev {NAME}")).unwrap();
    far.reaches_us(&bench);
    // It speaks from another port from now on: the kernel follows it, and that is no drift.
    far.wg(&bench, "listen-port 51999");
    far.reaches_us(&bench);
    assert_eq!(shown().1[0][2], "10.9.0.2:51999");
    assert!(bench.converge(&at(51821)).is_empty());
    assert_eq!(shown().1[0][2], "10.9.0.2:51999");
    // What is declared anew is written.
    assert_eq!(bench.converge(&at(51822)), [format!("~ link {NAME}")]);
    assert_eq!(shown().1[0][2], "10.9.0.2:51822");
    far.reaches_us(&bench);
    bench.ip(&format!("netns del {}", far.netns)).unwrap();
    // It is nobody's, and would be lost with the link.
    bench.ip(&format!("address del 10.8.0.1/24 dev {NAME}")).unwrap();
    bench.clear();
}

#[test]
fn a_thousand_peers_are_one_pass_and_one_of_them_missing_is_one_update() {
    let Some(mut bench) = bench() else { return };
    let keys = Keys::new();
    let peers = (0..1000_u16).map(|number| {
        let mut key = [7; 32];
        key[..2].copy_from_slice(&number.to_be_bytes());
        let [high, low] = number.to_be_bytes();
        (PublicKey(key), behind(&format!("10.{high}.{low}.0/24")))
    });
    let many = Wireguard { peers: Some(peers.collect()), ..tunnel(&keys, &[]) };
    let lost = many.peers.as_ref().unwrap().keys().nth(500).unwrap().to_string();
    let wanted = desired(&[(NAME, link(many))]);
    assert_eq!(bench.converge(&wanted), [format!("+ link {NAME}")]);
    assert_eq!(shown().1.len(), 1000);
    wg(&format!("set {NAME} peer {lost} remove"));
    assert_eq!(bench.converge(&wanted), [format!("~ link {NAME}")]);
    assert_eq!(shown().1.len(), 1000);
    bench.clear();
}
