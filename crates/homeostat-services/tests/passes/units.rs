//! Units are started, stopped, enabled and masked as declared, and nothing else is.

use homeostat_services::Services;

use crate::bench::{Bench, Machine, block_on, desired};

#[test]
fn units_become_as_declared_and_a_second_pass_writes_nothing() {
    let machine = Machine::with_units(&["web", "old", "bad"]);
    machine.systemctl("enable --now old bad");
    let bench = Bench::new(&machine);
    let wanted = desired(&[
        ("web.service enabled", true),
        ("web.service active", true),
        ("old.service enabled", false),
        ("old.service active", false),
        ("bad.service active", false),
        ("bad.service enabled", false),
    ]);
    assert_eq!(
        bench.lines(&wanted),
        [
            "~ service bad.service active: true -> false",
            "~ service old.service active: true -> false",
            "~ service bad.service enabled: true -> false",
            "~ service old.service enabled: true -> false",
            "~ service web.service enabled: false -> true",
            "~ service web.service active: false -> true",
        ]
    );
    assert_eq!(machine.says("is-active web old bad"), "active\ninactive\ninactive");
    assert_eq!(machine.says("is-enabled web old bad"), "enabled\ndisabled\ndisabled");
    let starts = machine.starts();
    assert_eq!(bench.lines(&wanted), [""; 0]);
    assert_eq!(machine.starts(), starts);
}

#[test]
fn a_mask_goes_before_the_unit_is_started_and_comes_after_it_is_stopped() {
    let machine = Machine::with_units(&[]);
    // A unit of /etc cannot be masked: the mask would have to replace its file.
    let unit = "[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n";
    machine.write("usr/lib/systemd/system/web.service", unit);
    machine.systemctl("daemon-reload");
    machine.systemctl("start web");
    let bench = Bench::new(&machine);
    bench.pass(&desired(&[("web.service active", false), ("web.service masked", true)]));
    assert_eq!(machine.says("is-active web"), "inactive");
    assert_eq!(machine.says("is-enabled web"), "masked");
    let run = desired(&[
        ("web.service active", true),
        ("web.service enabled", true),
        ("web.service masked", false),
    ]);
    let waits = bench.lines(&run);
    assert_eq!(
        waits,
        [
            "pending service web.service enabled: waits on service web.service masked",
            "pending service web.service active: waits on service web.service masked",
            "~ service web.service masked: true -> false",
        ]
    );
    bench.pass(&run);
    assert_eq!(machine.says("is-active web"), "active");
    assert_eq!(machine.says("is-enabled web"), "enabled");
}

