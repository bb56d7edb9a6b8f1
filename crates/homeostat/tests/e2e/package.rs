//! The Debian package on a machine with systemd: installed, upgraded, downgraded, removed and purged.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use homeostat_packaging::{Compression, Recipe};

use crate::booted::{Host, is_quiet, listed};
use crate::dump::comes_again;
use crate::keeping::until;
use crate::program::HOMEOSTAT;

const NEXT: &str = "0.1.0-2";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn build(recipe: &Recipe, place: &str) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(place);
    fs::create_dir_all(&out).unwrap();
    let built = recipe.build(Path::new(HOMEOSTAT), &out, Compression::Fast);
    built.unwrap_or_else(|error| panic!("{error}"))
}

fn recipe() -> Recipe {
    Recipe::read(root()).unwrap_or_else(|error| panic!("{error}"))
}

/// The package of the program under test.
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| build(&recipe(), "package"))
}

/// The same program as a later version of the package.
fn next_package() -> PathBuf {
    build(&recipe().with_version(NEXT), "next-package")
}

/// Puts the package on the machine; returns its path there.
pub(crate) fn put_package_on(host: &Host) -> String {
    put(host, package())
}

fn put(host: &Host, package: &Path) -> String {
    let place = format!("root/{}", package.file_name().unwrap().to_str().unwrap());
    fs::copy(package, host.machine.path().join(&place)).unwrap();
    format!("/{place}")
}

/// A machine on which the package was installed.
fn installed() -> Host {
    let host = Host::bare();
    host.run(&format!("dpkg --install {}", put_package_on(&host))).exits(0);
    host
}

#[test]
fn the_same_program_makes_the_same_package() {
    let other = build(&recipe(), "same-package");
    assert!(fs::read(package()).unwrap() == fs::read(other).unwrap(), "the packages differ");
}

fn state(host: &Host, unit: &str) -> String {
    host.run(&format!("systemctl show --property=ActiveState,UnitFileState {unit}")).stdout
}

#[test]
fn an_installation_brings_everything_and_starts_nothing() {
    let host = installed();
    for unit in ["homeostat.service", "homeostat-wait-online.service"] {
        assert_eq!(state(&host, unit), "ActiveState=inactive\nUnitFileState=disabled\n", "{unit}");
    }
    assert_eq!(host.run("homeostat --version").exits(0).stdout, "homeostat 0.1.0\n");
    assert_eq!(host.run("ls -A /etc/homeostat").exits(0).stdout, "");
    assert_eq!(host.run("dpkg --verify homeostat").exits(0).stdout, "");
    let files = host.run("dpkg --listfiles homeostat").exits(0).stdout;
    let files: BTreeSet<&str> = files.lines().collect();
    for path in [
        "/usr/lib/systemd/system/homeostat.service",
        "/usr/share/homeostat/systemd/namespaces.conf",
        "/usr/share/homeostat/systemd/files.conf",
        "/usr/share/homeostat/systemd/fleet.conf",
        "/usr/share/homeostat/systemd/modules.conf",
        "/usr/share/homeostat/prometheus/homeostat.rules.yml",
        "/usr/share/homeostat/grafana/homeostat.json",
        "/usr/share/homeostat/schema.json",
        "/usr/share/man/man1/homeostat.1.gz",
        "/usr/share/man/man1/homeostat-fleet-sign.1.gz",
        "/usr/share/man/man5/homeostat.toml.5.gz",
        "/usr/share/man/man7/homeostat.7.gz",
        "/usr/share/bash-completion/completions/homeostat",
        "/usr/share/zsh/vendor-completions/_homeostat",
        "/usr/share/fish/vendor_completions.d/homeostat.fish",
        "/usr/share/doc/homeostat/docs/first-host.md",
        "/usr/share/doc/homeostat/copyright",
    ] {
        assert!(files.contains(path), "{path} is not in the package");
    }
    assert!(!files.iter().any(|path| path.starts_with("/etc/")), "a file for the administrator");
    let fields = host.run("dpkg-query --show --showformat=${Depends}|${Recommends} homeostat");
    let fields = fields.exits(0).stdout;
    assert!(fields.contains("libc6 (>=") && fields.ends_with("|nftables"), "{fields}");
}

