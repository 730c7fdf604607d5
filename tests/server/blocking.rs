//! Clients that wait for something another client does. Scripts cannot say that, as they await each reply.

use super::reply::Reply;
use super::script::Expected;
use super::target::{Client, Running};
use crate::support::{Lab, on_each_server};

/// What somebody waits with, what others do meanwhile, and what the wait ends with.
const WAITS: &[(&str, &[&str], &str)] = &[
    ("BLPOP q r 0", &["RPUSH q a b"], r#"["q" "a"]"#),
    ("BRPOP q r 0", &["RPUSH r a b"], r#"["r" "b"]"#),
    ("BLMOVE q r LEFT RIGHT 0", &["RPUSH q a"], r#""a""#),
    ("BRPOPLPUSH q r 0", &["RPUSH q a b"], r#""b""#),
    ("BZPOPMIN z 0", &["ZADD z 2 b 1 a"], r#"["z" "a" "1"]"#),
    ("BZPOPMAX z 0", &["ZADD z 2 b 1 a"], r#"["z" "b" "2"]"#),
    ("XREAD BLOCK 0 STREAMS s $", &["XADD s 1-1 f v"], r#"[["s" [["1-1" ["f" "v"]]]]]"#),
    // Another type is no end of the wait; the right one is.
    ("BLPOP q 0", &["SET q x", "DEL q", "RPUSH q a"], r#"["q" "a"]"#),
    // Transactions are seen whole: what comes and goes in one was never there.
    ("BLPOP q 0", &["MULTI", "RPUSH q a", "LPUSH q b", "EXEC"], r#"["q" "b"]"#),
    ("BLPOP q 0", &["MULTI", "RPUSH q a", "DEL q", "EXEC", "RPUSH q c"], r#"["q" "c"]"#),
    ("BLPOP q 0", &["RPUSH other a", "RENAME other q"], r#"["q" "a"]"#),
    ("BLPOP q 0", &["EVAL return(redis.call('rpush','q','a')) 0"], r#"["q" "a"]"#),
];

/// Waits for nothing, which end with their time.
const TIMEOUTS: &[&str] = &[
    "BLPOP none 0.01",
    "BRPOP none other 0.01",
    "BLMOVE none m LEFT RIGHT 0.01",
    "BRPOPLPUSH none m 0.01",
    "BZPOPMIN none 0.01",
    "BZPOPMAX none 0.01",
    "XREAD BLOCK 10 STREAMS none $",
    "XREADGROUP GROUP g c BLOCK 10 STREAMS s >",
];

fn waits_end_with_their_time(addr: &str) {
    let mut client = Client::connect(addr);
    client.run("FLUSHALL");
    client.run("XGROUP CREATE s g $ MKSTREAM");
    for command in TIMEOUTS {
        assert_eq!(client.run(command), Some(Reply::Nil), "{command}");
    }
}

fn wait_until_blocked(control: &mut Client, clients: u32) {
    let wanted = format!("blocked_clients:{clients}\r\n");
    for _ in 0..10_000 {
        let Some(Reply::Bulk(info)) = control.run("INFO clients") else {
            panic!("INFO is answered");
        };
        if String::from_utf8_lossy(&info).contains(&wanted) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{clients} clients should be waiting");
}

fn waits_end_as_they_should(addr: &str) {
    for (wait, others, expected) in WAITS {
        let (mut control, mut waiting) = (Client::connect(addr), Client::connect(addr));
        control.run("FLUSHALL");
        waiting.send(format!("{wait}\r\n").as_bytes());
        wait_until_blocked(&mut control, 1);
        for command in *others {
            let reply = control.run(command).expect("an answer");
            assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply}");
        }
        let reply = waiting.read().expect("the wait ends");
        let expected_reply = Expected::parse(expected).expect("a well-formed expectation");
        assert!(expected_reply.accepts(&reply), "{wait} with {others:?}: {reply}, not {expected}");
        wait_until_blocked(&mut control, 0);
    }
}

fn the_first_who_waits_is_served_first(addr: &str) {
    let mut control = Client::connect(addr);
    control.run("FLUSHALL");
    let mut waiting: Vec<Client> = (1..=3)
        .map(|number| {
            let mut client = Client::connect(addr);
            client.send(b"BLPOP q 0\r\n");
            wait_until_blocked(&mut control, number);
            client
        })
        .collect();
    control.run("RPUSH q 1 2");
    for (client, text) in waiting.iter_mut().zip(["1", "2"]) {
        let reply = client.read().expect("an answer").to_string();
        assert_eq!(reply, format!(r#"["q" "{text}"]"#));
    }
    // Gone while it waits: what comes is left for others.
    drop(waiting);
    wait_until_blocked(&mut control, 0);
    control.run("RPUSH q 3");
    assert_eq!(control.run("LLEN q"), Some(Reply::Int(1)));
}

fn a_wait_can_be_ended_by_another_client(addr: &str) {
    let (mut control, mut waiting) = (Client::connect(addr), Client::connect(addr));
    let Some(Reply::Int(id)) = waiting.run("CLIENT ID") else {
        panic!("CLIENT ID is answered");
    };
    for (how, expected) in [
        ("TIMEOUT", Reply::Nil),
        ("ERROR", Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into())),
    ] {
        waiting.send(b"BLPOP none 0\r\n");
        wait_until_blocked(&mut control, 1);
        assert_eq!(control.run(&format!("CLIENT UNBLOCK {id} {how}")), Some(Reply::Int(1)));
        assert_eq!(waiting.read(), Some(expected), "{how}");
    }
    assert_eq!(control.run(&format!("CLIENT UNBLOCK {id}")), Some(Reply::Int(0)), "it waits no more");
}

fn all(addr: &str) {
    waits_end_with_their_time(addr);
    waits_end_as_they_should(addr);
    the_first_who_waits_is_served_first(addr);
    a_wait_can_be_ended_by_another_client(addr);
}

#[test]
fn waits_end_as_they_should_on_the_bundled_server() {
    all(&Running::start().addr());
}

on_each_server! {
    fn waits_end_as_they_should_on_real_servers(kind) {
        all(&Lab::start(kind).address().to_string());
    }
}
