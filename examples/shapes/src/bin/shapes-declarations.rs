//! Keeps the shapes of a service the way the declarations in its store say: `shapes-declarations SERVICE`. It runs until
//! it is interrupted. A declaration that is deleted vanishes after its shape.

use anyhow::Context as _;
use homeostat_kit::Reconciler;
use homeostat_kit::Strategy;
use homeostat_kit::lifecycle::Lifecycle;
use homeostat_shapes::client::Client;
use homeostat_shapes::declarations::Declarations;
use homeostat_shapes::source::Shapes;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let service = std::env::args().nth(1).context("usage: shapes-declarations SERVICE")?;
    let client = Client::new(service.parse().context("SERVICE is an address and a port")?);
    let strategy = Strategy::marker("declarations")?;
    let declarations = Declarations { client: client.clone(), finalizer: "shapes".to_owned() };
    let shapes = Shapes { client, strategy: strategy.clone() };
    let shutdown = async { _ = tokio::signal::ctrl_c().await };
    Reconciler::new(shapes, strategy).run(Lifecycle::new(declarations), shutdown).await?;
    Ok(())
}
