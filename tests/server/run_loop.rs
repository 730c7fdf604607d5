//! The loop and its clients: what only shows over a socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bigkeys::server::Config;

use super::reply::Reply;
use super::target::{Running, encode};

#[allow(clippy::unnecessary_wraps, reason = "it is compared with what a client reads")]
fn simple(text: &str) -> Option<Reply> {
    Some(Reply::Simple(text.to_owned()))
}

#[test]
fn a_thousand_pipelined_requests_get_a_thousand_replies_in_order() {
    let server = Running::start();
    let mut client = server.client();
    let requests: Vec<u8> = (0..1000).flat_map(|i| encode(&["ECHO", &i.to_string()])).collect();
    client.send(&requests);
    for i in 0..1000 {
        assert_eq!(client.read(), Some(Reply::Bulk(i.to_string().into_bytes())));
    }
}

#[test]
fn a_request_in_single_bytes_and_an_inline_one() {
    let server = Running::start();
    let mut client = server.client();
    for byte in encode(&["SET", "a", "b\r\nc"]) {
        client.send(&[byte]);
    }
    assert_eq!(client.read(), simple("OK"));
    client.send(b"GET a\r\n\r\nPING\n");
    assert_eq!(client.read(), Some(Reply::Bulk(b"b\r\nc".to_vec())));
    assert_eq!(client.read(), simple("PONG"));
}

#[test]
fn a_protocol_error_is_answered_and_ends_the_connection() {
    let server = Running::start();
    let mut client = server.client();
    client.send(b"PING\r\n*1\r\n:1\r\nPING\r\n");
    assert_eq!(client.read(), simple("PONG"));
    assert_eq!(client.read(), Some(Reply::Error("ERR Protocol error: expected '$', got ':'".to_owned())));
    assert_eq!(client.read(), None);
    assert_eq!(server.client().run("PING"), simple("PONG"));
}

#[test]
fn a_big_value_goes_in_and_out() {
    let server = Running::start();
    let mut client = server.client();
    let value = vec![b'x'; 20 * 1024 * 1024];
    assert_eq!(client.call(&[b"SET".as_slice(), b"big", &value]), simple("OK"));
    assert_eq!(client.run("STRLEN big"), Some(Reply::Int(20 * 1024 * 1024)));
    assert_eq!(client.run("GET big"), Some(Reply::Bulk(value)));
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let config = Config::default().with("client-output-buffer-limit", "normal 1mb 0 0");
    let server = Running::with(config);
    let mut slow = server.client();
    assert_eq!(slow.call(&[b"SET".as_slice(), b"big", &vec![b'x'; 100_000]]), simple("OK"));
    let requests: Vec<u8> = (0..1000).flat_map(|_| encode(&["GET", "big"])).collect();
    slow.send(&requests);
    let mut other = server.client();
    assert_eq!(other.run("PING"), simple("PONG"));
    while slow.read().is_some() {}
    let info = other.run("INFO stats");
    let Some(Reply::Bulk(info)) = info else { panic!("{info:?}") };
    assert!(String::from_utf8_lossy(&info).contains("client_output_buffer_limit_disconnections:1"));
}

#[test]
fn maxclients_turns_the_next_one_away() {
    let server = Running::with(Config::default().with("maxclients", "2"));
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!((a.run("PING"), b.run("PING")), (simple("PONG"), simple("PONG")));
    let mut c = server.client();
    assert_eq!(c.read(), Some(Reply::Error("ERR max number of clients reached".to_owned())));
    assert_eq!(c.read(), None);
}

#[test]
fn quit_and_kill_end_connections_and_their_own_only() {
    let server = Running::start();
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(b.run("CLIENT SETNAME victim"), simple("OK"));
    let Some(Reply::Int(id)) = b.run("CLIENT ID") else { panic!("no id") };
    assert_eq!(a.run(&format!("CLIENT KILL ID {id}")), Some(Reply::Int(1)));
    assert_eq!(b.run("PING"), None);
    assert_eq!(a.run("QUIT"), simple("OK"));
    assert_eq!(a.read(), None);
}

