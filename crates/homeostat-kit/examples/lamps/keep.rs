use homeostat_kit::{EventKind, Objects, Reconciler, provider};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let strategy = Strategy::marker("me")?;
    let api = Lamps { wall: Arc::default(), strategy: strategy.clone() };
    let home = Reconciler::new(api, strategy); // And `.state(directory)`, to remember over restarts.

    let (sender, lights) = provider::channel();
    let desk = Lamp { percent: 80, colour: "white".to_owned() };
    sender.put(Objects::<Lamps>::from([("desk".to_owned(), desk)])); // Again, whenever it changes.
    let mut events = home.events().subscribe();
    let evening = async {
        while let Ok(event) = events.recv().await {
            if let EventKind::Completed { converged: true, .. } = event.kind {
                return; // All lamps are as they were sent.
            }
        }
    };
    home.run(lights, evening).await?; // Until the evening is over, drift is put right.
    Ok(())
}
