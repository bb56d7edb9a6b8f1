use homeostat_kit::{Applied, Finding, Objects, Verdict, reconcile};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let strategy = Strategy::marker("me")?;
    let white = |percent| Lamp { percent, colour: "white".to_owned() };
    let wall = Arc::new(Wall::default());
    wall.lamps.lock().await.insert("moon".to_owned(), (white(1), "nature".to_owned()));
    let api = Arc::new(Lamps { wall, strategy: strategy.clone() });
    let desired = Objects::<Lamps>::from([("desk".into(), white(80)), ("moon".into(), white(9))]);

    let (report, applied) = reconcile(&api, &strategy, &desired, &Applied::default()).await?;
    match report.verdict() {
        // The moon is not ours, and is left alone.
        Verdict::Open(open) => assert!(matches!(open[..], [(_, Finding::Conflict { .. })])),
        Verdict::Converged | Verdict::Broken(_) => return Err(report.to_string().into()),
    }

    let nothing = Objects::<Lamps>::new();
    let (report, _applied) = reconcile(&api, &strategy, &nothing, &applied).await?;
    assert!(report.is_converged() && report.summary().delete == 1); // The lamp on the desk is gone.
    Ok(())
}
