//! Many messages per send: which answer belongs to which message.

use std::thread;
use std::time::Duration;

use homeostat_netlink::uapi::{
    NLM_F_ACK, NLM_F_ECHO, RTA_DST, RTA_GATEWAY, RTM_GETLINK, RTM_NEWLINK, RTM_NEWROUTE,
};
use homeostat_netlink::{
    Answer, Batch, Connection, Errno, Error, Family, Filter, Instruction, Limits, Options, Refusal,
};

use crate::requests::{
    OURS, ROOM, add_address, add_device_route, add_route, connect, del_route, routes_seen, wired,
};

const GATEWAY: [u8; 4] = [10, 0, 0, 9];
/// No address of the namespace is in its subnet.
const UNREACHABLE: [u8; 4] = [172, 16, 0, 1];

/// A socket as a process without privileges over the host gets it.
fn unforced() -> Options {
    Options { receive_buffer: None, ..Options::default() }
}

/// Runs the batch and collects one final answer per message, in order.
fn run(connection: &mut Connection, batch: &mut Batch) -> Vec<Result<(), Option<Refusal>>> {
    let mut found = Vec::new();
    let outcome = connection.run(batch, &mut |index, answer| {
        let answer = match answer {
            Answer::Reply(_) => return,
            Answer::Done => Ok(()),
            Answer::Refused(refusal) => Err(Some(refusal)),
            Answer::Unknown => Err(None),
        };
        assert_eq!(index, found.len(), "answers come once and in order");
        found.push(answer);
    });
    outcome.unwrap();
    found
}

/// Every seventh message of these is bad.
fn mixed(count: u32) -> Batch {
    let mut batch = Batch::new();
    for number in 0..count {
        let gateway = if number % 7 == 3 { UNREACHABLE } else { GATEWAY };
        add_route(&mut batch, number, gateway, 0);
    }
    batch
}

fn exactly_the_bad_ones_are_refused(options: &Options) {
    let namespace = wired();
    let mut connection = connect(options, Limits::default());
    let mut batch = mixed(10_000);
    let answers = run(&mut connection, &mut batch);
    assert_eq!(answers.len(), 10_000);
    for (number, answer) in answers.iter().enumerate() {
        let is_bad = number % 7 == 3;
        assert_eq!(answer.is_err(), is_bad, "{number}: {answer:?}");
        if let Err(refusal) = answer {
            let refusal = refusal.as_ref().unwrap();
            assert_eq!(refusal.errno, Errno::NETUNREACH);
            assert_eq!(refusal.text.as_deref(), Some("Nexthop has invalid gateway"));
        }
    }
    let good = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(routes_seen(&namespace), good);
}

#[test]
fn of_ten_thousand_mixed_messages_exactly_the_bad_are_refused_with_the_kernels_words() {
    exactly_the_bad_ones_are_refused(&Options::default());
}

#[test]
fn a_connection_without_privileges_never_loses_an_answer() {
    exactly_the_bad_ones_are_refused(&unforced());
}

#[test]
fn a_default_buffer_holds_the_refusals_of_a_batch_in_which_all_is_bad() {
    let _namespace = wired();
    let mut connection = connect(&unforced(), Limits::default());
    let mut batch = Batch::new();
    (0..1000).for_each(|number| add_route(&mut batch, number, UNREACHABLE, 0));
    let answers = run(&mut connection, &mut batch);
    let refused = answers.iter().filter(|answer| matches!(answer, Err(Some(_)))).count();
    assert_eq!(refused, 1000, "the others are unknown");
}

#[test]
fn refusals_of_large_messages_take_no_more_room_than_those_of_small_ones() {
    let _namespace = wired();
    let mut connection = connect(&unforced(), Limits::default());
    let mut batch = Batch::new();
    for number in 0..512 {
        let mut message = batch.message(RTM_NEWROUTE, 0);
        message.fixed(&crate::requests::rtmsg(24, 254, OURS));
        message.attr(RTA_DST, &crate::requests::prefix(number)).attr(RTA_GATEWAY, &UNREACHABLE);
        // The kernel passes over attributes that it does not know.
        message.attr(8_000, &[0; 400]);
        message.finish().unwrap();
    }
    let answers = run(&mut connection, &mut batch);
    assert!(answers.iter().all(|answer| matches!(answer, Err(Some(_)))));
}

