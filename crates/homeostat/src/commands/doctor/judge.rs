//! What of a machine would fight with homeostat, what works beside it, and what is missing. Pure.

use serde::Serialize;

use super::host::{Host, Unit};

/// One thing that somebody should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The program, or what is missing.
    pub(super) who: &'static str,
    pub(super) what: String,
    pub(super) help: Option<String>,
    /// What to type for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) commands: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// It would undo what homeostat does, or the other way round.
    Fights,
    /// Something is not there that documents may need.
    Lacks,
    /// It keeps a part of the network, and both can do so.
    Beside,
    Note,
}

impl Level {
    pub(super) const ALL: [Level; 4] = [Level::Fights, Level::Lacks, Level::Beside, Level::Note];

    pub(super) fn title(self) -> &'static str {
        match self {
            Level::Fights => "To settle first",
            Level::Lacks => "Missing",
            Level::Beside => "Works beside it",
            Level::Note => "Good to know",
        }
    }

    pub(super) fn sign(self) -> &'static str {
        match self {
            Level::Fights => "!",
            Level::Lacks => "-",
            Level::Beside | Level::Note => ".",
        }
    }

    pub(super) fn is_trouble(self) -> bool {
        matches!(self, Level::Fights | Level::Lacks)
    }
}

impl Finding {
    fn new(level: Level, who: &'static str, what: impl Into<String>) -> Self {
        Finding { level, who, what: what.into(), help: None, commands: Vec::new() }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Finding { help: Some(help.into()), ..self }
    }

    fn commands(self, commands: &[&str]) -> Self {
        Finding { commands: commands.iter().map(|one| (*one).to_owned()).collect(), ..self }
    }
}

/// Looks at one program or one part of the machine.
type Judge = fn(&Host) -> Option<Finding>;

const ALL: [Judge; 19] = [
    networkd,
    network_manager,
    ifupdown,
    netplan,
    cloud_init,
    nftables_service,
    nft,
    nf_tables,
    kernel,
    systemd,
    dhcp,
    firewalld,
    iptables,
    docker,
    routing,
    sysctls,
    kinds,
    rights,
    own_unit,
];

/// Everything that somebody should know, in a fixed order.
pub(super) fn judge(host: &Host) -> Vec<Finding> {
    ALL.iter().filter_map(|judge| judge(host)).collect()
}

fn state(unit: Unit) -> &'static str {
    match (unit.is_running, unit.is_enabled) {
        (true, true) => "runs, and is started at each boot",
        (true, false) => "runs",
        _ => "is started at each boot",
    }
}

fn networkd(host: &Host) -> Option<Finding> {
    let unit = host.unit("systemd-networkd.service")?;
    let files: Vec<&str> = host.below("/etc/systemd/network/").map(|(name, _)| name).collect();
    let conf = "/etc/systemd/networkd.conf";
    let keeps_out = host.is_off(conf, "ManageForeignRoutes")
        && host.is_off(conf, "ManageForeignRoutingPolicyRules");
    let who = "systemd-networkd";
    if keeps_out {
        let what = format!("it {}, and leaves routes and rules of others alone", state(unit));
        return Some(Finding::new(Level::Beside, who, what).help(
            "declare no addresses on links that its .network files configure: it removes addresses that it does not know",
        ));
    }
    let of = if files.is_empty() { String::new() } else { format!(" ({})", files.join(", ")) };
    let what = format!(
        "it {}{of}, and removes routes and rules that it does not know, when it starts and when a link changes",
        state(unit)
    );
    let help = "let it leave those of others alone, or switch it off once the document declares what its files do";
    Some(Finding::new(Level::Fights, who, what).help(help).commands(&[
        "mkdir -p /etc/systemd/networkd.conf.d",
        r"printf '[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n' > /etc/systemd/networkd.conf.d/homeostat.conf",
        "systemctl restart systemd-networkd",
    ]))
}

