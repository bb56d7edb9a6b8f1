//! `[resolver]`: name servers in `/etc/resolv.conf` of a machine that systemd has booted, judged by what is in the file.

use std::fs;
use std::os::unix::fs::symlink;

use crate::booted::Host;
use crate::keeping::until;

const WANTED: &str = "[resolver]\nservers = [\"192.0.2.1\", \"2001:db8::1\"]\nsearch = [\"example.org\"]\n\
                      options = [\"edns0\", \"timeout:1\"]\n";

const WRITTEN: &str = "# Kept by homeostat: [resolver] of its document.\nnameserver 192.0.2.1\n\
                       nameserver 2001:db8::1\nsearch example.org\noptions edns0 timeout:1\n";

const FORMER: &str = "nameserver 198.51.100.1\n";

impl Host {
    fn resolv_conf(&self) -> String {
        fs::read_to_string(self.machine.path().join("etc/resolv.conf")).unwrap_or_default()
    }

    fn without_resolv_conf(&self) {
        // The small Debian may have none.
        let _ = fs::remove_file(self.machine.path().join("etc/resolv.conf"));
    }
}

#[test]
fn name_servers_are_written_healed_and_given_back() {
    let host = Host::new();
    host.without_resolv_conf();
    host.write("etc/resolv.conf", FORMER);
    host.write("root/dns.toml", WANTED);
    let refused = host.run("homeostat apply --yes /root/dns.toml");
    assert_ne!(refused.code(), Some(0), "the file is somebody else's: {refused:?}");
    assert!(refused.stdout.contains("/etc/resolv.conf"), "{refused:?}");
    assert_eq!(host.resolv_conf(), FORMER);
    host.write("root/dns.toml", &format!("{WANTED}adopt = true\n"));
    let plan = host.run("homeostat plan /root/dns.toml").exits(0).stdout;
    assert!(plan.contains("files in files/resolv.conf"), "{plan}");
    host.run("homeostat apply --yes /root/dns.toml").exits(0);
    assert_eq!(host.resolv_conf(), WRITTEN);
    host.run("homeostat verify /root/dns.toml").exits(0);
    // Without the section nothing is given back; an empty one says that nothing is declared.
    host.write("root/none.toml", "[sysctl]\n");
    let held = host.run("homeostat apply --yes /root/none.toml").stdout;
    assert!(held.contains("`[resolver]` is missing from the document"), "{held}");
    assert!(held.contains("an empty `[resolver]`"), "{held}");
    assert_eq!(host.resolv_conf(), WRITTEN);
    host.write("root/none.toml", "[resolver]\n");
    host.run("homeostat apply --yes --revert-on-release /root/none.toml").exits(0);
    assert_eq!(host.resolv_conf(), FORMER);
}

#[test]
fn a_daemon_restores_what_a_dhcp_client_writes_and_names_it() {
    let host = Host::new();
    host.without_resolv_conf();
    let drop_in = include_str!("../../../../packaging/systemd/files.conf");
    host.write("etc/systemd/system/homeostat.service.d/files.conf", drop_in);
    host.start_daemon(WANTED);
    until("the file", || host.resolv_conf() == WRITTEN);
    // It goes on, so that the kernel can say what it is called.
    host.write("usr/sbin/dhclient", "#!/bin/sh\necho > /etc/resolv.conf\nread line\n");
    host.run("chmod 755 /usr/sbin/dhclient").exits(0);
    let mut client = host.begin("/usr/sbin/dhclient");
    until("the file again", || host.resolv_conf() == WRITTEN);
    until("the culprit", || {
        let events = host.run("homeostat events --json").stdout;
        events.lines().any(|line| line.contains("/etc/resolv.conf") && line.contains("dhclient"))
    });
    drop(client.stdin.take());
    client.wait().unwrap();
}

/// So it is where systemd-resolved keeps the file, or resolvconf.
#[test]
fn a_link_to_the_file_of_another_program_is_left_alone() {
    let host = Host::new();
    host.without_resolv_conf();
    host.write("run/systemd/resolve/stub-resolv.conf", "nameserver 127.0.0.53\n");
    let link = host.machine.path().join("etc/resolv.conf");
    symlink("../run/systemd/resolve/stub-resolv.conf", &link).unwrap();
    for (adopt, why) in
        [("", "belongs to another program"), ("adopt = true\n", "a symbolic link is there")]
    {
        host.write("root/dns.toml", &format!("{WANTED}{adopt}"));
        let refused = host.run("homeostat apply --yes /root/dns.toml").exits(1);
        assert!(refused.stdout.contains(why), "{refused:?}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(host.resolv_conf(), "nameserver 127.0.0.53\n");
    }
}
