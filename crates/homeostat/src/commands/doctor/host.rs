//! What is looked at on a machine: units, configuration files, running programs, the kernel, `nft`. Nothing is judged
//! here, and nothing is written. What cannot be read is as if it were not there.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of this command that starts a program"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where units are, from the strongest place to the weakest.
const UNIT_DIRECTORIES: [&str; 4] =
    ["etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];

/// The units that are looked for.
const UNITS: [&str; 18] = [
    "NetworkManager.service",
    "bird.service",
    "cloud-init.service",
    "cloud-init-network.service",
    "connman.service",
    "dhcpcd.service",
    "docker.service",
    "firewalld.service",
    "frr.service",
    "homeostat.service",
    "netfilter-persistent.service",
    "networking.service",
    "nftables.service",
    "podman.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "tailscaled.service",
    "ufw.service",
];

/// Files, and directories whose files are read.
const FILES: [&str; 14] = [
    "etc/NetworkManager/NetworkManager.conf",
    "etc/NetworkManager/conf.d",
    "etc/cloud/cloud-init.disabled",
    "etc/cloud/cloud.cfg",
    "etc/cloud/cloud.cfg.d",
    "etc/netplan",
    "etc/network/interfaces",
    "etc/network/interfaces.d",
    "etc/nftables.conf",
    "etc/sysctl.conf",
    "etc/sysctl.d",
    "etc/systemd/network",
    "etc/systemd/networkd.conf",
    "etc/systemd/networkd.conf.d",
];

/// The longest file that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// Those that exist.
    pub(super) units: BTreeMap<&'static str, Unit>,
    /// Texts by their paths.
    pub(super) files: BTreeMap<String, String>,
    /// The names of running programs.
    pub(super) programs: BTreeSet<String>,
    /// The names of links.
    pub(super) links: BTreeSet<String>,
    pub(super) kernel: Option<Version>,
    /// The modules that the kernel has or can load; nothing if that is not known.
    pub(super) modules: Option<BTreeSet<String>>,
    pub(super) systemd: Option<u32>,
    pub(super) nft: Option<Version>,
    pub(super) is_root: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unit {
    /// Something starts it at the boot.
    pub(super) is_enabled: bool,
    /// It has processes.
    pub(super) is_running: bool,
    pub(super) is_masked: bool,
}

impl Unit {
    /// Whether it has an effect, now or at the next boot.
    pub(super) fn is_in_use(self) -> bool {
        !self.is_masked && (self.is_enabled || self.is_running)
    }
}

/// The first numbers of a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) Vec<u32>);

impl Version {
    /// The first version in a text.
    pub(super) fn in_text(text: &str) -> Option<Self> {
        let start = text.find(|c: char| c.is_ascii_digit())?;
        let text = text.get(start..)?;
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let numbers = text.get(..end)?.split('.').map_while(|number| number.parse().ok());
        Some(Version(numbers.take(3).collect()))
    }

    pub(super) fn is_at_least(&self, numbers: &[u32]) -> bool {
        self.0.as_slice() >= numbers
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

impl Host {
    /// Looks at the machine whose root directory this is.
    pub(super) fn read(root: &Path) -> Self {
        let release = text(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
        Host {
            units: UNITS.iter().filter_map(|name| Some((*name, unit(root, name)?))).collect(),
            files: files(root),
            programs: programs(root),
            links: names(&root.join("sys/class/net")).collect(),
            kernel: Version::in_text(&release),
            modules: modules(root, release.trim()),
            systemd: systemd(),
            nft: first_line_of("nft").as_deref().and_then(Version::in_text),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    pub(super) fn unit(&self, name: &str) -> Option<Unit> {
        self.units.get(name).copied().filter(|unit| unit.is_in_use())
    }

    /// The texts of files whose paths begin so, without lines that are comments.
    pub(super) fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let files = self.files.iter().filter(move |(name, _)| name.starts_with(path));
        files.map(|(name, text)| (&**name, &**text))
    }

    /// The lines of such files that are in force.
    pub(super) fn lines<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.below(path).flat_map(|(_, text)| text.lines()).map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
    }

    /// Whether a setting of an INI file is off.
    pub(super) fn is_off(&self, path: &str, name: &str) -> bool {
        let last = self.lines(path).filter_map(|line| {
            let (setting, value) = line.split_once('=')?;
            (setting.trim() == name).then_some(value.trim())
        });
        last.last().is_some_and(|value| ["no", "false", "0", "off"].contains(&value))
    }
}

fn unit(root: &Path, name: &str) -> Option<Unit> {
    let places = UNIT_DIRECTORIES.map(|directory| root.join(directory));
    let file =
        places.iter().map(|place| place.join(name)).find(|file| file.symlink_metadata().is_ok())?;
    let is_wanted = |directory: &Path| {
        let mut wanting = names(directory)
            .filter(|one| matches!(one.rsplit_once('.'), Some((_, "wants" | "requires"))));
        wanting.any(|one| directory.join(one).join(name).symlink_metadata().is_ok())
    };
    let target = fs::read_link(&file).unwrap_or_default();
    Some(Unit {
        is_enabled: places.iter().any(|place| is_wanted(place)),
        is_running: root.join("sys/fs/cgroup/system.slice").join(name).is_dir(),
        is_masked: target == Path::new("/dev/null"),
    })
}

fn files(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut add = |path: &str| {
        if let Some(text) = text(&root.join(path)) {
            found.insert(format!("/{path}"), text);
        }
    };
    for path in FILES {
        if root.join(path).is_dir() {
            names(&root.join(path)).for_each(|name| add(&format!("{path}/{name}")));
        } else {
            add(path);
        }
    }
    found
}

fn text(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let is_short = meta.is_file() && meta.len() <= LONGEST;
    let bytes = is_short.then(|| fs::read(path).ok())??;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn names(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn programs(root: &Path) -> BTreeSet<String> {
    let processes = root.join("proc");
    let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    let names = names(&processes).filter(is_process);
    let comm = |name: String| text_of_proc(&processes.join(name).join("comm"));
    names.filter_map(comm).map(|name| name.trim_end().to_owned()).collect()
}

/// Files of the kernel have no length.
fn text_of_proc(path: &Path) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What is built in, can be loaded, or is loaded.
fn modules(root: &Path, release: &str) -> Option<BTreeSet<String>> {
    let place = root.join("lib/modules").join(release);
    let listed = ["modules.builtin", "modules.dep"];
    let lists: Vec<String> =
        listed.iter().filter_map(|list| text_of_proc(&place.join(list))).collect();
    if lists.is_empty() {
        return None;
    }
    let name = |line: &str| {
        let path = line.split(':').next()?;
        let file = path.rsplit('/').next()?;
        Some(file.split(".ko").next()?.replace('-', "_"))
    };
    let known = lists.iter().flat_map(|list| list.lines()).filter_map(name);
    Some(known.chain(names(&root.join("sys/module"))).collect())
}

fn systemd() -> Option<u32> {
    let Version(numbers) = Version::in_text(&first_line_of("systemctl")?)?;
    numbers.first().copied()
}

/// What a program says of its version.
fn first_line_of(program: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_version_is_read_from_what_programs_and_kernels_say() {
        let rows = [
            ("nftables v1.0.6 (Lester Gooch #5)", "1.0.6"),
            ("systemd 252 (252.39-1~deb12u1)", "252"),
            ("6.1.0-37-amd64", "6.1.0"),
            ("6.18.44", "6.18.44"),
        ];
        for (text, expected) in rows {
            assert_eq!(Version::in_text(text).unwrap().to_string(), expected);
        }
        assert_eq!(Version::in_text("none"), None);
        let version = Version::in_text("5.18.2").unwrap();
        assert!(version.is_at_least(&[5, 18]) && !version.is_at_least(&[5, 19]));
    }

    #[test]
    fn units_files_and_modules_are_found_below_a_root() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.1.0-37-amd64\n");
        write("proc/42/comm", "dhclient\n");
        write("proc/net/dev", "");
        write("lib/modules/6.1.0-37-amd64/modules.builtin", "kernel/net/bridge/bridge.ko\n");
        write("lib/modules/6.1.0-37-amd64/modules.dep", "kernel/net/8021q/8021q.ko.xz: a.ko\n");
        write("usr/lib/systemd/system/nftables.service", "");
        write("usr/lib/systemd/system/docker.service", "");
        write("usr/lib/systemd/system/systemd-networkd.service", "");
        fs::create_dir_all(root.path().join("etc/systemd/system/sysinit.target.wants")).unwrap();
        symlink(
            "/usr/lib/systemd/system/nftables.service",
            root.path().join("etc/systemd/system/sysinit.target.wants/nftables.service"),
        )
        .unwrap();
        symlink("/dev/null", root.path().join("etc/systemd/system/systemd-networkd.service"))
            .unwrap();
        fs::create_dir_all(root.path().join("sys/fs/cgroup/system.slice/docker.service")).unwrap();
        write("etc/netplan/50-cloud.yaml", "network: {}\n");
        let host = Host::read(root.path());
        let unit = |is_enabled, is_running, is_masked| Unit { is_enabled, is_running, is_masked };
        let expected = BTreeMap::from([
            ("docker.service", unit(false, true, false)),
            ("nftables.service", unit(true, false, false)),
            ("systemd-networkd.service", unit(false, false, true)),
        ]);
        assert_eq!(host.units, expected);
        assert_eq!(host.files.keys().collect::<Vec<_>>(), ["/etc/netplan/50-cloud.yaml"]);
        assert_eq!(host.programs, BTreeSet::from(["dhclient".to_owned()]));
        let modules = host.modules.unwrap();
        assert!(modules.contains("bridge") && modules.contains("8021q"), "{modules:?}");
        assert_eq!(host.kernel.unwrap().to_string(), "6.1.0");
    }
}