#[test]
fn what_somebody_masked_is_not_unmasked_unless_it_is_declared() {
    let machine = Machine::with_units(&[]);
    machine.write("usr/lib/systemd/system/web.service", "[Service]\nExecStart=sleep infinity\n");
    machine.systemctl("daemon-reload");
    machine.systemctl("mask web");
    let lines = Bench::new(&machine).lines(&desired(&[("web.service active", true)]));
    assert_eq!(lines, ["failed service web.service active: web.service is masked"]);
    assert_eq!(machine.says("is-enabled web"), "masked");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason_and_what_may_come_is_waited_for() {
    let machine = Machine::with_units(&["web"]);
    machine.write("etc/systemd/system/fixed.service", "[Service]\nExecStart=sleep infinity\n");
    let once = "[Service]\nType=oneshot\nExecStart=true\n";
    machine.write("etc/systemd/system/once.service", once);
    let broken = "[Service]\nType=exec\nExecStart=/no/such/program\n";
    machine.write("etc/systemd/system/broken.service", broken);
    machine.systemctl("daemon-reload");
    let lines = Bench::new(&machine).lines(&desired(&[
        ("absent.service active", true),
        ("broken.service active", true),
        ("fixed.service enabled", true),
        ("once.service active", true),
        ("web.service active", true),
    ]));
    assert_eq!(
        lines,
        [
            "failed service fixed.service enabled: its unit file is `static`: it cannot be enabled or disabled",
            "failed service once.service active: once.service ends when its work is done \
             (Type=oneshot without RemainAfterExit): it is never active for long",
            "failed service broken.service active: systemd could not start broken.service: failed",
            "pending service absent.service active: waits on the unit absent.service, which is not installed",
            "~ service web.service active: false -> true",
        ]
    );
}

#[test]
fn a_release_leaves_what_is_there_or_restores_the_original() {
    let machine = Machine::with_units(&["web", "old"]);
    machine.systemctl("enable --now old");
    let bench = Bench::new(&machine);
    let wanted = desired(&[
        ("old.service active", false),
        ("old.service enabled", false),
        ("web.service active", true),
    ]);
    bench.pass(&wanted);
    let bench = bench.restoring();
    bench.pass(&desired(&[]));
    assert_eq!(machine.says("is-active web old"), "inactive\nactive");
    assert_eq!(machine.says("is-enabled old"), "enabled");
    let bench = Bench::new(&machine);
    bench.pass(&desired(&[("web.service active", true)]));
    assert_eq!(bench.lines(&desired(&[])), ["- service web.service active: true -> nothing"]);
    assert_eq!(machine.says("is-active web"), "active");
}

#[test]
fn without_systemd_everything_waits_and_no_record_is_lost() {
    let machine = Machine::with_units(&["web"]);
    let mut bench = Bench::new(&machine).restoring();
    let wanted = desired(&[("web.service active", true)]);
    bench.pass(&wanted);
    bench.source = Services { root: "/no/such/root".into(), ..bench.source };
    let unknown = "unknown service web.service active: systemd does not run here";
    assert_eq!(bench.lines(&wanted), [unknown]);
    let other = desired(&[("other.service active", true), ("web.service active", true)]);
    let waits = "pending service other.service active: waits on systemd, which does not run here";
    assert_eq!(bench.lines(&other), [waits, unknown]);
    bench.pass(&desired(&[]));
    assert_eq!(machine.says("is-active web"), "active");
    bench.source = machine.source();
    bench.pass(&desired(&[]));
    assert_eq!(machine.says("is-active web"), "inactive", "the original is known still");
}

#[test]
fn a_unit_that_takes_long_to_start_is_waited_for_and_holds_up_no_other() {
    let machine = Machine::with_units(&["web"]);
    // It is ready once somebody writes into the pipe.
    let slow = "[Service]\nType=exec\nExecStartPre=sh -c 'read line < /run/go'\nExecStart=sleep infinity\n";
    machine.write("etc/systemd/system/slow.service", slow);
    assert!(machine.0.run(&["mkfifo", "/run/go"]).unwrap().status.success());
    machine.systemctl("daemon-reload");
    let bench = Bench::new(&machine);
    let wanted = desired(&[("slow.service active", true), ("web.service active", true)]);
    let lines = bench.lines(&wanted);
    assert!(
        lines[0].starts_with("pending service slow.service active: waits on task"),
        "{lines:?}"
    );
    assert_eq!(lines[1..], ["~ service web.service active: false -> true"]);
    let again = bench.lines(&wanted);
    let waits =
        "pending service slow.service active: waits on task of systemd: slow.service is activating";
    assert_eq!(again, [waits], "it is not started twice");
    assert!(machine.0.run(&["sh", "-c", "echo > /run/go"]).unwrap().status.success());
    machine.systemctl("start slow");
    assert_eq!(bench.lines(&wanted), [""; 0]);
}

#[test]
fn signals_name_the_unit_that_changed() {
    use homeostat_core::{Focus, Hint, Reader as _, Records, Source as _, View};
    use std::sync::Arc;

    let machine = Machine::with_units(&["web", "other"]);
    let source = machine.source();
    let wanted =
        Arc::new(desired(&[("web.service active", false), ("web.service enabled", false)]));
    block_on(async {
        let mut reader = source.reader().unwrap();
        let (focus, records) = (Focus::All, Records::default());
        let view = View::<Services>::new(&focus, &wanted, &records);
        reader.observe(&view, &mut |_| {}).await.unwrap();
        machine.systemctl("start other");
        machine.systemctl("start web");
        let Hint::Keys(keys) = reader.hint().await.unwrap() else { panic!("keys") };
        let keys: Vec<String> = keys.keys().map(ToString::to_string).collect();
        assert_eq!(keys, ["service web.service enabled", "service web.service active"]);
    });
}