fn network_manager(host: &Host) -> Option<Finding> {
    let unit = host.unit("NetworkManager.service")?;
    let lines: Vec<&str> = host.lines("/etc/NetworkManager/").collect();
    let is_left = lines.iter().any(|line| line.starts_with("unmanaged-devices"));
    if is_left {
        let what = format!("it {}, and leaves some links alone", state(unit));
        let help =
            "declare only those links: NetworkManager resets the addresses and routes of its own";
        return Some(Finding::new(Level::Beside, "NetworkManager", what).help(help));
    }
    let what =
        format!("it {}, and configures every link that it is not told to leave alone", state(unit));
    let help = "name the links of the document as unmanaged; this line is for eth1";
    Some(Finding::new(Level::Fights, "NetworkManager", what).help(help).commands(&[
        r"printf '[keyfile]\nunmanaged-devices=interface-name:eth1\n' > /etc/NetworkManager/conf.d/homeostat.conf",
        "systemctl reload NetworkManager",
    ]))
}

fn ifupdown(host: &Host) -> Option<Finding> {
    let unit = host.unit("networking.service")?;
    let links: Vec<&str> = host
        .lines("/etc/network/interfaces")
        .filter_map(|line| line.strip_prefix("auto ").or(line.strip_prefix("allow-hotplug ")))
        .flat_map(str::split_whitespace)
        .filter(|link| *link != "lo")
        .collect();
    if links.is_empty() {
        return None;
    }
    let what = format!(
        "/etc/network/interfaces brings {} up; networking.service {}",
        links.join(", "),
        state(unit)
    );
    let help = "declare in the document what its stanzas say, then take them out of the file, all but `lo`; addresses and \
                routes that ifupdown has set would be conflicts: `adopt = true` takes them over";
    Some(Finding::new(Level::Fights, "ifupdown", what).help(help))
}

fn netplan(host: &Host) -> Option<Finding> {
    let is_yaml = |name: &str| matches!(name.rsplit_once('.'), Some((_, "yaml" | "yml")));
    let says_something = |text: &str| {
        text.lines().any(|line| {
            ["ethernets", "bridges", "bonds", "vlans", "wifis", "tunnels", "vrfs"]
                .iter()
                .any(|word| line.trim().starts_with(word))
        })
    };
    let files: Vec<&str> = host
        .below("/etc/netplan/")
        .filter(|(name, text)| is_yaml(name) && says_something(text))
        .map(|(name, _)| name)
        .collect();
    if files.is_empty() {
        return None;
    }
    let what = format!("{} configure networkd or NetworkManager at each boot", files.join(", "));
    let help =
        "declare in the document what they say, then move them away; `netplan generate` afterwards";
    Some(Finding::new(Level::Fights, "netplan", what).help(help))
}

fn cloud_init(host: &Host) -> Option<Finding> {
    let unit = host.unit("cloud-init.service").or(host.unit("cloud-init-network.service"))?;
    if host.files.contains_key("/etc/cloud/cloud-init.disabled") {
        return None;
    }
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let is_off = host.below("/etc/cloud/").any(|(_, text)| {
        let text = squeezed(text);
        text.contains("network:{config:disabled}") || text.contains("network:config:disabled")
    });
    if is_off {
        let what = "it is told not to configure the network";
        return Some(Finding::new(Level::Beside, "cloud-init", what));
    }
    let what = format!("it {}, and writes the network's configuration anew", state(unit));
    let help = "tell it to leave the network alone";
    Some(Finding::new(Level::Fights, "cloud-init", what).help(help).commands(&[
        "echo 'network: {config: disabled}' > /etc/cloud/cloud.cfg.d/99-homeostat.cfg",
    ]))
}

fn nftables_service(host: &Host) -> Option<Finding> {
    let unit = host.unit("nftables.service")?;
    let flushes = host.lines("/etc/nftables.conf").any(|line| line.starts_with("flush ruleset"));
    if !flushes {
        let what = format!("it {}, and loads /etc/nftables.conf beside other tables", state(unit));
        return Some(Finding::new(Level::Beside, "nftables.service", what));
    }
    let what = format!(
        "it {}, and /etc/nftables.conf begins with `flush ruleset`: each start, reload and stop removes all tables, also \
         those of homeostat and Docker",
        state(unit)
    );
    let help = "name that file in the document (`[nftables] file = ...`, without `flush ruleset`), then switch the unit off";
    Some(
        Finding::new(Level::Fights, "nftables.service", what)
            .help(help)
            .commands(&["systemctl disable nftables.service"]),
    )
}

