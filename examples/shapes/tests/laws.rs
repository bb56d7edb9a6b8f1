//! The source keeps the laws of the contract, over the real service.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_engine::Ownership;
use homeostat_kit::Strategy;
use homeostat_kit::simple::{Adapted, DesiredObjects, Versioned};
use homeostat_shapes::client::Client;
use homeostat_shapes::service::{Faults, Service, Stored};
use homeostat_shapes::shape::Shape;
use homeostat_shapes::source::Shapes;
use homeostat_testkit::laws::{self, Ability, DesiredState, Disturbance, Fault, Harness, Meter};

struct Bench {
    service: Service,
    strategy: Strategy,
}

impl Harness for Bench {
    type Source = Adapted<Shapes>;

    fn reset(&mut self) {
        self.service = Service::start().unwrap();
    }

    fn source(&self) -> Adapted<Shapes> {
        let client = Client::new(self.service.addr());
        Adapted::new(Shapes { client, strategy: self.strategy.clone() })
    }

    fn ownership(&self) -> Ownership {
        self.strategy.ownership()
    }

    fn desired(&self, which: DesiredState) -> DesiredObjects<Shapes> {
        let squares: &[_] = match which {
            DesiredState::First => &[("door", "green"), ("window", "blue")],
            DesiredState::Second => &[("door", "black"), ("roof", "red")],
            DesiredState::Nothing => &[],
        };
        let square = |colour| Versioned::declared(Shape::square(colour));
        DesiredObjects::new(
            squares.iter().map(|(name, colour)| ((*name).to_owned(), square(colour))),
        )
        .unwrap()
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        // Ids and versions show in which order things happened, and nothing else.
        let plain =
            |shape: &Stored| format!("{:?}", Stored { uid: 0, version: 0, ..shape.clone() });
        let state = self.service.state();
        state.shapes.iter().map(|(name, shape)| (name.clone(), plain(shape))).collect()
    }

    fn meter(&self) -> Meter {
        Arc::new(self.service.writes())
    }

    fn disturb(&mut self, how: Disturbance<'_, String>) -> Ability {
        match how {
            Disturbance::Remove(name) => self.service.remove(name),
            Disturbance::Alter(name) | Disturbance::Occupy(name) => {
                self.service.paint(name, "rust");
            }
            Disturbance::Stranger => self.service.paint("cloud", "white"),
        }
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, String>) -> Ability {
        let mut state = self.service.state();
        match fault {
            Fault::Blind => state.faults.blind = true,
            Fault::Refuse(name) => _ = state.faults.frozen.insert(name.clone()),
            Fault::Unreadable(_) => return Ability::Unable,
        }
        Ability::Done
    }

    fn mend(&mut self) {
        self.service.state().faults = Faults::default();
    }
}

async fn check(strategy: Strategy) {
    let service = Service::start().unwrap();
    let verdict = laws::check(&mut Bench { service, strategy }).await.unwrap();
    assert_eq!(verdict.unchecked, [(1, "an object that cannot be read")]);
}

#[tokio::test]
async fn the_source_keeps_all_laws_with_marks() {
    check(Strategy::marker("demo").unwrap()).await;
}

#[tokio::test]
async fn the_source_keeps_all_laws_with_checkpoints() {
    check(Strategy::Checkpoint).await;
}

#[test]
fn the_source_stays_one_file_of_about_a_hundred_lines() {
    let code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let lines = include_str!("../src/source.rs").lines().filter(code).count();
    assert!(lines <= 120, "{lines} lines");
}
