//! Features of virtual links: words, single features, what is held back, and originals.

use homeostat_ethtool::DesiredState;

use crate::bench::{Bench, ethtool, feature, report_lines, switches};

#[test]
fn features_are_kept_and_get_their_originals_back() {
    let bench = Bench::with_pairs(1);
    ethtool("-K v0 tx-tcp6-segmentation off");
    let desired = switches(&[
        ("ethtool v0 feature tso", false),
        ("ethtool v0 feature gro", true),
        ("ethtool v0 feature tx-vlan-stag-hw-insert", false),
    ]);
    let lines = report_lines(&bench.pass(&desired));
    let [gro, tso, stag] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(gro, "~ ethtool v0 feature gro: false -> true");
    assert!(tso.starts_with("~ ethtool v0 feature tso: {"), "{tso}");
    assert!(tso.contains("\"tx-tcp6-segmentation\":\"off\""), "{tso}");
    assert!(tso.ends_with("} -> false"), "{tso}");
    assert_eq!(stag, "~ ethtool v0 feature tx-vlan-stag-hw-insert: true -> false");
    bench.converges(&desired);
    for name in ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-vlan-stag-hw-insert"] {
        assert_eq!(feature("v0", name), (false, false), "{name}");
    }
    assert_eq!(feature("v0", "generic-receive-offload"), (true, true));
    // What was not declared is as it was.
    assert_eq!(feature("v0", "generic-segmentation-offload"), (true, true));
    assert_eq!(feature("w0", "tx-tcp-segmentation"), (true, true));

    ethtool("-K v0 tso on gro off");
    bench.converges(&desired);
    assert_eq!(feature("v0", "tx-tcp-segmentation"), (false, false));

    bench.converges(&DesiredState::default());
    assert_eq!(feature("v0", "generic-receive-offload"), (false, false));
    assert_eq!(feature("v0", "tx-tcp-segmentation"), (true, true));
    assert_eq!(feature("v0", "tx-tcp6-segmentation"), (false, false), "it was off before");
    assert_eq!(feature("v0", "tx-vlan-stag-hw-insert"), (true, true));
}

/// Quirk `features-need-others` (Linux 6.18): without `tx-scatter-gather` the kernel keeps segmentation off, whatever is
/// asked for, and turns it on when that comes back.
#[test]
fn what_the_kernel_holds_back_is_settled_and_comes_with_what_it_needs() {
    let bench = Bench::with_pairs(1);
    ethtool("-K v0 tso off");
    let both = |sg| switches(&[("ethtool v0 feature sg", sg), ("ethtool v0 feature tso", true)]);
    bench.converges(&both(false));
    assert_eq!(feature("v0", "tx-tcp-segmentation"), (false, true));
    let lines = report_lines(&bench.pass(&both(false)));
    assert!(
        lines.iter().any(|line| line.starts_with("settled ethtool v0 feature tso")),
        "{lines:?}"
    );
    bench.converges(&both(true));
    assert_eq!(feature("v0", "tx-tcp-segmentation"), (true, true));
}

#[test]
fn a_link_that_is_absent_is_waited_for() {
    let bench = Bench::with_pairs(0);
    let desired = switches(&[("ethtool v0 feature gro", true)]);
    let pending = ["pending ethtool v0 feature gro on link v0"];
    assert_eq!(report_lines(&bench.pass(&desired)), pending);
    bench.ip("link add v0 type veth peer name w0");
    bench.converges(&desired);
    bench.ip("link delete v0");
    assert_eq!(report_lines(&bench.pass(&desired)), pending);
}

#[test]
fn bridges_and_ifbs_have_features_too() {
    let bench = Bench::with_pairs(0);
    bench.ip("link add b0 type bridge");
    bench.ip("link add i0 type ifb");
    let desired = switches(&[
        ("ethtool b0 feature gro", false),
        ("ethtool b0 feature gso", false),
        ("ethtool i0 feature tso", false),
    ]);
    bench.converges(&desired);
    assert_eq!(feature("b0", "generic-receive-offload"), (false, false));
    assert_eq!(feature("b0", "generic-segmentation-offload"), (false, false));
    assert_eq!(feature("i0", "tx-tcp-segmentation"), (false, false));
}
