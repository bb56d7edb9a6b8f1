//! The law suite over options of guests on a simulated cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_engine::Ownership;
use homeostat_guests::{Client, DesiredState, Guests, Timeouts, Token, Trust, Vmid};
use homeostat_pve_simulator::{Fault as Failing, Guest, Harm, Kind, Simulator, World};
use homeostat_testkit::laws::{
    self, Ability, DesiredState as Which, Disturbance, Fault, Harness, Meter,
};

use crate::ground::{desired, options};

struct Cluster {
    simulator: Arc<Simulator>,
}

impl Cluster {
    fn new() -> Self {
        let guests = [101, 102, 103, 104, 105];
        let world = guests
            .into_iter()
            .fold(World::default(), |world, vmid| world.with(vmid, Guest::new(Kind::Lxc, "pve1")));
        Cluster { simulator: Arc::new(Simulator::start(world).unwrap()) }
    }

    fn set(&self, vmid: u32, cores: &str) -> Ability {
        self.simulator.with(|world| {
            let guest = world.guests.get_mut(&vmid).unwrap();
            guest.config.insert("cores".to_owned(), cores.to_owned());
        });
        Ability::Done
    }
}

impl Harness for Cluster {
    type Source = Guests;

    fn reset(&mut self) {
        *self = Cluster::new();
    }

    fn source(&self) -> Guests {
        let trust = Trust::Pinned(self.simulator.fingerprint().parse().unwrap());
        let token = Token::parse(&Simulator::token()).unwrap();
        let endpoint = self.simulator.endpoint().parse().unwrap();
        Guests::new(&Client::new(endpoint, token, &trust).unwrap(), "default", Timeouts::default())
    }

    fn ownership(&self) -> Ownership {
        Ownership::Checkpoint
    }

    fn desired(&self, which: Which) -> DesiredState {
        let declared: &[(u32, &str)] = match which {
            Which::First => &[(101, "1"), (102, "2"), (103, "3")],
            Which::Second => &[(101, "9"), (103, "3"), (104, "4")],
            Which::Nothing => &[],
        };
        let declared = declared.iter().map(|(vmid, cores)| (*vmid, options(&[("cores", cores)])));
        DesiredState::clone(&desired(declared))
    }

    /// A guest without cores is as it was made: nobody has put anything there.
    fn snapshot(&self) -> BTreeMap<String, String> {
        self.simulator.with(|world| {
            let guests = world.guests.iter();
            let held = guests.filter_map(|(vmid, guest)| {
                let cores = guest.config.get("cores")?;
                Some((
                    format!("guest {vmid}"),
                    format!("{cores} {:?}", guest.config.get("hostname")),
                ))
            });
            held.collect()
        })
    }

    fn meter(&self) -> Meter {
        let simulator = Arc::clone(&self.simulator);
        Arc::new(move || simulator.with(|world| world.writes().len() as u64))
    }

    fn disturb(&mut self, how: Disturbance<'_, Vmid>) -> Ability {
        match how {
            Disturbance::Alter(key) => self.set(key.0, "7"),
            Disturbance::Stranger => self.set(105, "5"),
            // Guests are not made here, and belong to the first owner who configures them.
            Disturbance::Remove(_) | Disturbance::Occupy(_) => Ability::Unable,
        }
    }

    fn inject(&mut self, fault: Fault<'_, Vmid>) -> Ability {
        let refuse = || Harm::Refuse(500, "it cannot be".to_owned());
        let failing = match fault {
            Fault::Blind => Failing::on("/nodes", refuse()),
            Fault::Unreadable(key) => {
                Failing::on(format!("/{}/config", key.0), refuse()).method("GET")
            }
            Fault::Refuse(key) => Failing::on(format!("/{}/config", key.0), refuse()).method("PUT"),
        };
        self.simulator.with(|world| world.fail(failing));
        Ability::Done
    }

    fn mend(&mut self) {
        self.simulator.with(World::mend);
    }
}

#[tokio::test]
async fn the_laws_hold_over_options_of_guests() {
    let verdict = laws::check(&mut Cluster::new()).await;
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    // A guest without a mark is nobody's, and one that vanished is not made again.
    let unchecked =
        [(4, "a foreign object on a declared key"), (5, "an object of ours that vanished")];
    assert_eq!(verdict.unchecked, unchecked);
}
