#[path = "../examples/lamps/mod.rs"]
mod lamps;

use homeostat_kit::strategy::{Marker, Strategy};
use homeostat_kit::{Applied, Finding, Objects, Verdict, reconcile};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let strategy = Strategy::Marker(Marker::new("me")?);
    let wall = lamps::Wall::from([("moon".into(), (1, "nature".into()))]).into();
    let api = lamps::Lamps { wall, strategy: strategy.clone() }.into();
    let desired = Objects::<lamps::Lamps>::from([("desk".into(), 80), ("moon".into(), 9)]);

    let (report, applied) = reconcile(&api, &strategy, &desired, &Applied::default()).await?;
    match report.verdict() {
        // The moon is not ours, and is left alone.
        Verdict::Open(open) => assert!(matches!(open[..], [(_, Finding::Conflict { .. })])),
        Verdict::Converged | Verdict::Broken(_) => return Err(report.to_string().into()),
    }

    let (report, _applied) =
        reconcile(&api, &strategy, Objects::<lamps::Lamps>::new(), &applied).await?;
    assert!(report.is_converged() && report.summary().delete == 1); // The lamp on the desk is gone.
    Ok(())
}
