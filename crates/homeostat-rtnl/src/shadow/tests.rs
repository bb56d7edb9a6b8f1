//! What is known of a key after dumps and events.

use super::*;
use crate::desired::DesiredState;
use crate::key::Key;

const OURS: Protocol = Protocol::HOMEOSTAT;
const BIRD: Protocol = Protocol(12);

fn key(dst: &str) -> RouteKey {
    match format!("route {dst}").parse() {
        Ok(Key::Route(key)) => key,
        other => panic!("{other:?}"),
    }
}

fn via(host: u8) -> Route {
    Route::via([10, 0, 0, host].into())
}

/// A shadow of a desired state with two routes via 10.0.0.2.
fn shadow() -> Shadow {
    let mut builder = DesiredState::builder();
    for dst in ["10.5.0.0/16", "10.6.0.0/16"] {
        builder.route(key(dst), via(2)).unwrap();
    }
    Shadow::new(Arc::new(builder.build().unwrap()), OURS)
}

/// What stands on a key: gateways and protocols, `?` for an uncertain one.
fn routes_on(shadow: &Shadow, dst: &str) -> String {
    let Some(there) = shadow.routes_on(&key(dst)) else { return "?".to_owned() };
    let text =
        |marked: &MarkedRoute| format!("{}:{}", marked.route.via.unwrap(), marked.protocol.0);
    there.iter().map(text).collect::<Vec<_>>().join(" ")
}

type Event = (RouteEvent, u8, Protocol);

/// What is known of a declared key on which these routes stood, after these events.
fn after(noted: &[(u8, Protocol)], events: &[Event]) -> (String, bool) {
    known("10.5.0.0/16", noted, events)
}

fn known(dst: &str, noted: &[(u8, Protocol)], events: &[Event]) -> (String, bool) {
    let mut shadow = shadow();
    for (host, protocol) in noted {
        shadow.add_dumped(&key(dst), &via(*host), *protocol);
    }
    for (event, host, protocol) in events {
        let (route, protocol) = (via(*host), *protocol);
        shadow.apply_event(&key(dst), MarkedRoute { route, protocol }, *event);
    }
    (routes_on(&shadow, dst), shadow.is_settled(&key(dst)))
}

#[test]
fn a_dump_and_the_events_after_it_show_what_a_key_holds() {
    use RouteEvent::{Added, Removed, Replaced};
    type PackedRoute<'a> = (&'a [(u8, Protocol)], &'a [Event], &'a str, bool);
    let rows: [PackedRoute<'_>; 14] = [
        (&[], &[], "", false),
        (&[(2, OURS)], &[], "10.0.0.2:76", true),
        (&[(3, OURS)], &[], "10.0.0.3:76", false),
        (&[(2, BIRD)], &[], "10.0.0.2:12", false),
        (&[(2, OURS), (3, BIRD)], &[], "10.0.0.2:76 10.0.0.3:12", false),
        (&[], &[(Added, 2, OURS)], "10.0.0.2:76", true),
        (&[(2, OURS)], &[(Removed, 2, OURS)], "", false),
        (&[(2, OURS)], &[(Removed, 2, OURS), (Added, 2, OURS)], "10.0.0.2:76", true),
        // An event that the dump showed already says nothing new.
        (&[(2, OURS)], &[(Added, 2, OURS)], "10.0.0.2:76", true),
        (&[], &[(Removed, 2, OURS)], "", false),
        (&[(2, OURS)], &[(Replaced, 2, BIRD)], "10.0.0.2:12", false),
        (&[(2, BIRD)], &[(Replaced, 2, OURS)], "10.0.0.2:76", true),
        // Which of two was replaced, and what else is there, only a dump can say.
        (&[(2, OURS), (3, BIRD)], &[(Replaced, 2, OURS)], "?", false),
        (&[(2, OURS)], &[(Added, 3, OURS)], "?", false),
    ];
    for (noted, events, there, is_settled) in rows {
        let expected = (there.to_owned(), is_settled);
        assert_eq!(after(noted, events), expected, "{noted:?} {events:?}");
    }
}

#[test]
fn on_an_undeclared_key_only_ours_counts() {
    let dst = "10.9.0.0/16";
    assert_eq!(known(dst, &[(2, BIRD)], &[]), (String::new(), true));
    assert_eq!(known(dst, &[(2, OURS)], &[]), ("10.0.0.2:76".to_owned(), false));
    let gone = [(RouteEvent::Removed, 2, OURS)];
    assert_eq!(known(dst, &[(2, OURS)], &gone), (String::new(), true));
    let stolen = [(RouteEvent::Replaced, 2, BIRD)];
    assert_eq!(known(dst, &[(2, OURS)], &stolen), (String::new(), true));
}

#[test]
fn what_may_have_gone_in_silence_is_uncertain_until_it_is_dumped() {
    let mut shadow = shadow();
    shadow.add_dumped(&key("10.5.0.0/16"), &via(2), OURS);
    shadow.add_dumped(&key("10.9.0.0/16"), &via(7), OURS);
    assert!(shadow.mark_uncertain([], |route| route.via == Some([10, 0, 0, 7].into())));
    assert_eq!(routes_on(&shadow, "10.5.0.0/16"), "10.0.0.2:76");
    assert_eq!(routes_on(&shadow, "10.9.0.0/16"), "?");
    assert!(shadow.mark_uncertain([0], |_| true));
    for dst in ["10.5.0.0/16", "10.6.0.0/16", "10.9.0.0/16"] {
        assert_eq!(routes_on(&shadow, dst), "?");
        assert!(!shadow.is_settled(&key(dst)));
        shadow.forget(&key(dst));
    }
    shadow.add_dumped(&key("10.6.0.0/16"), &via(2), OURS);
    assert_eq!(routes_on(&shadow, "10.5.0.0/16"), "");
    assert_eq!(routes_on(&shadow, "10.6.0.0/16"), "10.0.0.2:76");
    assert_eq!(routes_on(&shadow, "10.9.0.0/16"), "");
}

#[test]
fn a_shadow_with_too_many_uncertain_routes_is_given_up() {
    let mut builder = DesiredState::builder();
    for number in 0..=u32::try_from(MOST_UNCERTAIN).unwrap() {
        let dst = std::net::Ipv4Addr::from_bits(20 << 24 | number << 8);
        builder.route(RouteKey::new(crate::net::Net::masked(dst.into(), 24)), via(2)).unwrap();
    }
    let mut shadow = Shadow::new(Arc::new(builder.build().unwrap()), OURS);
    assert!(shadow.mark_uncertain([], |_| false));
    assert!(!shadow.mark_uncertain([0], |_| true));
}
