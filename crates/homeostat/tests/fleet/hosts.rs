//! Hosts on one network: each has a network, a name, an `/etc`, a `/var/lib` and a home of its own, and the program. What
//! brings commands and files from one to another stands in for `ssh` and `scp`; everything else is the real thing.
#![expect(
    clippy::disallowed_methods,
    reason = "the module of these tests that starts programs on hosts"
)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use homeostat_testkit::namespace::Namespace;
use homeostat_testkit::script::write_script;
use tempfile::TempDir;

/// Where the operator works.
const OPERATOR: &str = "ops";

pub(crate) struct Hosts {
    holders: Vec<(String, Child)>,
    services: Vec<Child>,
    directory: TempDir,
    /// The network of all of them, and of the operator.
    namespace: Namespace,
}

impl Hosts {
    /// Hosts with these names, and the one on which the operator works.
    pub(crate) fn start(names: &[&str]) -> Self {
        let namespace = Namespace::enter().unwrap();
        let directory = tempfile::Builder::new().prefix("homeostat-fleet-").tempdir().unwrap();
        let mut hosts = Hosts { holders: Vec::new(), services: Vec::new(), directory, namespace };
        hosts.write_stand_ins();
        let names: Vec<&str> = std::iter::once(OPERATOR).chain(names.iter().copied()).collect();
        let line = |(nth, name): (usize, &&str)| format!("10.99.0.{} {name}\n", nth + 1);
        let table: String = names.iter().enumerate().map(line).collect();
        fs::write(hosts.path("hosts"), format!("127.0.0.1 localhost\n{table}")).unwrap();
        hosts.ip("link set lo up");
        hosts.ip("link add br0 type bridge");
        hosts.ip("address add 10.99.0.1/24 dev br0");
        hosts.ip("link set br0 up");
        for (nth, name) in names.iter().enumerate() {
            hosts.add(name, nth + 1);
        }
        hosts
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn ip(&self, args: &str) {
        let args: Vec<&str> = args.split(' ').collect();
        self.namespace.ip(&args).unwrap();
    }

    /// The holder keeps the namespaces; what runs on the host enters them.
    fn add(&mut self, name: &str, number: usize) {
        let at = self.directory.path().display();
        // Nothing of the machine that runs the test is changed: everything that is written to is mounted over.
        let script = format!(
            "cp -a /etc {at}/{name}-etc; cp {at}/hosts {at}/{name}-etc/hosts; rm -rf {at}/{name}-etc/homeostat\n\
             mkdir -p {at}/{name}-home\n\
             mount --bind {at}/{name}-etc /etc; mount -t tmpfs lib /var/lib; mount -t tmpfs run /run\n\
             mount --bind {at}/{name}-home /root; mount --bind {at}/bin /usr/local/bin\n\
             hostname {name}; mkdir -p /var/lib/etcd; chmod 700 /var/lib/etcd; ip link set lo up; echo ready; exec cat"
        );
        let mut unshare = Command::new("unshare");
        // The operator's network is that of the test.
        let own = if name == OPERATOR { "--mount --uts" } else { "--mount --uts --net" };
        unshare.args(own.split(' ')).args(["sh", "-ec", &script]);
        let mut holder = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{name}");
        let pid = holder.id();
        fs::write(self.path(&format!("{name}.pid")), pid.to_string()).unwrap();
        self.holders.push((name.to_owned(), holder));
        if name == OPERATOR {
            return;
        }
        self.ip(&format!("link add to-{name} type veth peer name eth0 netns {pid}"));
        self.ip(&format!("link set to-{name} up master br0"));
        let up = format!("ip address add 10.99.0.{number}/24 dev eth0; ip link set eth0 up");
        let ran = self.run_on(name, &up);
        assert!(ran.status.success(), "{ran:?}");
    }

    fn write_stand_ins(&self) {
        let at = self.directory.path().display();
        fs::create_dir(self.path("bin")).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_homeostat"));
        std::os::unix::fs::symlink(program, self.path("bin/homeostat")).unwrap();
        let ssh = format!(
            "#!/bin/sh -e\nhost=${{1#root@}}\nshift\n\
             exec nsenter --target $(cat {at}/$host.pid) --mount --uts --net -- \"$@\"\n"
        );
        write_script(&self.path("bin/ssh"), &ssh).unwrap();
        let scp = "#!/bin/sh -e\nfor last; do :; done\nhost=${last%%:*}\npath=${last#*:}\n\
                   while [ $# -gt 1 ]; do\n  to=$path\n  case $path in */) to=$path$(basename $1);; esac\n  \
                   ssh $host sh -c \"cat > $to\" < $1\n  shift\ndone\n";
        write_script(&self.path("bin/scp"), scp).unwrap();
    }

    fn on(&self, name: &str, script: &str) -> Command {
        let (_, holder) = self.holders.iter().find(|(host, _)| host == name).unwrap();
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(holder.id().to_string()).args(["--mount", "--uts"]);
        // The operator's network is that of this thread.
        if name != OPERATOR {
            command.arg("--net");
        }
        command.args(["sh", "-ec", &format!("cd /root\n{script}")]).stdin(Stdio::null());
        command.env_clear().env("HOME", "/root");
        command.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs a script on a host to its end.
    pub(crate) fn run_on(&self, name: &str, script: &str) -> Output {
        self.on(name, script).output().unwrap()
    }

    /// Runs a script where the operator works.
    pub(crate) fn run(&self, script: &str) -> Output {
        self.run_on(OPERATOR, script)
    }

    /// Starts what goes on on a host, until the end of the test.
    pub(crate) fn serve(&mut self, name: &str, script: &str) {
        let log = File::options().create(true).append(true).open(self.path(&format!("{name}.log")));
        let log = log.unwrap();
        let mut command = self.on(name, script);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.services.push(command.spawn().unwrap());
    }

    /// What the services of all hosts have said last.
    pub(crate) fn logs(&self) -> String {
        let log = |(name, _): &(String, Child)| {
            let text = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(15).collect();
            let lines: Vec<_> =
                lines.into_iter().rev().map(|line| format!("{name}: {line}")).collect();
            lines.join("\n")
        };
        self.holders.iter().map(log).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for service in &mut self.services {
            let _ = service.kill();
            let _ = service.wait();
        }
        for (_, holder) in &mut self.holders {
            // `cat` ends with its input.
            if let Some(mut input) = holder.stdin.take() {
                let _ = input.flush();
            }
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}
