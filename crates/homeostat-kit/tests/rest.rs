//! The example: a source in a hundred lines over a real HTTP service, next to a stranger.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../examples/rest/client.rs"]
mod client;
#[path = "../examples/rest/demo.rs"]
mod demo;
#[path = "../examples/rest/http.rs"]
mod http;
#[path = "../examples/rest/service.rs"]
mod service;
#[path = "../examples/rest/source.rs"]
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_engine::{Entry, Explain as _, Kind, Ownership};
use homeostat_kit::simple::{Adapted, Wishes};
use homeostat_testkit::laws::{self, Ability, Disturbance, Fault, Harness, Meter, Wish};

use crate::client::Client;
use crate::demo::{Demo, Squares, wish};
use crate::service::{Service, Stored};
use crate::source::Shapes;

const TWO: Squares<'static> = &[("door", "green"), ("window", "blue")];

fn stored(name: &str, colour: &str) -> Stored {
    let [name, colour, kind] = [name, colour, "circle"].map(str::to_owned);
    Stored { name, kind, colour, labels: BTreeMap::new() }
}

fn paint(service: &Service, name: &str, colour: &str) {
    let mut state = service.state();
    let shape = state.shapes.entry(name.to_owned()).or_insert_with(|| stored(name, ""));
    colour.clone_into(&mut shape.colour);
}

/// Runs a pass; tells what it applied and how many writes the service was asked for.
async fn pass(service: &Service, demo: &mut Demo, squares: Squares<'_>) -> (String, u64) {
    let before = (service.writes())();
    let report = demo.pass(squares).await.unwrap();
    let mut applied = Vec::new();
    report.explain(Kind::Applied, &mut |entry| match entry {
        Entry::Applied(line, _) => applied.push(format!("{} {}", line.action.sign(), line.key)),
        other => panic!("{other:?}"),
    });
    (applied.join(", "), (service.writes())() - before)
}

#[tokio::test]
async fn shapes_are_kept_as_declared_and_a_strangers_is_left_alone() {
    let service = Service::start().unwrap();
    let mut demo = Demo::open(&service).unwrap();
    paint(&service, "cloud", "white");

    assert_eq!(pass(&service, &mut demo, TWO).await, ("+ door, + window".into(), 2));
    assert_eq!(pass(&service, &mut demo, TWO).await, (String::new(), 0));
    paint(&service, "door", "red");
    assert_eq!(pass(&service, &mut demo, TWO).await, ("~ door".into(), 1));
    service.state().shapes.remove("window");
    assert_eq!(pass(&service, &mut demo, TWO).await, ("+ window".into(), 1));
    assert_eq!(pass(&service, &mut demo, &[("door", "green")]).await, ("- window".into(), 1));
    assert_eq!(pass(&service, &mut demo, &[]).await, ("- door".into(), 1));

    let state = service.state();
    assert_eq!(state.shapes.values().collect::<Vec<_>>(), [&stored("cloud", "white")]);
}

#[tokio::test]
async fn a_strangers_shape_on_a_wished_name_is_a_conflict() {
    let service = Service::start().unwrap();
    let mut demo = Demo::open(&service).unwrap();
    paint(&service, "door", "red");
    let report = demo.pass(TWO).await.unwrap();
    let mut conflicts = Vec::new();
    report.explain(Kind::Conflict, &mut |entry| conflicts.push(entry));
    assert!(matches!(&conflicts[..], [Entry::Conflict { key, .. }] if key == "door"));
    assert_eq!(service.state().shapes["door"], stored("door", "red"));
    assert!(service.state().shapes.contains_key("window"), "the rest goes on");
}

#[tokio::test]
async fn a_service_that_is_out_of_order_loses_nothing() {
    let service = Service::start().unwrap();
    let mut demo = Demo::open(&service).unwrap();
    demo.pass(TWO).await.unwrap();
    service.state().blind = true;
    assert!(demo.pass(&[]).await.is_err());
    assert_eq!(service.state().shapes.len(), 2);
}

#[tokio::test]
async fn a_name_that_is_no_plain_word_reaches_the_service_unharmed() {
    let service = Service::start().unwrap();
    let mut demo = Demo::open(&service).unwrap();
    let odd: Squares<'_> = &[("50 % größer?", "green")];
    assert_eq!(pass(&service, &mut demo, odd).await.1, 1);
    paint(&service, "50 % größer?", "red");
    assert_eq!(pass(&service, &mut demo, odd).await, ("~ 50 % größer?".into(), 1));
}

#[test]
fn the_source_stays_one_file_of_about_a_hundred_lines() {
    let lines = include_str!("../examples/rest/source.rs").lines().count();
    assert!(lines <= 120, "{lines} lines");
}

struct Bench {
    service: Service,
}

impl Harness for Bench {
    type Source = Adapted<Shapes>;

    fn reset(&mut self) {
        self.service = Service::start().unwrap();
    }

    fn source(&self) -> Adapted<Shapes> {
        Adapted::new(Shapes { client: Client::new(self.service.addr()), owner: "demo" })
    }

    fn ownership(&self) -> Ownership {
        Ownership::Marked
    }

    fn wish(&self, which: Wish) -> Wishes<Shapes> {
        let squares = match which {
            Wish::First => TWO,
            Wish::Second => &[("door", "black"), ("roof", "red")],
            Wish::Nothing => &[],
        };
        Arc::into_inner(wish(squares)).unwrap()
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let state = self.service.state();
        state.shapes.iter().map(|(name, shape)| (name.clone(), format!("{shape:?}"))).collect()
    }

    fn meter(&self) -> Meter {
        Arc::new(self.service.writes())
    }

    fn disturb(&mut self, how: Disturbance<'_, String>) -> Ability {
        match how {
            Disturbance::Remove(name) => _ = self.service.state().shapes.remove(name),
            Disturbance::Alter(name) | Disturbance::Occupy(name) => {
                paint(&self.service, name, "rust");
            }
            Disturbance::Stranger => paint(&self.service, "cloud", "white"),
        }
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, String>) -> Ability {
        let mut state = self.service.state();
        match fault {
            Fault::Blind => state.blind = true,
            Fault::Refuse(name) => _ = state.frozen.insert(name.clone()),
            Fault::Unreadable(_) => return Ability::Unable,
        }
        Ability::Done
    }

    fn mend(&mut self) {
        let mut state = self.service.state();
        state.blind = false;
        state.frozen.clear();
    }
}

#[tokio::test]
async fn the_source_keeps_all_laws() {
    let service = Service::start().unwrap();
    let verdict = laws::check(&mut Bench { service }).await.unwrap();
    assert_eq!(verdict.unchecked, [(1, "an object that cannot be read")]);
}