fn nft(host: &Host) -> Option<Finding> {
    match &host.nft {
        None => {
            let what = "it is not installed; documents with `[nftables]` need it";
            let finding = Finding::new(Level::Lacks, "nft", what);
            Some(finding.commands(&["apt-get install --no-install-recommends nftables"]))
        }
        Some(version) if !version.is_at_least(&[1, 0]) => {
            let what = format!("version {version} is older than 1.0, which `[nftables]` needs");
            Some(Finding::new(Level::Lacks, "nft", what))
        }
        Some(_) => None,
    }
}

fn nf_tables(host: &Host) -> Option<Finding> {
    let modules = host.modules.as_ref()?;
    if modules.contains("nf_tables") {
        return None;
    }
    let what = "the kernel has no nf_tables; documents with `[nftables]` need it";
    Some(Finding::new(Level::Lacks, "nf_tables", what))
}

fn kernel(host: &Host) -> Option<Finding> {
    let kernel = host.kernel.as_ref()?;
    if kernel.is_at_least(&[5, 18]) {
        return None;
    }
    let what = format!(
        "Linux {kernel} stores no protocol with addresses (5.18 does): which ones are ours is known to the state \
         directory alone"
    );
    Some(Finding::new(Level::Note, "kernel", what))
}

fn systemd(host: &Host) -> Option<Finding> {
    match host.systemd {
        Some(version) if version < 247 => {
            let what = format!(
                "version {version} does not know all settings of the unit, and ignores them"
            );
            Some(Finding::new(Level::Note, "systemd", what))
        }
        _ => None,
    }
}

fn dhcp(host: &Host) -> Option<Finding> {
    let clients = ["dhclient", "dhcpcd", "udhcpc"];
    let found: Vec<&str> =
        clients.into_iter().filter(|name| host.programs.contains(*name)).collect();
    if found.is_empty() {
        return None;
    }
    let what = format!("{} keeps the addresses and routes of its leases", found.join(", "));
    let help =
        "do not declare those: homeostat leaves them alone. `homeostat show` leaves them out";
    Some(Finding::new(Level::Beside, "DHCP client", what).help(help))
}

fn firewalld(host: &Host) -> Option<Finding> {
    let unit = host.unit("firewalld.service")?;
    let what = format!("it {}, and keeps tables of its own", state(unit));
    let help = "a packet has to be accepted by its tables and by those of the document: what either drops is dropped";
    Some(Finding::new(Level::Beside, "firewalld", what).help(help))
}

fn iptables(host: &Host) -> Option<Finding> {
    let names = ["ufw.service", "netfilter-persistent.service"];
    let used: Vec<&str> = names.into_iter().filter(|name| host.unit(name).is_some()).collect();
    if used.is_empty() {
        return None;
    }
    let what = format!("{} loads rules of iptables at each boot", used.join(", "));
    let help = "a packet has to be accepted by those and by the tables of the document";
    Some(Finding::new(Level::Beside, "iptables", what).help(help))
}

fn docker(host: &Host) -> Option<Finding> {
    let is_used = host.unit("docker.service").is_some() || host.links.contains("docker0");
    if !is_used {
        return None;
    }
    let what = "it keeps docker0, links of containers, and its own rules; it switches forwarding on, and lets the host \
                forward for containers only";
    let help = "do not declare its links. A document that forwards for others has to say so in Docker's chain DOCKER-USER, \
                too, and one with `ip_forward = 0` cuts the containers off";
    Some(Finding::new(Level::Beside, "Docker", what).help(help))
}

fn routing(host: &Host) -> Option<Finding> {
    let names = ["bird.service", "frr.service", "tailscaled.service"];
    let used: Vec<&str> = names.into_iter().filter(|name| host.unit(name).is_some()).collect();
    if used.is_empty() {
        return None;
    }
    let what = format!("{} keeps routes with a protocol of its own", used.join(", "));
    let help =
        "homeostat leaves them alone; a route that both declare is a conflict, which is shown";
    Some(Finding::new(Level::Beside, "routing", what).help(help))
}

fn sysctls(host: &Host) -> Option<Finding> {
    let is_net = |line: &&str| line.trim_start_matches('-').starts_with("net");
    let count = host.lines("/etc/sysctl").filter(is_net).count();
    if count == 0 {
        return None;
    }
    let what =
        format!("/etc/sysctl.conf and /etc/sysctl.d set {count} values below net/ at each boot");
    let help = "a value that the document declares otherwise is changed back at once: keep each in one place";
    Some(Finding::new(Level::Note, "sysctl.d", what).help(help))
}

