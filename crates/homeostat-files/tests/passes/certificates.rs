//! Certificates among the files: how long they are valid is known before clients find out.

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use crate::bench::{Bench, Declared, report_lines};

fn certificate(until: i32) -> String {
    let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    params.not_before = date_time_ymd(1990, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    format!("{}{}", params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn a_certificate_that_ended_is_found_and_written_all_the_same() {
    let bench = Bench::new();
    let days = || bench.source.counters.certificate_days.get();
    let plain = Declared::File("/etc/a.cfg", "plain\n");
    bench.converge(&bench.desired(&[plain]));
    assert_eq!(days(), None, "there is no certificate");
    let (good, ended) = (certificate(4000), certificate(1999));
    let valid = bench.desired(&[plain, Declared::Secret("/etc/good.pem", &good)]);
    bench.converge(&valid);
    assert!(days().unwrap() > 300_000, "{:?}", days());
    let with_ended = [
        plain,
        Declared::Secret("/etc/ended.pem", &ended),
        Declared::Secret("/etc/good.pem", &good),
    ];
    let desired = bench.desired(&with_ended);
    for _ in 0..2 {
        let lines = report_lines(&bench.pass(&desired));
        let told = ". file /etc/ended.pem: a new certificate: this one has ended";
        assert!(lines.iter().any(|line| line == told), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("good.pem: ")), "{lines:#?}");
    }
    assert_eq!(bench.read("/etc/ended.pem"), ended);
    assert_eq!(days(), Some(0), "the first that ends counts");
    bench.converge(&valid);
    assert!(days().unwrap() > 300_000, "{:?}", days());
}
