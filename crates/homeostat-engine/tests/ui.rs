//! The wrong order does not compile, and who only plans cannot write.

#[test]
fn a_planner_cannot_write_and_the_wrong_order_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