/// Of ours: of each kind something, with a mark and without.
const DOCUMENT: &str = r#"
routes = [{ to = "10.2.0.0/16", type = "blackhole" }]
[sysctl]
"net.ipv4.tcp_retries1" = 5
[links.br0]
kind = "bridge"
up = true
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
[nftables]
ruleset = "table inet kept { chain in { type filter hook input priority 0; tcp dport 22 accept; }; }"
"#;

/// What others have on the machine.
fn configure_others(host: &Host) {
    host.run("ip route add blackhole 10.98.0.0/16 proto static").exits(0);
    host.run("nft add table ip foreign").exits(0);
}

fn is_foreign_there(host: &Host) -> bool {
    let routes = host.run("ip route show").stdout;
    let tables = host.run("nft list tables").stdout;
    routes.contains("blackhole 10.98.0.0/16") && tables.contains("table ip foreign")
}

fn pid(host: &Host) -> String {
    host.run("systemctl show --property=MainPID --value homeostat").stdout
}

/// One that keeps the document, beside what others have.
fn keeping() -> Host {
    let host = installed();
    configure_others(&host);
    host.write("etc/homeostat/host.toml", DOCUMENT);
    host.run("systemctl enable --now homeostat").exits(0);
    host.run("homeostat status --wait").exits(0);
    is_quiet();
    host
}

#[test]
fn everything_stays_as_it_is_through_an_upgrade_a_downgrade_and_a_removal() {
    let mut host = keeping();
    let before = listed();
    let first = put_package_on(&host);
    let next = put(&host, &next_package());
    for (package, version) in [(&next, NEXT), (&first, "0.1.0-1")] {
        let former = pid(&host);
        host.run(&format!("dpkg --install {package}")).exits(0);
        assert_ne!(pid(&host), former, "the daemon is still the former version");
        host.run("homeostat status --wait").exits(0);
        comes_again(&before, listed, version);
        let shown = host.run("dpkg-query --show --showformat=${Version} homeostat").stdout;
        assert_eq!(shown, version);
    }
    // The original value is known through both.
    let status = host.run("homeostat status --json").exits(0).stdout;
    assert!(status.contains("\"converged\":true"), "{status}");

    let removed = host.run("dpkg --remove homeostat").exits(0).stderr;
    assert!(removed.contains("What homeostat keeps stays as it is"), "{removed}");
    host.run("test -e /usr/bin/homeostat").exits(1);
    comes_again(&before, listed, "after the removal");
    host.run("test -f /etc/homeostat/host.toml -a -f /var/lib/homeostat/ledger.db").exits(0);
    host.reboot();
    assert!(!host.run("ip route show").stdout.contains("10.2.0.0/16"));
    assert_eq!(host.run("systemctl is-system-running").stdout, "running\n");

    // What the administrator enabled is enabled again, and starts with the next boot.
    host.run(&format!("dpkg --install {first}")).exits(0);
    assert_eq!(state(&host, "homeostat"), "ActiveState=inactive\nUnitFileState=enabled\n");
    host.reboot();
    until("the route", || host.run("ip route show").stdout.contains("blackhole 10.2.0.0/16"));
    configure_others(&host);

    host.run("dpkg --purge homeostat").exits(0);
    host.run("test -e /var/lib/homeostat").exits(1);
    host.run("test -f /etc/homeostat/host.toml").exits(0);
    assert!(is_foreign_there(&host));
    let enabled = host.run("find /etc/systemd/system -name homeostat*").exits(0).stdout;
    assert_eq!(enabled, "");
    host.reboot();
    assert_eq!(host.run("systemctl is-system-running").stdout, "running\n");
}

