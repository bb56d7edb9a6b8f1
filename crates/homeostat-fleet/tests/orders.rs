//! Orders: one signature, one machine, one command, one plan, until it is over.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod signing;

use homeostat_fleet::order::{Command, LARGEST, NAMESPACE, Order, Refusal, SignedOrder, judge};
use homeostat_fleet::records::Record as _;
use homeostat_fleet::{AllowedSigners, Digest, Time};
use proptest::prelude::*;
use signing::{PLAIN, Signer, TOKEN};

const NOW: Time = Time::of_millis(1_000_000);

fn command() -> Command {
    Command {
        machine: "r1 sha256:aa".to_owned(),
        owner: "default".to_owned(),
        actions: vec!["guest-stop".to_owned()],
        key: "guest 101".to_owned(),
        plan: Digest::of(b"stop"),
    }
}

fn order() -> Order {
    Order { id: "one".parse().unwrap(), command: command(), not_after: NOW }
}

fn signed_by(order: &[u8], signers: &[&Signer]) -> SignedOrder {
    let signatures = signers.iter().map(|signer| signer.sign(order, NAMESPACE)).collect();
    SignedOrder { order: String::from_utf8(order.to_vec()).unwrap(), signatures }
}

fn allowed(signers: &[&Signer]) -> AllowedSigners {
    let lines = signers
        .iter()
        .map(|signer| format!("a@b namespaces=\"homeostat-command\" {}\n", signer.public()));
    AllowedSigners::parse(&lines.collect::<String>()).unwrap()
}

#[test]
fn an_order_is_good_for_the_command_that_it_says_until_its_time_is_over() {
    let (ann, bob) = (Signer::new(1, PLAIN), Signer::new(2, TOKEN));
    let signers = allowed(&[&ann, &bob]);
    let signed = signed_by(&order().write(), &[&ann, &bob]);
    assert_eq!(judge(&signed, &command(), &signers, 2, NOW), Ok(order()));
    let late = Time::of_millis(NOW.as_millis() + 1);
    assert_eq!(
        judge(&signed, &command(), &signers, 2, late),
        Err(Refusal::Expired { not_after: NOW })
    );
}

#[test]
fn an_order_for_anything_else_is_refused() {
    let ann = Signer::new(1, PLAIN);
    let (signers, signed) = (allowed(&[&ann]), signed_by(&order().write(), &[&ann]));
    let other = |change: fn(&mut Command)| {
        let mut command = command();
        change(&mut command);
        judge(&signed, &command, &signers, 1, NOW).unwrap_err()
    };
    for (change, said) in [
        ((|it| it.machine = "r2 sha256:bb".to_owned()) as fn(&mut Command), "another machine"),
        (|it| it.owner = "lab".to_owned(), "another owner"),
        (|it| it.actions = vec!["guest-start".to_owned()], "another command"),
        (|it| it.actions.push("release".to_owned()), "another command"),
        (|it| it.key = "guest 102".to_owned(), "something else"),
    ] {
        let refused = other(change);
        assert!(refused.to_string().contains(said), "{refused}");
    }
    assert_eq!(other(|it| it.plan = Digest::of(b"more")), Refusal::OtherPlan);
}

#[test]
fn too_few_foreign_and_misused_signatures_are_refused() {
    let (ann, eve) = (Signer::new(1, PLAIN), Signer::new(9, PLAIN));
    let signers = allowed(&[&ann]);
    let judge = |signed: &SignedOrder, needed| judge(signed, &command(), &signers, needed, NOW);
    let text = order().write();
    let is_forged = |signed: SignedOrder, needed| {
        let refused = judge(&signed, needed).unwrap_err();
        assert!(matches!(refused, Refusal::Forged(_)), "{refused}");
    };
    is_forged(signed_by(&text, &[]), 1);
    is_forged(signed_by(&text, &[&eve]), 1);
    is_forged(signed_by(&text, &[&ann, &ann]), 2);
    // A signature for rollouts is none for commands.
    let signatures = vec![ann.sign(&text, "homeostat-rollout")];
    is_forged(SignedOrder { signatures, ..signed_by(&text, &[]) }, 1);
    let long = vec![b' '; LARGEST + 1];
    is_forged(signed_by(&long, &[&ann]), 1);
    let unreadable = judge(&signed_by(b"{\"format\":2}", &[&ann]), 1).unwrap_err();
    assert!(matches!(unreadable, Refusal::Unusable(_)), "{unreadable}");
}

proptest! {
    #[test]
    fn no_changed_byte_goes_unnoticed(at in 0_usize..1000, flip in 1_u8..128) {
        let ann = Signer::new(1, PLAIN);
        let signed = signed_by(&order().write(), &[&ann]);
        let mut bytes = signed.order.clone().into_bytes();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        if let Ok(text) = String::from_utf8(bytes) {
            let changed = SignedOrder { order: text, ..signed };
            let refused = judge(&changed, &command(), &allowed(&[&ann]), 1, NOW);
            prop_assert!(matches!(refused, Err(Refusal::Forged(_))), "{refused:?}");
        }
    }
}
