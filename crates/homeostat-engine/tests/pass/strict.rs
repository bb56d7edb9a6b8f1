//! Strict mode: the first step that fails is the last.

use homeostat_engine::Strictness;

use crate::Toys;
use crate::common::world::Fault;

#[test]
fn strict_mode_leaves_the_rest_pending() {
    let mut rig = Toys::checkpoint("x=1@unmarked");
    rig.config.strictness = Strictness::Strict;
    rig.world.breaks("b", Fault::Refuse);
    let on = "pending c: `b`, which failed in strict mode";
    assert_eq!(rig.pass("a=1 b=1 c=1"), ["create a", "failed b: refused", on, "not converged"]);
    assert_eq!(rig.records(), "a=1,absent,done");
    assert_eq!(rig.world.text(), "a=1@unmarked x=1@unmarked");
}

#[test]
fn strict_mode_stops_at_a_step_without_an_answer() {
    let mut rig = Toys::checkpoint("");
    rig.config.strictness = Strictness::Strict;
    rig.world.breaks("a", Fault::Ignore);
    rig.pass("a=1 b=1");
    assert_eq!(rig.world.text(), "");
}