#[test]
fn a_bad_index_is_refused_by_name_and_the_rest_goes_on() {
    let namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    for number in 0..3 {
        add_address(&mut batch, number, if number == 1 { 4_000 } else { 3 });
    }
    let answers = run(&mut connection, &mut batch);
    let errnos: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().err().and_then(|refusal| refusal.as_ref().map(|r| r.errno)))
        .collect();
    assert_eq!(errnos, [None, Some(Errno::NODEV), None]);
    let listed = namespace.ip_json(&["addr", "show", "dev", "v0"]).unwrap();
    let found = listed[0]["addr_info"].as_array().unwrap().iter();
    let ours = found.filter(|addr| addr["local"].as_str().unwrap().starts_with("10.1."));
    assert_eq!(ours.count(), 2, "{listed}");
}

#[test]
fn the_offset_points_at_the_attribute_that_the_kernel_complains_about() {
    let _namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    let mut message = batch.message(RTM_NEWROUTE, 0);
    // An IPv4 gateway has four bytes; this one has three.
    message.fixed(&crate::requests::rtmsg(24, 254, OURS)).attr(RTA_DST, &[20, 0, 0, 0]);
    message.attr(RTA_GATEWAY, &[10, 0, 0]);
    message.finish().unwrap();
    let error = connection.ask(&mut batch, &mut |_| {}).unwrap_err();
    let Error::Refused(refusal) = error else { panic!("{error}") };
    // The header of the message, `struct rtmsg`, and RTA_DST come before it.
    assert_eq!(refusal.offset, Some(16 + 12 + 8), "{refusal}");
    assert!(refusal.text.is_some(), "{refusal}");
}

#[test]
fn k_a_default_buffer_holds_256_answers_of_one_send_and_loses_later_ones_although_they_were_done() {
    let namespace = wired();
    // By hand, since the engine would never send so many at once.
    let socket = homeostat_netlink::Socket::open(Family::Route, &unforced()).unwrap();
    assert_eq!(socket.receive_buffer().bytes, 212_992, "the default of this test's kernel");
    let mut batch = Batch::new();
    for number in 0..300 {
        add_route(&mut batch, number, GATEWAY, 0);
    }
    // Numbers and acks by hand: every message asks for one.
    let mut bytes = batch.bytes().to_vec();
    for (number, message) in bytes.chunks_exact_mut(44).enumerate() {
        message[6] |= u8::try_from(NLM_F_ACK).unwrap();
        message[8..12].copy_from_slice(&u32::try_from(number).unwrap().to_ne_bytes());
    }
    socket.send(&bytes).unwrap();
    let mut room = [0; 4096];
    let mut next = || rustix::net::recv(&socket, &mut room, rustix::net::RecvFlags::empty());
    assert_eq!(next().unwrap_err(), Errno::NOBUFS);
    let answers = std::iter::from_fn(|| next().ok()).count();
    assert!(ROOM.contains(&answers), "{answers}");
    assert_eq!(routes_seen(&namespace), 300, "the operation was done");
}

