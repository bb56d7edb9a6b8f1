//! Transactions of nftables: whole or not at all, whatever the buffers.

use homeostat_netlink::uapi::{
    NFNL_SUBSYS_NFTABLES, NFPROTO_IPV4, NFT_MSG_DELTABLE, NFT_MSG_GETGEN, NFT_MSG_GETTABLE,
    NFT_MSG_NEWTABLE, NFTA_GEN_ID, NFTA_TABLE_NAME, NLM_F_CREATE, NLM_F_ECHO,
};
use homeostat_netlink::{
    Batch, Connection, Dumped, Errno, Error, Family, Limits, Options, Socket, Transacted,
};
use homeostat_testkit::namespace::Namespace;

const fn kind(message: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | message
}

fn table(batch: &mut Batch, message: u16, name: &str) {
    let mut message = batch.message(kind(message), NLM_F_CREATE);
    message.fixed(&[NFPROTO_IPV4, 0, 0, 0]);
    message.attr_str(NFTA_TABLE_NAME, name);
    message.finish().unwrap();
}

fn tables(count: usize) -> Batch {
    let mut batch = Batch::new();
    (0..count).for_each(|at| table(&mut batch, NFT_MSG_NEWTABLE, &format!("t{at}")));
    batch
}

fn count(connection: &mut Connection) -> usize {
    let mut request = Batch::new();
    let mut message = request.message(kind(NFT_MSG_GETTABLE), 0);
    message.fixed(&[0; 4]);
    message.finish().unwrap();
    let mut count = 0;
    let each = &mut |dumped: Dumped<'_>| match dumped {
        Dumped::Object(_) => count += 1,
        Dumped::Restart => count = 0,
    };
    connection.dump(&mut request, each).unwrap();
    count
}

fn generation(connection: &mut Connection) -> u32 {
    let mut request = Batch::new();
    let mut message = request.message(kind(NFT_MSG_GETGEN), NLM_F_ECHO);
    message.fixed(&[0; 4]);
    message.finish().unwrap();
    let mut generation = None;
    let take = &mut |message: homeostat_netlink::Message<'_>| {
        let (_, attrs) = message.split::<4>().unwrap();
        generation = attrs.first(NFTA_GEN_ID).unwrap().map(|attr| attr.be32().unwrap());
    };
    connection.ask(&mut request, take).unwrap();
    generation.unwrap()
}

#[test]
fn a_transaction_is_done_whole() {
    let _namespace = Namespace::enter().unwrap();
    let mut connection = Connection::open(Family::Netfilter).unwrap();
    assert_eq!(connection.transact(&Batch::new(), None).unwrap(), Transacted::Done);
    assert_eq!(connection.transact(&tables(3), None).unwrap(), Transacted::Done);
    assert_eq!(count(&mut connection), 3);
}

#[test]
fn one_refused_message_undoes_all_and_is_named() {
    let _namespace = Namespace::enter().unwrap();
    let mut connection = Connection::open(Family::Netfilter).unwrap();
    let mut batch = tables(3);
    table(&mut batch, NFT_MSG_DELTABLE, "missing");
    table(&mut batch, NFT_MSG_NEWTABLE, "more");
    let Transacted::Refused { place, refusal } = connection.transact(&batch, None).unwrap() else {
        panic!("a table that is not there was deleted")
    };
    assert_eq!((place, refusal.errno), (Some(3), Errno::NOENT));
    assert_eq!(count(&mut connection), 0);
}

#[test]
fn a_stale_generation_refuses_the_transaction_itself() {
    let _namespace = Namespace::enter().unwrap();
    let mut connection = Connection::open(Family::Netfilter).unwrap();
    let before = generation(&mut connection);
    assert_eq!(connection.transact(&tables(1), Some(before)).unwrap(), Transacted::Done);
    let stale = connection.transact(&tables(2), Some(before)).unwrap();
    let Transacted::Refused { place: None, refusal } = stale else { panic!("{stale:?}") };
    assert_eq!(refusal.errno.raw_os_error(), 85);
    assert_eq!(count(&mut connection), 1);
}

#[test]
fn a_large_transaction_needs_no_room_for_acks() {
    let _namespace = Namespace::enter().unwrap();
    let options = Options { receive_buffer: Some(4096), ..Options::default() };
    let socket = Socket::open(Family::Netfilter, &options).unwrap();
    let mut connection = Connection::new(socket, Limits::default());
    assert_eq!(connection.transact(&tables(5000), None).unwrap(), Transacted::Done);
}

#[test]
fn a_transaction_larger_than_the_send_buffer_makes_room_or_is_refused_whole() {
    let _namespace = Namespace::enter().unwrap();
    let socket = Socket::open(Family::Netfilter, &Options::default()).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 4096).unwrap();
    // What is sent without asking for room is refused.
    let refused = socket.send(tables(2000).bytes()).unwrap_err();
    assert!(matches!(&refused, Error::Send { .. }) && refused.errno() == Some(Errno::MSGSIZE));
    let mut connection = Connection::new(socket, Limits::default());
    assert_eq!(connection.transact(&tables(2000), None).unwrap(), Transacted::Done);
}

fn small() -> Connection {
    let options = Options { receive_buffer: Some(4096), ..Options::default() };
    Connection::new(Socket::open(Family::Netfilter, &options).unwrap(), Limits::default())
}

#[test]
fn errors_that_overflow_a_small_buffer_never_look_like_success() {
    let _namespace = Namespace::enter().unwrap();
    let mut batch = tables(1);
    (0..5000).for_each(|at| table(&mut batch, NFT_MSG_DELTABLE, &format!("missing{at}")));
    let verdict = small().transact(&batch, None).unwrap();
    assert_ne!(verdict, Transacted::Done);
    assert_eq!(count(&mut Connection::open(Family::Netfilter).unwrap()), 0);
}

fn echoed(count: usize) -> Batch {
    let mut batch = Batch::new();
    for at in 0..count {
        let mut message = batch.message(kind(NFT_MSG_NEWTABLE), NLM_F_CREATE | NLM_F_ECHO);
        message.fixed(&[NFPROTO_IPV4, 0, 0, 0]);
        message.attr(NFTA_TABLE_NAME, format!("t{at}\0").as_bytes());
        message.finish().unwrap();
    }
    batch
}

#[test]
fn what_was_created_is_echoed_with_the_index_of_its_message() {
    let _namespace = Namespace::enter().unwrap();
    let mut echoes = Vec::new();
    let mut connection = Connection::open(Family::Netfilter).unwrap();
    let each = &mut |place: Option<usize>, message: homeostat_netlink::Message<'_>| {
        if message.kind == kind(NFT_MSG_NEWTABLE) {
            let (_, attrs) = message.split::<4>().unwrap();
            let name = attrs.first(NFTA_TABLE_NAME).unwrap().unwrap().str().unwrap().to_owned();
            echoes.push((place, name));
        }
    };
    assert_eq!(connection.transact_with_echo(&echoed(3), None, each).unwrap(), Transacted::Done);
    let expected = [0, 1, 2].map(|at| (Some(at), format!("t{at}")));
    assert_eq!(echoes, expected);
}

#[test]
fn words_that_overflow_a_small_buffer_never_look_like_a_refusal() {
    let _namespace = Namespace::enter().unwrap();
    let verdict = small().transact_with_echo(&echoed(5000), None, &mut |_, _| {}).unwrap();
    assert!(matches!(verdict, Transacted::Done | Transacted::Unknown), "{verdict:?}");
    assert_eq!(count(&mut Connection::open(Family::Netfilter).unwrap()), 5000);
}