#[test]
fn a_pause_holds_commands_back_until_it_is_over() {
    let server = Running::start();
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(a.run("CLIENT PAUSE 10000 WRITE"), simple("OK"));
    assert_eq!(b.run("GET x"), Some(Reply::Nil));
    b.send(&encode(&["SET", "x", "1"]));
    assert_eq!(a.run("EXISTS x"), Some(Reply::Int(0)));
    assert_eq!(a.run("CLIENT UNPAUSE"), simple("OK"));
    assert_eq!(b.read(), simple("OK"));
}

#[test]
fn waiting_for_a_replica_ends_with_the_timeout() {
    let server = Running::start();
    let mut client = server.client();
    client.send(&[encode(&["WAIT", "1", "30"]), encode(&["PING"])].concat());
    assert_eq!(client.read(), Some(Reply::Int(0)));
    assert_eq!(client.read(), simple("PONG"));
}

#[test]
fn a_unix_socket_works_as_well_and_is_gone_afterwards() {
    let dir = std::env::temp_dir().join(format!("bigkeys-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    let path = dir.join("server.sock");
    let server = Running::with(Config { unix_socket: Some(path.clone()), ..Config::default() });
    let mut stream = UnixStream::connect(&path).expect("the server listens");
    stream.write_all(b"PING\r\n").expect("an open socket");
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply, b"+PONG\r\n");
    drop(server);
    assert!(!path.exists());
    std::fs::remove_dir(&dir).expect("an empty folder");
}

#[test]
fn shutdown_ends_the_server() {
    let server = Running::start();
    let mut client = server.client();
    assert_eq!(client.run("SHUTDOWN NOSAVE"), None);
}

#[test]
fn idle_clients_are_closed_after_the_timeout() {
    let server = Running::with(Config::default().with("timeout", "1"));
    let mut client = server.client();
    assert_eq!(client.run("PING"), simple("PONG"));
    assert_eq!(client.read(), None);
}

#[test]
fn keys_expire_by_themselves() {
    let server = Running::start();
    let mut client = server.client();
    for i in 0..100 {
        client.run(&format!("SET k{i} v PX 20"));
    }
    for _ in 0..200 {
        if client.run("DBSIZE") == Some(Reply::Int(0)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("keys are still there");
}

/// A client inside a script without an end, and another one after BUSY has begun.
fn busy(script: &str) -> (Running, super::target::Client, super::target::Client) {
    let server = Running::with(Config::default().with("busy-reply-threshold", "50"));
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(b.run("PING"), simple("PONG"));
    a.send(&encode(&["EVAL", script, "0"]));
    // Until the script has begun the others are served as ever.
    while b.run("PING") == simple("PONG") {
        std::thread::sleep(Duration::from_millis(5));
    }
    (server, a, b)
}

fn error_starts(reply: Option<Reply>, start: &str) -> bool {
    matches!(reply, Some(Reply::Error(text)) if text.starts_with(start))
}

#[test]
fn a_script_without_end_can_be_killed_and_nothing_else_runs_meanwhile() {
    let endless = "while true do pcall(function() while true do end end) end";
    let (_server, mut a, mut b) = busy(endless);
    assert!(error_starts(b.run("GET x"), "BUSY "));
    assert_eq!(b.run("SCRIPT KILL"), simple("OK"));
    assert!(error_starts(a.read(), "ERR Script killed by user with SCRIPT KILL... script: "));
    assert_eq!(b.run("PING"), simple("PONG"));
    assert_eq!(a.run("EVAL \"return 1\" 0"), Some(Reply::Int(1)));
}

#[test]
fn a_script_that_has_written_ends_only_with_the_server() {
    let (_server, mut a, mut b) = busy("redis.call('set','x',1) while true do end");
    assert!(error_starts(b.run("SCRIPT KILL"), "UNKILLABLE "));
    b.send(&encode(&["SHUTDOWN", "NOSAVE"]));
    while a.read().is_some() {}
}
