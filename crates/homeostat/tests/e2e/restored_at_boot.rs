//! What a trial wrote to the disk outlives a power loss: it is as it was before the programs that read it start.

use crate::booted::Host;
use crate::keeping::until;

/// Says what was in the file when it started.
const READER: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=sh -c 'cat /etc/reader/conf >/var/tmp/read'\n[Install]\nWantedBy=multi-user.target\n";

/// The drop-in that is shipped for documents with files.
const FILES: &str = include_str!("../../../../packaging/systemd/files.conf");

fn document(text: &str) -> String {
    format!("[files.reader.write]\n\"/etc/reader/conf\" = {{ text = \"{text}\\n\" }}\n")
}

fn text(host: &Host, path: &str) -> String {
    host.run(&format!("cat {path}")).stdout.trim_end().to_owned()
}

fn moment(host: &Host, unit: &str, property: &str) -> u64 {
    let shown = host.run(&format!("systemctl show --value --property={property} {unit}")).stdout;
    shown.trim_end().parse().unwrap()
}

#[test]
fn a_program_never_reads_a_file_of_a_trial_that_a_power_loss_ended() {
    let mut host = Host::new();
    host.write("etc/reader/theirs", "theirs\n");
    host.write("etc/systemd/system/reader.service", READER);
    let drop_in = FILES.replace("ReadWritePaths=/etc", "ReadWritePaths=/etc/reader");
    host.write("etc/systemd/system/homeostat.service.d/files.conf", &drop_in);
    host.start_daemon(&document("before"));
    until("the file", || text(&host, "/etc/reader/conf") == "before");
    host.run("systemctl enable reader").exits(0);
    let tried = format!(
        "{}\"/etc/reader/new\" = {{ text = \"new\\n\" }}\n\
         \"/etc/reader/theirs\" = {{ text = \"ours\\n\", adopt = true }}\n",
        document("tried")
    );
    host.write("root/trial.toml", &tried);
    let client = host.begin("homeostat apply --yes --confirm-within 1h /root/trial.toml");
    until("the trial", || text(&host, "/etc/reader/theirs") == "ours");
    assert_eq!(text(&host, "/etc/reader/conf"), "tried");
    host.lose_power();
    drop(client);
    until("the reader", || host.run("systemctl is-active reader").stdout == "active\n");
    assert_eq!(text(&host, "/var/tmp/read"), "before");
    // It is no coincidence.
    let is_ready = moment(&host, "homeostat", "ActiveEnterTimestampMonotonic");
    let is_read = moment(&host, "reader", "ExecMainStartTimestampMonotonic");
    assert!(0 < is_ready && is_ready <= is_read, "{is_ready} {is_read}");
    assert_eq!(text(&host, "/etc/reader/theirs"), "theirs");
    host.run("test ! -e /etc/reader/new").exits(0);
    until("the end", || {
        let history = host.run("homeostat history --json").json(0);
        history["rolled_back"][0]["why"] == "the machine was booted"
    });
}
