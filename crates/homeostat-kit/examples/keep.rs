#[path = "../examples/lamps/mod.rs"]
mod lamps;

use homeostat_kit::strategy::{Marker, Strategy};
use homeostat_kit::{EventKind, Objects, Reconciler, provider};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let strategy = Strategy::Marker(Marker::new("me")?);
    let api = lamps::Lamps { wall: lamps::Wall::new().into(), strategy: strategy.clone() };
    let home = Reconciler::new(api, strategy); // And `.state(directory)`, to remember over restarts.

    let (sender, lights) = provider::channel();
    sender.put(Objects::<lamps::Lamps>::from([("desk".to_owned(), 80)]));
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
