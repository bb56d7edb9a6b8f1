//! The law suite over modules.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use homeostat_engine::Ownership;
use homeostat_modules::{DesiredState, Key, Modules};
use homeostat_testkit::laws::{
    self, Ability, DesiredState as Which, Disturbance, Fault, Harness, Meter,
};

use crate::world::{World, block_on, desired};

struct Tree(World);

impl Harness for Tree {
    type Source = Modules;

    fn reset(&mut self) {
        self.0 = World::new();
    }

    fn source(&self) -> Modules {
        self.0.source()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Checkpoint
    }

    fn desired(&self, which: Which) -> DesiredState {
        desired(match which {
            Which::First => "blue green red",
            Which::Second => "green red white",
            Which::Nothing => "",
        })
    }

    fn objects_differ(&self) -> bool {
        false
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let loaded = self.0.loaded().into_iter();
        loaded.map(|name| (format!("module {name}"), "loaded".to_owned())).collect()
    }

    fn meter(&self) -> Meter {
        let log = self.0.path("log");
        Arc::new(move || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            u64::try_from(log.lines().count()).unwrap_or(u64::MAX)
        })
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Stranger => {
                fs::create_dir(self.0.path("module/stranger")).unwrap();
                Ability::Done
            }
            // A module that goes is not loaded any more, which is a value; nobody owns one.
            Disturbance::Alter(key) => {
                fs::remove_dir_all(self.0.path("module").join(key.0.as_str())).unwrap();
                Ability::Done
            }
            Disturbance::Remove(_) | Disturbance::Occupy(_) => Ability::Unable,
        }
    }

    fn inject(&mut self, fault: Fault<'_, Key>) -> Ability {
        match fault {
            Fault::Blind => fs::rename(self.0.path("module"), self.0.path("gone")).unwrap(),
            Fault::Unreadable(_) => return Ability::Unable,
            Fault::Refuse(key) => {
                fs::write(self.0.path("refuse").join(key.0.as_str()), "").unwrap();
            }
        }
        Ability::Done
    }

    fn mend(&mut self) {
        // Both fail where there is nothing to mend.
        let _ = fs::rename(self.0.path("gone"), self.0.path("module"));
        let _ = fs::remove_dir_all(self.0.path("refuse"));
        fs::create_dir(self.0.path("refuse")).unwrap();
    }
}

#[test]
fn the_laws_hold_over_modules() {
    let verdict = block_on(async { laws::check(&mut Tree(World::new())).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    let laws: Vec<_> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, [1, 4, 5], "{:?}", verdict.unchecked);
}
