//! Faults strike where they are told to.

use std::time::{Duration, Instant};

use bigkeys::server::{Fault, FaultAction};

use super::reply::Reply;
use super::target::Running;

#[allow(clippy::unnecessary_wraps, reason = "it is compared with what a client reads")]
fn error(text: &str) -> Option<Reply> {
    Some(Reply::Error(text.to_owned()))
}

#[test]
fn states_are_answered_in_the_words_of_redis() {
    let server = Running::start();
    let mut client = server.client();
    for (state, text) in [
        ("LOADING", "LOADING Redis is loading the dataset in memory"),
        ("READONLY", "READONLY You can't write against a read only replica."),
        ("MOVED", "MOVED 3999 127.0.0.1:6381"),
        ("UNKNOWN", "ERR unknown command 'unlink', with args beginning with: "),
    ] {
        let action = FaultAction::error(state, "unlink").expect("a known state");
        server.handle.faults().add(Fault::new("unlink", action).times(1));
        assert_eq!(client.run("UNLINK a"), error(text));
        assert_eq!(client.run("UNLINK a"), Some(Reply::Int(0)));
    }
}

#[test]
fn a_connection_is_cut_in_the_middle_of_a_reply() {
    let server = Running::start();
    let mut client = server.client();
    client.run("SET a 0123456789");
    server.handle.faults().add(Fault::new("get", FaultAction::DropAfter(7)).times(1));
    assert_eq!(client.run("GET a"), None);
    assert_eq!(server.client().run("GET a"), Some(Reply::Bulk(b"0123456789".to_vec())));
}

#[test]
fn a_delay_is_felt_by_everyone() {
    let server = Running::start();
    let (mut a, mut b) = (server.client(), server.client());
    let delay = Duration::from_millis(80);
    server.handle.faults().add(Fault::new("get", FaultAction::Delay(delay)).times(1));
    let start = Instant::now();
    a.send(b"GET x\r\n");
    std::thread::sleep(Duration::from_millis(10));
    b.run("PING");
    assert!(start.elapsed() >= delay);
    assert_eq!(a.read(), Some(Reply::Nil));
}

#[test]
fn pages_can_be_empty_doubled_or_have_a_huge_cursor() {
    let server = Running::start();
    let mut client = server.client();
    client.run("SET a 1");
    let page = |reply: Option<Reply>| match reply {
        Some(Reply::Array(parts)) => match &parts[..] {
            [Reply::Bulk(cursor), Reply::Array(keys)] => {
                (String::from_utf8_lossy(cursor).into_owned(), keys.len())
            }
            other => panic!("not a page: {other:?}"),
        },
        other => panic!("not a page: {other:?}"),
    };
    client.run("DEBUG FAULT ADD scan cursor 18446744073709551615 TIMES 1");
    assert_eq!(page(client.run("SCAN 0")), ("18446744073709551615".to_owned(), 1));
    client.run("DEBUG FAULT ADD scan empty-page TIMES 1");
    client.run("DEBUG FAULT ADD scan cursor 5 TIMES 1");
    assert_eq!(page(client.run("SCAN 0")), ("5".to_owned(), 0));
    client.run("DEBUG FAULT ADD scan duplicate TIMES 1");
    assert_eq!(page(client.run("SCAN 0")), ("0".to_owned(), 2));
    assert_eq!(page(client.run("SCAN 0")), ("0".to_owned(), 1));
}

#[test]
fn a_key_goes_or_changes_its_type_between_two_commands() {
    let server = Running::start();
    let mut client = server.client();
    client.run("SET a 1");
    client.run("DEBUG FAULT ADD strlen vanish AFTER 1 TIMES 1 KEY a");
    assert_eq!(client.run("STRLEN a"), Some(Reply::Int(1)));
    assert_eq!(client.run("STRLEN a"), Some(Reply::Int(0)));
    client.run("DEBUG FAULT ADD type retype TIMES 1");
    assert_eq!(client.run("TYPE a"), Some(Reply::Simple("string".to_owned())));
}