/// The kinds of links that documents may create, and the modules that make them.
const KINDS: [(&str, &str); 12] = [
    ("bond", "bonding"),
    ("bridge", "bridge"),
    ("dummy", "dummy"),
    ("gre", "ip_gre"),
    ("ifb", "ifb"),
    ("ipvlan", "ipvlan"),
    ("macvlan", "macvlan"),
    ("tun", "tun"),
    ("veth", "veth"),
    ("vlan", "8021q"),
    ("vrf", "vrf"),
    ("vxlan", "vxlan"),
];

fn kinds(host: &Host) -> Option<Finding> {
    let Some(modules) = &host.modules else {
        let what = "there is no list of modules for the running kernel, so it is not known which kinds of links it has";
        return Some(Finding::new(Level::Note, "kernel", what));
    };
    let missing = KINDS.iter().filter(|(_, module)| !modules.contains(*module));
    let missing: Vec<&str> = missing.map(|(kind, _)| *kind).collect();
    if missing.is_empty() {
        return None;
    }
    let what = format!("this kernel cannot make links of these kinds: {}", missing.join(", "));
    Some(Finding::new(Level::Note, "kernel", what))
}

fn rights(host: &Host) -> Option<Finding> {
    if host.is_root {
        return None;
    }
    let what = "run as root to see everything: some files and programs may not have been seen";
    Some(Finding::new(Level::Note, "doctor", what))
}

