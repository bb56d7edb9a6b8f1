//! What is counted of sets of files, and credentials that systemd passes to the daemon.

use std::fs;

use crate::booted::Host;
use crate::http::read;
use crate::keeping::until;
use crate::world::World;

/// Valid for a hundred years.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBejCCAR+gAwIBAgIUPWpi0Osn/psJDWEir66k0TM5sSkwCgYIKoZIzj0EAwIw\n\
ETEPMA0GA1UEAwwGYS50ZXN0MCAXDTI2MTExODA1MzkzMVoYDzIxMjYxMDI1MDUz\n\
OTMxWjARMQ8wDQYDVQQDDAZhLnRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\n\
AAQJKu9qYQNcUyuUdzGcB2oFKOgQoK3pxG5tPqPAbGdu8rgso4vyffQfMBFjJRjt\n\
NVLexw/UvEvceJMx2thJrppto1MwUTAdBgNVHQ4EFgQUQDbSlV4BY5awqaiNRHbT\n\
zXYVnPkwHwYDVR0jBBgwFoAUQDbSlV4BY5awqaiNRHbTzXYVnPkwDwYDVR0TAQH/\n\
BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAjkd3zyTU0+7Vw3qM/Yu9qjb2CNhu\n\
moIi1CP9ft2KE9ACIQDuceFET48KtSEJ5It8tKj5xII9blsdSwhilt7JJNw7Vg==\n\
-----END CERTIFICATE-----\n";

/// The value of a metric of the set `web`; nothing, if there is none.
fn metric(name: &str) -> Option<u64> {
    let (_, text) = read("/metrics");
    let start = format!("homeostat_{name}{{source=\"files\",scope=\"files/web\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok())
}

#[test]
fn days_of_certificates_and_refused_checks_are_metrics() {
    let world = World::new();
    fs::create_dir(world.path().join("etc")).unwrap();
    let etc = world.path().join("etc").display().to_string();
    let document = |text: &str| {
        format!(
            "[files.web]\ncheck = [\"/bin/sh\", \"-c\", \"! grep bad {etc}/a\"]\n[files.web.write]\n\
             \"{etc}/a\" = {{ text = \"{text}\\n\" }}\n\"{etc}/site.pem\" = {{ copy = \"site.pem\" }}\n"
        )
    };
    world.write("site.pem", "no certificate\n");
    world.write("host.toml", document("good"));
    world.ip("link set lo up");
    let _daemon = world.start("--listen 127.0.0.1:9876");
    until("the file", || fs::read_to_string(format!("{etc}/a")).is_ok());
    world.converges();
    assert_eq!(metric("files_certificate_days"), None);
    assert_eq!(metric("files_checks_refused_total"), Some(0));
    world.write("site.pem", CERTIFICATE);
    until("the certificate", || metric("files_certificate_days").is_some_and(|days| days > 10_000));
    world.write("host.toml", document("bad"));
    until("the refusal", || metric("files_checks_refused_total").is_some_and(|count| count > 0));
    assert_eq!(fs::read_to_string(format!("{etc}/a")).unwrap(), "good\n");
}

#[test]
fn a_credential_of_the_unit_becomes_a_file_and_is_shown_nowhere() {
    let host = Host::new();
    let files = include_str!("../../../../packaging/systemd/files.conf");
    let files = files.replace("ReadWritePaths=/etc", "ReadWritePaths=/etc/web");
    host.write("etc/web/theirs", "theirs\n");
    host.write("root/site.pem", "CANARY-ONE\n");
    let drop_in = format!("{files}\n[Service]\nLoadCredential=site.pem:/root/site.pem\n");
    host.write("etc/systemd/system/homeostat.service.d/files.conf", &drop_in);
    let document = "[files.web.inputs]\nkey = { credential = \"site.pem\", secret = true }\n\
                    [files.web.write]\n\"/etc/web/site.pem\" = { text = \"{{ inputs.key }}\", secret = true }\n";
    host.start_daemon(document);
    let held = || host.run("cat /etc/web/site.pem").stdout;
    until("the file", || held() == "CANARY-ONE\n");
    let mode = host.run("stat --format=%a /etc/web/site.pem").exits(0).stdout;
    assert_eq!(mode, "600\n");
    // systemd passes the new value with the next start.
    host.write("root/site.pem", "CANARY-TWO\n");
    host.run("systemctl restart homeostat").exits(0);
    until("the new value", || held() == "CANARY-TWO\n");
    host.run("homeostat status --wait").exits(0);
    // Whoever is no such unit has none.
    host.write("root/other.toml", document);
    let alone = host.run("homeostat --state-dir /root/state plan /root/other.toml").exits(0);
    assert!(alone.stdout.contains("no credentials were passed"), "{alone:?}");
    for line in
        ["homeostat status --json", "homeostat events --json", "journalctl --unit=homeostat"]
    {
        let told = host.run(line);
        assert!(!told.stdout.contains("CANARY") && !told.stderr.contains("CANARY"), "{told:?}");
    }
}
