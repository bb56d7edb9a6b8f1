//! Who only plans cannot run a pass.

use homeostat_engine::Planner;

fn write_as_a_planner(planner: &mut dyn Planner) {
    let _ = planner.pass();
}

fn main() {}