fn own_unit(host: &Host) -> Option<Finding> {
    let unit = host.units.get("homeostat.service")?;
    let what = match (unit.is_enabled, unit.is_running) {
        (true, true) => return None,
        (true, false) => {
            "its unit is enabled and does not run: it does nothing while /etc/homeostat is empty"
        }
        (false, true) => {
            "its unit runs and is not enabled: nothing is declared after the next boot"
        }
        (false, false) => "its unit is installed and not enabled",
    };
    let finding = Finding::new(Level::Note, "homeostat", what);
    Some(finding.commands(&["systemctl enable --now homeostat"]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::doctor::host::Version;

    /// A machine on which nothing has to be said.
    fn plain() -> Host {
        let modules: BTreeSet<String> = KINDS
            .iter()
            .map(|(_, module)| (*module).to_owned())
            .chain(["nf_tables".to_owned()])
            .collect();
        Host {
            kernel: Some(Version(vec![6, 1, 0])),
            modules: Some(modules),
            systemd: Some(252),
            nft: Some(Version(vec![1, 0, 6])),
            is_root: true,
            ..Host::default()
        }
    }

    const ENABLED: Unit = Unit { is_enabled: true, is_running: false, is_masked: false };
    const MASKED: Unit = Unit { is_masked: true, ..ENABLED };

    fn found(change: impl FnOnce(&mut Host)) -> Vec<(Level, &'static str)> {
        let mut host = plain();
        change(&mut host);
        judge(&host).into_iter().map(|finding| (finding.level, finding.who)).collect()
    }

    fn with(units: &[&'static str], files: &[(&str, &str)]) -> Vec<(Level, &'static str)> {
        found(|host| {
            host.units.extend(units.iter().map(|unit| (*unit, ENABLED)));
            host.files
                .extend(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
        })
    }

    #[test]
    fn a_machine_with_nothing_else_has_no_findings() {
        assert_eq!(found(|_| {}), []);
        assert_eq!(found(|host| _ = host.units.insert("nftables.service", MASKED)), []);
    }

    #[test]
    fn networkd_fights_until_it_is_told_to_leave_what_is_foreign() {
        let unit = "systemd-networkd.service";
        let file = ("/etc/systemd/network/10-lan.network", "[Match]\nName=eth0\n");
        assert_eq!(with(&[unit], &[file]), [(Level::Fights, "systemd-networkd")]);
        let half = ("/etc/systemd/networkd.conf", "[Network]\nManageForeignRoutes=no\n");
        assert_eq!(with(&[unit], &[file, half]), [(Level::Fights, "systemd-networkd")]);
        let rest =
            ("/etc/systemd/networkd.conf.d/x.conf", "ManageForeignRoutingPolicyRules = no\n");
        assert_eq!(with(&[unit], &[file, half, rest]), [(Level::Beside, "systemd-networkd")]);
        let comment = ("/etc/systemd/networkd.conf", "#ManageForeignRoutes=no\n");
        assert_eq!(with(&[unit], &[comment, rest]), [(Level::Fights, "systemd-networkd")]);
    }

    #[test]
    fn network_manager_fights_until_links_are_unmanaged() {
        let unit = "NetworkManager.service";
        assert_eq!(with(&[unit], &[]), [(Level::Fights, "NetworkManager")]);
        let conf = (
            "/etc/NetworkManager/conf.d/x.conf",
            "[keyfile]\nunmanaged-devices=interface-name:eth1\n",
        );
        assert_eq!(with(&[unit], &[conf]), [(Level::Beside, "NetworkManager")]);
    }

    #[test]
    fn ifupdown_netplan_and_cloud_init_fight_where_they_configure_links() {
        let lo = ("/etc/network/interfaces", "auto lo\niface lo inet loopback\n");
        assert_eq!(with(&["networking.service"], &[lo]), []);
        let eth0 = ("/etc/network/interfaces.d/eth0", "allow-hotplug eth0\niface eth0 inet dhcp\n");
        assert_eq!(with(&["networking.service"], &[lo, eth0]), [(Level::Fights, "ifupdown")]);
        assert_eq!(with(&[], &[eth0]), [], "nothing reads it");
        assert_eq!(with(&[], &[("/etc/netplan/00.yaml", "network:\n  version: 2\n")]), []);
        let yaml = ("/etc/netplan/50.yaml", "network:\n  ethernets:\n    eth0: {dhcp4: true}\n");
        assert_eq!(with(&[], &[yaml]), [(Level::Fights, "netplan")]);
        assert_eq!(with(&["cloud-init.service"], &[]), [(Level::Fights, "cloud-init")]);
        let off = ("/etc/cloud/cloud.cfg.d/99.cfg", "network: {config: disabled}\n");
        assert_eq!(with(&["cloud-init.service"], &[off]), [(Level::Beside, "cloud-init")]);
        let gone = ("/etc/cloud/cloud-init.disabled", "");
        assert_eq!(with(&["cloud-init.service"], &[gone]), []);
    }

    #[test]
    fn a_service_that_flushes_the_ruleset_fights() {
        let unit = "nftables.service";
        let flush =
            ("/etc/nftables.conf", "#!/usr/sbin/nft -f\n\nflush ruleset\ntable inet f {}\n");
        assert_eq!(with(&[unit], &[flush]), [(Level::Fights, "nftables.service")]);
        let own = ("/etc/nftables.conf", "# flush ruleset\ntable inet f {}\n");
        assert_eq!(with(&[unit], &[own]), [(Level::Beside, "nftables.service")]);
    }

    #[test]
    fn who_keeps_a_part_of_its_own_is_named_and_is_no_trouble() {
        let units = ["docker.service", "firewalld.service", "ufw.service", "bird.service"];
        let names: Vec<_> = ["firewalld", "iptables", "Docker", "routing"]
            .into_iter()
            .map(|who| (Level::Beside, who))
            .collect();
        assert_eq!(with(&units, &[]), names);
        let dhcp = found(|host| _ = host.programs.insert("dhclient".to_owned()));
        assert_eq!(dhcp, [(Level::Beside, "DHCP client")]);
        let sysctl = ("/etc/sysctl.d/10.conf", "net.ipv4.ip_forward = 1\nvm.swappiness = 1\n");
        assert_eq!(with(&[], &[sysctl]), [(Level::Note, "sysctl.d")]);
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(found(|host| host.nft = None), [(Level::Lacks, "nft")]);
        let old = found(|host| host.nft = Some(Version(vec![0, 9, 8])));
        assert_eq!(old, [(Level::Lacks, "nft")]);
        assert_eq!(
            found(|host| host.kernel = Some(Version(vec![5, 10]))),
            [(Level::Note, "kernel")]
        );
        assert_eq!(found(|host| host.modules = None), [(Level::Note, "kernel")]);
        let few = found(|host| {
            if let Some(modules) = &mut host.modules {
                modules.remove("8021q");
                modules.remove("nf_tables");
            }
        });
        assert_eq!(few, [(Level::Lacks, "nf_tables"), (Level::Note, "kernel")]);
    }
}
