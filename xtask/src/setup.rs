//! `cargo xtask setup`: installs the programs that the tests use. Silent when none is missing.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::console;
use crate::run::Program;

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
    Need::new("nft", "nftables", "compiles rulesets, and kernel tests judge tables with it"),
    Need::new("strace", "strace", "end-to-end tests kill the program with it at system calls"),
];

/// What the virtual machine needs besides that.
const VM_NEEDS: &[Need] = &[
    Need::new(
        "qemu-system-x86_64",
        "qemu-system-x86",
        "emulates the machine with the second kernel",
    ),
    Need::new("busybox", "busybox-static", "is the shell inside of that machine"),
    Need::new("modprobe", "kmod", "loads the second kernel's modules"),
];

/// What the benchmarks compare with.
const BENCH_NEEDS: &[Need] = &[Need::new("bird", "bird2", "benchmarks compare with it")];

/// Packages that would start a service on this machine.
const SERVICES: &[(&str, &str)] = &[("bird2", "bird.service")];

/// Example rulesets of the package of `nft`, which minimal systems do not install.
const EXAMPLES: &str = "/usr/share/doc/nftables/examples";

/// Installs missing programs; fails with the command for it if this is not possible.
pub(crate) fn setup() -> Result<()> {
    provide(NEEDS)?;
    if Path::new(EXAMPLES).is_dir() { Ok(()) } else { provide_examples() }
}

/// Unpacks them from the package.
fn provide_examples() -> Result<()> {
    console::note(&format!("missing: {EXAMPLES}: tests apply them"));
    let unpack = Program::new("sh", &["-euc", UNPACK]);
    match method(user(), |binary| find(binary).is_some()) {
        Method::Install => unpack.run(),
        _ => bail!("only root can unpack them\nhelp: run as root: {unpack}"),
    }
}

const UNPACK: &str = "cd \"$(mktemp -d)\" && apt-get update -q && apt-get download -q nftables && \
    dpkg-deb --fsys-tarfile nftables_*.deb | tar -x -C / ./usr/share/doc/nftables/examples";

/// The same for the virtual machine.
pub(crate) fn setup_vm() -> Result<()> {
    provide(NEEDS)?;
    provide(VM_NEEDS)
}

/// The same for the benchmarks, which can run without them.
pub(crate) fn setup_bench() {
    if let Err(error) = provide(NEEDS).and_then(|()| provide(BENCH_NEEDS)) {
        console::note(&format!("some comparisons will be left out: {error:#}"));
    }
}

pub(crate) fn find(binary: &str) -> Option<PathBuf> {
    let places = places(std::env::var_os("PATH").as_deref());
    places.iter().map(|place| place.join(binary)).find(|path| path.is_file())
}

/// Updates the package lists, as root: packages of older lists may be gone.
pub(crate) fn update_lists() -> Result<()> {
    if user() == User::Root { update().run() } else { Ok(()) }
}

fn provide(needs: &'static [Need]) -> Result<()> {
    let exists = |binary: &str| find(binary).is_some();
    let missing = missing(needs, exists);
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        let Need { binary, package, why } = need;
        console::note(&format!("missing: `{binary}` (package {package}): {why}"));
    }
    match method(user(), exists) {
        Method::Install => install(&missing),
        Method::Ask => bail!("only root can install packages\nhelp: {}", command_line(&missing)),
        Method::Unknown => {
            bail!("there is no apt-get here\nhelp: install the packages named above")
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Root,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
enum Method {
    Install,
    Ask,
    Unknown,
}

fn method(user: User, exists: impl Fn(&str) -> bool) -> Method {
    match user {
        _ if !exists("apt-get") => Method::Unknown,
        User::Root => Method::Install,
        User::Other => Method::Ask,
    }
}

fn missing(needs: &[Need], exists: impl Fn(&str) -> bool) -> Vec<&Need> {
    needs.iter().filter(|need| !exists(need.binary)).collect()
}

/// The directories with programs. Debian's users often have no `sbin` in their path.
fn places(path: Option<&OsStr>) -> Vec<PathBuf> {
    let own = path.map(|path| std::env::split_paths(path).collect::<Vec<_>>());
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    own.unwrap_or_default().into_iter().chain(system).collect()
}

/// The owner of `/proc/self` is the effective user.
fn user() -> User {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if root { User::Root } else { User::Other }
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
        assert_eq!(method(User::Root, |_| true), Method::Install);
        assert_eq!(method(User::Other, |_| true), Method::Ask);
        assert_eq!(method(User::Root, |_| false), Method::Unknown);
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
        let all: Vec<&Need> = BENCH_NEEDS.iter().collect();
        assert!(
            command_line(&all).contains("&& systemctl mask bird.service && "),
            "{}",
            command_line(&all)
        );
    }

    #[test]
    fn programs_are_looked_for_in_the_path_and_then_in_sbin() {
        let found = places(Some(OsStr::new("/opt/bin:/usr/bin")));
        assert_eq!(found.first(), Some(&PathBuf::from("/opt/bin")));
        assert!(found.contains(&PathBuf::from("/usr/sbin")));
        assert!(places(None).contains(&PathBuf::from("/sbin")));
    }
}
