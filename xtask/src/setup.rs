//! `cargo xtask setup`: installs the programs that the tests use. Silent when none is missing.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::run::Program;
use crate::{console, debian};

/// A program that tests start, and where it comes from.
#[derive(Debug, PartialEq, Eq)]
struct Need {
    binary: &'static str,
    package: &'static str,
    why: &'static str,
}

impl Need {
    const fn new(binary: &'static str, package: &'static str, why: &'static str) -> Self {
        Self { binary, package, why }
    }
}

/// What the tests need besides the Rust toolchain.
const NEEDS: &[Need] = &[
    Need::new("ip", "iproute2", "kernel tests judge links, addresses and namespaces with it"),
    Need::new("ethtool", "ethtool", "kernel tests judge offloads and queues with it"),
    Need::new("tc", "iproute2", "tests judge queues with it"),
    Need::new("mmdebstrap", "mmdebstrap", "makes the system that tests boot"),
    Need::new("nft", "nftables", "compiles rulesets, and kernel tests judge tables with it"),
    Need::new(
        "pg_ctlcluster",
        "postgresql",
        "an example keeps roles and databases of a real server",
    ),
    Need::new(
        "ssh-keygen",
        "openssh-client",
        "tests verify its signatures, and it verifies theirs",
    ),
    Need::new("unbound", "unbound", "tests reload it with files that it refuses"),
    Need::new("promtool", "prometheus", "judges metrics and alerts"),
    Need::new("man", "man-db", "tests render the manual with it"),
    Need::new("groff", "groff-base", "judges the manual's pages"),
    Need::new(
        "dpkg-shlibdeps",
        "dpkg-dev",
        "says which libraries a package needs, and reads its changelog",
    ),
    Need::new("strip", "binutils", "makes the program of a package small"),
    Need::new("haproxy", "haproxy", "tests let it judge files before they are there"),
    Need::new("etcd", "etcd-server", "tests keep what machines share in real members"),
    Need::new("etcdctl", "etcd-client", "tests judge a store with it"),
    Need::new("jq", "jq", "the page about fleets uses it, and a test follows that page"),
    Need::new("openssl", "openssl", "signs certificates of fleets in tests"),
    Need::new("bird", "bird2", "tests reload it, and benchmarks compare with it"),
    Need::new("nginx", "nginx-light", "tests find out when it keeps its former files"),
    Need::new("keepalived", "keepalived", "tests reload it with files that it understands in part"),
    Need::new("chronyd", "chrony", "tests start it again for new files"),
    Need::new("chromium", "chromium", "tests read the page of the daemon with it"),
    Need::new("chromedriver", "chromium-driver", "tests move that browser with it"),
    Need::new("strace", "strace", "end-to-end tests kill the program with it at system calls"),
    Need::new("faketime", "faketime", "end-to-end tests set the clock of the program with it"),
];

/// What the virtual machine needs besides that.
const VM_NEEDS: &[Need] = &[
    Need::new(
        "qemu-system-x86_64",
        "qemu-system-x86",
        "emulates the machine with the second kernel",
    ),
    Need::new("wg", "wireguard-tools", "judges tunnels in that machine"),
    Need::new("busybox", "busybox-static", "is the shell inside of that machine"),
    Need::new("modprobe", "kmod", "loads the second kernel's modules"),
];

/// What judges packages. It brings a hundred others along, so tests do not need it.
const DEB_NEEDS: &[Need] = &[Need::new("lintian", "lintian", "judges packages")];

/// What the benchmarks need besides that.
const BENCH_NEEDS: &[Need] = &[Need::new(
    "ansible-playbook",
    "ansible-core",
    "benchmarks compare with what a playbook does to files",
)];

/// Packages that would start a service on this machine.
const SERVICES: &[(&str, &str)] = &[
    ("bird2", "bird.service"),
    ("chrony", "chrony.service"),
    ("etcd-server", "etcd.service"),
    ("haproxy", "haproxy.service"),
    ("keepalived", "keepalived.service"),
    ("nginx-light", "nginx.service"),
    ("postgresql", "postgresql.service"),
    ("prometheus", "prometheus.service"),
    ("unbound", "unbound.service"),
];

/// Example rulesets of the package of `nft`, which minimal systems do not install.
const EXAMPLES: &str = "/usr/share/doc/nftables/examples";

/// Unpacks them from the package.
const UNPACK: &str = "cd \"$(mktemp -d)\" && apt-get update -q && apt-get download -q nftables && \
    dpkg-deb --fsys-tarfile nftables_*.deb | tar -x -C / ./usr/share/doc/nftables/examples";

/// Installs missing programs; fails with the command for it if this is not possible.
pub(crate) fn setup() -> Result<()> {
    provide(NEEDS)?;
    unpack_examples()?;
    debian::provide()
}

