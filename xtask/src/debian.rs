//! The small Debian that tests boot in namespaces: made once, from the same archives as the packages of this machine, so
//! that what is built here runs in it. The tests find it below the target directory.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::run::{Program, target_directory};
use crate::{console, setup};

/// What it has besides the essential packages.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,libpam-systemd,iproute2,nftables,procps,mount,util-linux,\
    bird2,chrony,haproxy,keepalived,nginx-light,unbound";

/// Programs whose examples are tried in it: each test starts its own.
const NOT_ENABLED: &str = "bird chrony haproxy keepalived nginx unbound";

/// Units that are of no use to tests, or would reach for the kernel of the host.
const MASKED: &str = "getty.target console-getty.service modprobe@.service systemd-modules-load.service \
    systemd-remount-fs.service sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount \
    sys-fs-fuse-connections.mount apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
    e2scrub_all.timer e2scrub_reap.service systemd-tmpfiles-clean.timer";

/// Makes it, unless there is one that was made the same way.
pub(crate) fn provide() -> Result<()> {
    let place = target_directory()?.join("debian");
    let recipe = Recipe::of_this_machine()?;
    let (root, made_by) = (place.join("root"), place.join("recipe"));
    let command = recipe.command(&place);
    let text = format!("{}{command}\n", recipe.sources);
    if root.is_dir() && fs::read_to_string(&made_by).is_ok_and(|former| former == text) {
        return Ok(());
    }
    console::note(&format!("missing: {}: tests boot it", root.display()));
    if !setup::is_root() {
        bail!("only root can make it\nhelp: run `cargo xtask setup` as root");
    }
    setup::update_lists()?;
    for old in [&root, &place.join("new")] {
        let old = old.display().to_string();
        Program::new("rm", &["-rf", "--one-file-system", &old]).run()?;
    }
    fs::create_dir_all(&place)?;
    fs::write(place.join("sources.list"), &recipe.sources)?;
    command.run()?;
    fs::rename(place.join("new"), &root)?;
    fs::write(made_by, text).context("cannot write how it was made")
}

#[derive(Debug, PartialEq, Eq)]
struct Recipe {
    suite: String,
    /// Lines of a `sources.list`.
    sources: String,
}

impl Recipe {
    fn of_this_machine() -> Result<Self> {
        let format = "$(CREATED_BY)|$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)";
        let targets = Program::new("apt-get", &["indextargets", "--format", format]).read()?;
        let system = fs::read_to_string("/etc/os-release").context("which system is this?")?;
        Self::new(&system, &targets)
    }

    /// The archives of the distribution itself, of all those that apt uses.
    fn new(system: &str, targets: &str) -> Result<Self> {
        let field = |name: &str| {
            let value = system.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.trim_matches('"').to_owned())
        };
        let (Some(id), Some(suite)) = (field("ID"), field("VERSION_CODENAME")) else {
            bail!("/etc/os-release names no distribution and version");
        };
        let line = |target: &str| match target.split('|').collect::<Vec<_>>()[..] {
            ["Packages", origin, uri, release, component] if origin.eq_ignore_ascii_case(&id) => {
                Some(format!("deb {uri} {release} {component}\n"))
            }
            _ => None,
        };
        let sources: String = targets.lines().filter_map(line).collect();
        if sources.is_empty() {
            bail!("apt uses no archive of {id}\nhelp: run `apt-get update` as root");
        }
        Ok(Self { suite, sources })
    }

    fn command(&self, place: &Path) -> Program {
        let path = |name: &str| place.join(name).display().to_string();
        let hook = format!("--customize-hook=chroot \"$1\" systemctl --quiet mask {MASKED}");
        let disable =
            format!("--customize-hook=chroot \"$1\" systemctl --quiet disable {NOT_ENABLED}");
        let include = format!("--include={PACKAGES}");
        let options = ["--quiet", "--mode=root", "--variant=minbase", &include, &hook, &disable];
        let (new, sources) = (path("new"), path("sources.list"));
        let places = [self.suite.as_str(), &new, &sources];
        Program::new("mmdebstrap", &[&options[..], &places].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archives_are_those_of_the_distribution() {
        let system = "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        let targets = "\
Translations|Debian|http://deb.debian.org/debian/|bookworm|main
Packages|Debian|http://deb.debian.org/debian/|bookworm|main
Packages|Debian|http://deb.debian.org/debian-security/|bookworm-security|main
Packages|Somebody|https://packages.example/apt|stable|main
";
        let recipe = Recipe::new(system, targets).unwrap();
        let sources = "deb http://deb.debian.org/debian/ bookworm main\n\
                       deb http://deb.debian.org/debian-security/ bookworm-security main\n";
        assert_eq!(recipe, Recipe { suite: "bookworm".to_owned(), sources: sources.to_owned() });
        assert!(Recipe::new(system, "").is_err());
        assert!(Recipe::new("ID=linux\n", targets).is_err());
    }
}
