//! Many guests on several nodes behind a bad network: each is started once, lanes never overlap, limits hold.

use std::time::Duration;

use homeostat_engine::Explain as _;
use homeostat_guests::{Run, Wanted};
use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script, World};

use crate::ground::{Ground, desired, options, story};

/// The same dice in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn node(vmid: u32) -> String {
    format!("pve{}", vmid % 10)
}

fn world(guests: u32, dice: &mut Dice) -> World {
    let mut world = World::default();
    world.hidden_queries = 1;
    for vmid in 101..101 + guests {
        world.put(vmid, Guest::new(Kind::Lxc, node(vmid)));
        let takes = Duration::from_millis(dice.roll(40));
        let end = if dice.roll(6) == 0 { End::Warnings(1) } else { End::Ok };
        world.script(vmid, Script { takes, end });
    }
    let paths = ["/status/start", "/config", "/tasks/", "/lxc", "/nodes", "/pending"];
    for path in paths {
        let lost = if dice.roll(2) == 0 { Harm::DropRequest } else { Harm::DropResponse };
        let between = u32::try_from(5 + dice.roll(9)).unwrap_or(9);
        world.fail(Fault::on(path, lost).after(between).flapping(between).times(6));
        let masked = Harm::Mask(596, "Broken pipe".to_owned());
        world.fail(Fault::on(path, masked).after(between * 2).flapping(between * 3).times(4));
        world.fail(Fault::on(path, Harm::Slow(Duration::from_millis(3))).flapping(between));
    }
    world
}

async fn converges(guests: u32, seed: u64) {
    let ground = Ground::new(world(guests, &mut Dice(seed)));
    let wanted = |vmid| Wanted {
        node: Some(node(vmid)),
        run: Some(Run::Running),
        ..options(&[("cores", "2"), ("description", "one of many")])
    };
    let desired = desired((101..101 + guests).map(|vmid| (vmid, wanted(vmid))));
    let mut process = ground.process();
    let mut last = String::new();
    for _ in 0..400 {
        // A pass that cannot look at all fails as a whole, and another one follows.
        match process.try_pass(&desired).await {
            Ok(report) if report.is_converged() => break,
            Ok(report) => last = story(&report),
            Err(error) => last = error.to_string(),
        }
        if !process.operations.in_flight().is_empty() {
            process.operations.dirty_keys().await;
        }
    }
    ground.simulator.with(|world| {
        for vmid in 101..101 + guests {
            let guest = &world.guests[&vmid];
            let is_done =
                guest.running && guest.config.get("cores").is_some_and(|cores| cores == "2");
            assert!(is_done, "seed {seed}, guest {vmid}: {last}");
            assert_eq!(world.count(vmid, "vzstart"), 1, "seed {seed}, guest {vmid}");
        }
        assert!(world.most_per_node <= 2, "seed {seed}: {}", world.most_per_node);
        assert_eq!(world.most_per_guest, 1, "seed {seed}");
    });
}

#[tokio::test]
async fn many_guests_behind_a_bad_network_are_started_once_each() {
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    let (guests, seeds) = if is_soak { (500, 3) } else { (40, 2) };
    for seed in 1..=seeds {
        converges(guests, seed).await;
    }
}