fn unpack_examples() -> Result<()> {
    if Path::new(EXAMPLES).is_dir() {
        return Ok(());
    }
    console::note(&format!("missing: {EXAMPLES}: tests apply them"));
    let unpack = Program::new("sh", &["-euc", UNPACK]);
    match method(is_root(), has) {
        Method::Install => unpack.run(),
        _ => bail!("only root can unpack them\nhelp: run as root: {unpack}"),
    }
}

/// The same for the virtual machine.
pub(crate) fn setup_vm() -> Result<()> {
    provide(NEEDS)?;
    provide(VM_NEEDS)
}

/// The same for packages.
pub(crate) fn setup_deb() -> Result<()> {
    provide(NEEDS)?;
    provide(DEB_NEEDS)
}

/// The same for the benchmarks, which can run without them.
pub(crate) fn setup_bench() {
    if let Err(error) = provide(NEEDS).and_then(|()| provide(BENCH_NEEDS)) {
        console::note(&format!("some comparisons will be left out: {error:#}"));
    }
}

/// Where a program is. Debian's users often have no `sbin` in their path.
pub(crate) fn find(binary: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(system).map(|place| place.join(binary));
    places.find(|path| path.is_file())
}

fn has(binary: &str) -> bool {
    find(binary).is_some()
}

/// Updates the package lists, as root: packages of older lists may be gone.
pub(crate) fn update_lists() -> Result<()> {
    if is_root() { update().run() } else { Ok(()) }
}

fn provide(needs: &'static [Need]) -> Result<()> {
    let missing = missing(needs, has);
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        let Need { binary, package, why } = need;
        console::note(&format!("missing: `{binary}` (package {package}): {why}"));
    }
    match method(is_root(), has) {
        Method::Install => install(&missing),
        Method::Ask => bail!("only root can install packages\nhelp: {}", command_line(&missing)),
        Method::Unknown => {
            bail!("there is no apt-get here\nhelp: install the packages named above")
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Method {
    Install,
    Ask,
    Unknown,
}

fn method(is_root: bool, exists: impl Fn(&str) -> bool) -> Method {
    match (exists("apt-get"), is_root) {
        (false, _) => Method::Unknown,
        (true, true) => Method::Install,
        (true, false) => Method::Ask,
    }
}

fn missing(needs: &[Need], exists: impl Fn(&str) -> bool) -> Vec<&Need> {
    needs.iter().filter(|need| !exists(need.binary)).collect()
}

/// The owner of `/proc/self` is the effective user.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn install(missing: &[&Need]) -> Result<()> {
    update().run()?;
    if Path::new("/run/systemd/system").exists() {
        masks(missing).iter().try_for_each(Program::run)?;
    }
    install_program(missing).run()
}

fn update() -> Program {
    Program::new("apt-get", &["update", "-q"])
}

/// A masked service is started neither by its package nor by the next boot.
fn masks(missing: &[&Need]) -> Vec<Program> {
    let is_missing = |package: &str| missing.iter().any(|need| need.package == package);
    let services = SERVICES.iter().filter(|(package, _)| is_missing(package));
    services.map(|(_, service)| Program::new("systemctl", &["mask", service])).collect()
}

/// In runlevel 1 packages start no services on machines without systemd.
fn install_program(missing: &[&Need]) -> Program {
    let packages: Vec<String> = missing.iter().map(|need| need.package.to_owned()).collect();
    Program::new("apt-get", &["install", "-q", "-y"])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("RUNLEVEL", "1")
        .arguments_after("--no-install-recommends", &packages)
}

fn command_line(missing: &[&Need]) -> String {
    let mut programs = vec![update()];
    programs.extend(masks(missing));
    programs.push(install_program(missing));
    let typed: Vec<String> = programs.iter().map(ToString::to_string).collect();
    format!("run: sudo sh -c '{}'", typed.join(" && "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[Need] = &[
        Need { binary: "ip", package: "iproute2", why: "links" },
        Need { binary: "nft", package: "nftables", why: "rules" },
    ];

    #[test]
    fn only_absent_programs_are_missing() {
        assert_eq!(missing(TWO, |_| true), Vec::<&Need>::new());
        assert_eq!(missing(TWO, |binary| binary == "ip"), TWO.iter().skip(1).collect::<Vec<_>>());
    }

    #[test]
    fn only_root_with_apt_get_installs() {
        assert_eq!(method(true, |_| true), Method::Install);
        assert_eq!(method(false, |_| true), Method::Ask);
        assert_eq!(method(true, |_| false), Method::Unknown);
    }

    #[test]
    fn other_users_get_the_exact_command() {
        let all: Vec<&Need> = TWO.iter().collect();
        let expected = "run: sudo sh -c 'apt-get update -q && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
                        apt-get install -q -y --no-install-recommends iproute2 nftables'";
        assert_eq!(command_line(&all), expected);
    }

    #[test]
    fn a_service_that_comes_along_is_kept_from_starting() {
        let all: Vec<&Need> = NEEDS.iter().collect();
        assert!(
            command_line(&all).contains(" && systemctl mask bird.service && "),
            "{}",
            command_line(&all)
        );
    }

    #[test]
    fn programs_are_found_or_not() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program"), None);
    }
}