#[test]
fn an_overflow_makes_answers_unknown_never_done() {
    let namespace = wired();
    // A forced buffer is trusted to be large; this one is tiny but says that it was forced.
    let options = Options { receive_buffer: Some(2_000), ..Options::default() };
    let mut connection = connect(&options, Limits::default());
    assert!(connection.socket().receive_buffer().is_forced);
    // Replies are far larger than what is reckoned for a plain answer.
    let mut batch = Batch::new();
    let mut unknown = 0;
    for number in 0..64 {
        let mut message = batch.message(RTM_GETLINK, 0);
        message.fixed(&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        message.finish().unwrap();
        if number % 2 == 0 {
            add_route(&mut batch, number, GATEWAY, 0);
        }
    }
    for answer in run(&mut connection, &mut batch) {
        match answer {
            Ok(()) => {}
            Err(None) => unknown += 1,
            Err(Some(refusal)) => panic!("{refusal}"),
        }
    }
    assert!(unknown > 0, "the buffer was too small for all replies");
    assert_eq!(routes_seen(&namespace), 32, "what is unknown may well be done");
    // The connection goes on as if nothing had been.
    let mut last = Batch::new();
    del_route(&mut last, 0);
    connection.ask(&mut last, &mut |_| {}).unwrap();
}

#[test]
fn an_ack_is_asked_of_the_last_only_and_errors_come_without_asking() {
    let _namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = mixed(10);
    assert_eq!(run(&mut connection, &mut batch).iter().filter(|answer| answer.is_err()).count(), 1);
    let acks = homeostat_netlink::Messages::new(batch.bytes())
        .map(|message| message.unwrap().flags & NLM_F_ACK != 0);
    assert_eq!(acks.collect::<Vec<_>>(), [vec![false; 9], vec![true]].concat());
}

#[test]
fn k_echo_returns_the_installed_object_to_the_requester() {
    let namespace = wired();
    for options in [Options::default(), unforced()] {
        let mut connection = connect(&options, Limits::default());
        let mut batch = Batch::new();
        for number in 0..1000 {
            let gateway = if number == 500 { UNREACHABLE } else { GATEWAY };
            add_route(&mut batch, number, gateway, NLM_F_ECHO);
        }
        let mut echoes = vec![0; 1000];
        let mut answered = [0, 0];
        let run = connection.run(&mut batch, &mut |index, answer| match answer {
            Answer::Reply(message) => {
                assert_eq!(message.kind, RTM_NEWROUTE);
                let (header, attrs) = message.split::<12>().unwrap();
                assert_eq!(header[5], OURS);
                let to = attrs.first(RTA_DST).unwrap().unwrap();
                let number = u32::try_from(index).unwrap();
                assert_eq!(to.array(), Ok(crate::requests::prefix(number)));
                echoes[index] += 1;
            }
            Answer::Done => answered[0] += 1,
            Answer::Refused(refusal) => {
                assert_eq!((index, refusal.errno), (500, Errno::NETUNREACH));
                answered[1] += 1;
            }
            Answer::Unknown => panic!("{index}"),
        });
        run.unwrap();
        assert_eq!(answered, [999, 1]);
        assert!(echoes.iter().enumerate().all(|(index, seen)| *seen == i32::from(index != 500)));
        let mut cleanup = Batch::new();
        (0..1000)
            .filter(|number| *number != 500)
            .for_each(|number| del_route(&mut cleanup, number));
        connection.ask(&mut cleanup, &mut |_| {}).unwrap();
        assert_eq!(routes_seen(&namespace), 0);
    }
}

#[test]
fn replies_as_large_as_links_fit_even_a_default_buffer() {
    let namespace = wired();
    let mut connection = connect(&unforced(), Limits::default());
    let mut batch = Batch::new();
    for number in 0..70 {
        let name = format!("b{number}");
        crate::requests::add_link(&mut batch, &name, b"bridge");
    }
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    let mut gets = Batch::new();
    for index in 1..=70_u32 {
        let mut message = gets.message(RTM_GETLINK, NLM_F_ECHO);
        message.fixed(&[0; 4]).fixed(&index.to_ne_bytes()).fixed(&[0; 8]);
        message.finish().unwrap();
    }
    let mut seen = 0;
    let replies = connection.ask(&mut gets, &mut |message| {
        assert_eq!(message.kind, RTM_NEWLINK);
        seen += 1;
    });
    replies.unwrap();
    assert_eq!(seen, 70);
    let listed = namespace.ip_json(&["link"]).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 73);
}

#[test]
fn a_batch_that_was_run_can_be_run_again() {
    let _namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    let mut batch = Batch::new();
    add_device_route(&mut batch, 0, 3, 100);
    assert_eq!(run(&mut connection, &mut batch), [Ok(())]);
    let again = run(&mut connection, &mut batch);
    assert_eq!(again[0].as_ref().unwrap_err().as_ref().unwrap().errno, Errno::EXIST);
}

#[test]
fn a_request_without_an_answer_times_out_and_is_unknown() {
    let namespace = wired();
    // The filter keeps even the kernel's answers out.
    let deaf =
        Options { filter: Some(Filter::new([Instruction::discard()])), ..Options::default() };
    let timeout = Duration::from_millis(20);
    let mut connection = connect(&deaf, Limits { timeout, ..Limits::default() });
    let mut batch = Batch::new();
    add_route(&mut batch, 0, GATEWAY, 0);
    let mut unknown = 0;
    let error = connection
        .run(&mut batch, &mut |_, answer| unknown += i32::from(matches!(answer, Answer::Unknown)))
        .unwrap_err();
    assert!(matches!(error, Error::Timeout(waited) if waited == timeout), "{error}");
    assert_eq!((unknown, routes_seen(&namespace)), (1, 1));
    // A dump without an answer makes the connection unusable, and further requests fail.
    let mut request = crate::requests::all_links();
    let error = connection.dump(&mut request, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "{error}");
    assert!(matches!(connection.ask(&mut batch, &mut |_| {}), Err(Error::Dead)));
}

#[test]
fn a_connection_is_used_from_any_thread() {
    let namespace = wired();
    let mut connection = Connection::open(Family::Route).unwrap();
    thread::spawn(move || {
        // This thread is in the host's namespace; the socket is not.
        let mut batch = Batch::new();
        add_route(&mut batch, 0, GATEWAY, 0);
        connection.ask(&mut batch, &mut |_| {}).unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(routes_seen(&namespace), 1);
}