#[test]
fn a_purge_after_an_uninstall_leaves_nothing_of_ours() {
    let host = installed();
    configure_others(&host);
    is_quiet();
    let before = listed();
    host.write("etc/homeostat/host.toml", DOCUMENT);
    host.run("systemctl enable --now homeostat").exits(0);
    host.run("homeostat status --wait").exits(0);
    host.run("systemctl disable --now homeostat").exits(0);
    host.run("homeostat uninstall --yes").exits(0);
    host.run("rm /etc/homeostat/host.toml").exits(0);
    host.run("dpkg --purge homeostat").exits(0);
    comes_again(&before, listed, "after the purge");
    let left = host.run("find /etc /usr /var/lib/homeostat /run/homeostat -name homeostat*").stdout;
    assert_eq!(left, "");
}

#[test]
fn a_version_that_cannot_read_the_state_says_what_to_do_and_touches_nothing() {
    let host = keeping();
    let before = listed();
    host.run("systemctl stop homeostat").exits(0);
    let path = host.machine.path().join("var/lib/homeostat/ledger.db");
    let parts = ["ledger.db", "ledger.db-wal", "ledger.db-shm"];
    // SQLite follows the links of a path itself, and this one leads into another mount namespace: a copy is marked, with what
    // a daemon that had to hurry has left in the log beside it.
    let mark = |version: u32| {
        let copies = tempfile::tempdir().unwrap();
        for part in parts {
            let _ = fs::copy(path.with_file_name(part), copies.path().join(part));
        }
        let copy = copies.path().join("ledger.db");
        let ledger = rusqlite::Connection::open(&copy).unwrap();
        ledger.pragma_update(None, "user_version", version).unwrap();
        ledger.close().unwrap();
        for part in parts {
            let _ = fs::remove_file(path.with_file_name(part));
        }
        fs::copy(copy, &path).unwrap();
    };
    mark(2);
    let refused = host.run("homeostat run /etc/homeostat").exits(1).stderr;
    for words in [
        "the ledger /var/lib/homeostat/ledger.db has format 2, and this version knows formats up to 1",
        "help: use the version that wrote it",
        "To go on with this version, move /var/lib/homeostat/ledger.db away",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
    comes_again(&before, listed, "after the refusal");
    // The way out by the newer version, as far as this one can tell.
    mark(1);
    host.run("systemctl start homeostat").exits(0);
    host.run("homeostat status --wait").exits(0);
    host.run("systemctl stop homeostat").exits(0);
    // The other way out: what has a mark is found again.
    mark(2);
    for part in parts {
        let _ = fs::remove_file(path.with_file_name(part));
    }
    host.run("systemctl start homeostat").exits(0);
    host.run("homeostat status --wait").exits(0);
    comes_again(&before, listed, "after the ledger was moved away");
}

#[test]
fn a_lost_state_directory_costs_original_values_and_the_history() {
    let host = keeping();
    let before = listed();
    host.run("systemctl stop homeostat").exits(0);
    host.run("rm -r /var/lib/homeostat").exits(0);
    host.run("systemctl start homeostat").exits(0);
    host.run("homeostat status --wait").exits(0);
    comes_again(&before, listed, "after the state was lost");
    host.run("systemctl stop homeostat").exits(0);
    host.run("homeostat uninstall --yes").exits(0);
    // What has a mark in the kernel goes; the sysctl has been claimed anew with the value that it had then.
    let routes = host.run("ip route show").stdout;
    assert!(!routes.contains("10.2.0.0/16") && !host.run("ip link show").stdout.contains("br0"));
    assert!(!host.run("nft list tables").stdout.contains("kept"));
    assert_eq!(host.run("sysctl -n net.ipv4.tcp_retries1").stdout, "5\n");
    assert!(is_foreign_there(&host));
}
