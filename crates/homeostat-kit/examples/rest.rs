//! Keeps the shapes of a small HTTP service the way they were declared, next to a stranger's.
//!
//! Run it with `cargo run -p homeostat-kit --example rest`. Start reading at `rest/source.rs`: that is
//! all that the author of a source writes.

#[path = "rest/client.rs"]
mod client;
#[path = "rest/demo.rs"]
mod demo;
#[path = "rest/http.rs"]
mod http;
#[path = "rest/service.rs"]
mod service;
#[path = "rest/source.rs"]
mod source;

use std::error::Error;
use std::io::{self, Write as _};

use homeostat_engine::{Entry, Explain, Kind};

use crate::demo::{Demo, Squares};
use crate::service::{Service, Stored};

const BOTH: Squares<'static> = &[("door", "green"), ("window", "blue")];
const DOOR: Squares<'static> = &[("door", "green")];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let service = Service::start()?;
    let mut demo = Demo::open(&service)?;
    paint(&service, "cloud", "white");

    run(&service, &mut demo, "two squares are declared, a stranger's is there", BOTH).await?;
    run(&service, &mut demo, "nothing has happened since", BOTH).await?;
    paint(&service, "door", "red");
    run(&service, &mut demo, "somebody painted the door red", BOTH).await?;
    service.state().shapes.remove("window");
    run(&service, &mut demo, "somebody took the window away", BOTH).await?;
    run(&service, &mut demo, "the window is no longer declared", DOOR).await?;
    Ok(())
}

/// Does what a stranger does: changes a shape, or brings one.
fn paint(service: &Service, name: &str, colour: &str) {
    let mut state = service.state();
    let fresh = || Stored {
        name: name.to_owned(),
        kind: "circle".to_owned(),
        colour: String::new(),
        labels: std::collections::BTreeMap::new(),
    };
    colour.clone_into(&mut state.shapes.entry(name.to_owned()).or_insert_with(fresh).colour);
}

async fn run(
    service: &Service,
    demo: &mut Demo,
    what: &str,
    squares: Squares<'_>,
) -> Result<(), Box<dyn Error>> {
    let before = (service.writes())();
    let report = demo.pass(squares).await?;
    let mut lines = vec![format!("{what}:")];
    report.explain(Kind::Applied, &mut |entry| {
        if let Entry::Applied(line, _) = entry {
            lines.push(format!("  {} {}", line.action.sign(), line.key));
        }
    });
    let writes = (service.writes())() - before;
    let state = service.state();
    let shapes: Vec<String> =
        state.shapes.values().map(|shape| format!("{} {}", shape.colour, shape.name)).collect();
    lines.push(format!("  {writes} writes; there now: {}", shapes.join(", ")));
    writeln!(io::stdout(), "{}", lines.join("\n"))?;
    Ok(())
}
