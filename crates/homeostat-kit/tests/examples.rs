//! The examples of the front page run, and are short.

const MOST_LINES: usize = 25;

mod reconcile {
    include!("../examples/lamps/api.rs");
    include!("../examples/lamps/reconcile.rs");

    #[test]
    fn one_call_is_shown_in_25_lines() {
        main().unwrap();
        let lines = include_str!("../examples/lamps/reconcile.rs").lines().count();
        assert!(lines <= super::MOST_LINES, "{lines}");
    }
}

mod keep {
    include!("../examples/lamps/api.rs");
    include!("../examples/lamps/keep.rs");

    #[test]
    fn a_loop_is_shown_in_25_lines() {
        main().unwrap();
        let lines = include_str!("../examples/lamps/keep.rs").lines().count();
        assert!(lines <= super::MOST_LINES, "{lines}");
    }
}
