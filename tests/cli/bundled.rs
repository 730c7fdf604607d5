//! `demo` and `serve`: the bundled server as a user meets it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::support::{Bigkeys, Client, Exit, free_port};

/// A folder that goes when the test does.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn serve_answers_any_client_and_ends_with_ctrl_c() {
    let dir = folder();
    let port = free_port();
    let server = Bigkeys::new(dir.path(), ["serve", "--port", &port.to_string()]).start();
    server.wait_for_stderr("listens on");
    let redis = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    redis.run("PING").is("PONG");
    redis.fill_set("giant", 20_000);
    redis.run("SET small v").is("OK");
    let scan =
        Bigkeys::new(dir.path(), ["scan", "--format", "json", "--rate", "max", "-p", &port.to_string()]);
    let scan = scan.document();
    assert_eq!(scan.summary("/keys_seen"), 2);
    let giant = scan.finding("giant");
    assert_eq!((&giant["free_effort"], &giant["encoding"]), (&20_000.into(), &"hashtable".into()));
    assert_eq!((&giant["del_effect"], &giant["unlink_effect"]), (&"inline".into(), &"background".into()));
    // What was predicted is what happens.
    redis.run("UNLINK giant").is("1");
    while redis.info("lazyfree_pending_objects") != "0" {
        std::thread::yield_now();
    }
    assert_eq!(redis.info("lazyfreed_objects"), "1");
    server.interrupt();
    drop(server.finish().exits(Exit::Done));
}

#[test]
fn serve_starts_from_what_it_saved() {
    let dir = folder();
    let port = free_port();
    let serve = |extra: [&str; 2]| {
        Bigkeys::new(dir.path(), ["serve", "--port", &port.to_string()]).args(extra).start()
    };
    let server = serve(["--dir", "."]);
    server.wait_for_stderr("listens on");
    let redis = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    redis.fill_hash("hash", 1000);
    redis.run("SAVE").is("OK");
    server.interrupt();
    drop(server.finish().exits(Exit::Done));
    let server = serve(["--load", "dump.rdb"]);
    server.wait_for_stderr("listens on");
    let redis = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    redis.run("HLEN hash").is("1000");
    server.interrupt();
    drop(server.finish().exits(Exit::Done));
}

#[test]
fn serve_lets_nobody_in_from_outside_without_a_password() {
    let dir = folder();
    let refused = Bigkeys::new(dir.path(), ["serve", "--bind", "0.0.0.0"]).exits(Exit::Usage);
    drop(refused.stderr_has("0.0.0.0").stderr_has("--password-file"));
}

#[test]
fn serve_asks_for_the_password_it_was_given() {
    let dir = folder();
    std::fs::write(dir.path().join("pass"), "sesame\n").expect("a file");
    let port = free_port();
    let command = Bigkeys::new(dir.path(), ["serve", "--port", &port.to_string(), "--password-file", "pass"]);
    let server = command.start();
    server.wait_for_stderr("listens on");
    let scan = |password: &str| {
        Bigkeys::new(dir.path(), ["scan", "-p", &port.to_string()]).env("REDISCLI_AUTH", password)
    };
    drop(scan("wrong").exits(Exit::Failed).stderr_has("refused the user name or the password"));
    drop(scan("sesame").exits(Exit::Done));
    server.interrupt();
    drop(server.finish().exits(Exit::Done).never_says("sesame"));
}

#[test]
fn a_port_in_use_and_a_file_that_is_none_are_said() {
    let dir = folder();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let outcome = Bigkeys::new(dir.path(), ["serve", "--port", &port]).exits(Exit::Failed);
    drop(outcome.stderr_has(&port).stderr_has("--port"));
    std::fs::write(dir.path().join("no.rdb"), "no RDB file").expect("a file");
    let outcome = Bigkeys::new(dir.path(), ["serve", "--port", "0", "--load", "no.rdb"]).exits(Exit::Failed);
    drop(outcome.stderr_has("error:"));
}

#[test]
fn demo_shows_each_thing_that_it_says_it_shows() {
    let dir = folder();
    let outcome = Bigkeys::new(dir.path(), ["demo"]).exits(Exit::Done);
    let table = outcome.stdout();
    for shown in [
        "visitors:2026",
        "cart:index",
        "campaign:spring:seen",
        "orders",
        "export:catalogue.json",
        "events:recent",
    ] {
        assert!(table.contains(shown), "{shown} is not in\n{table}");
    }
    assert!(table.contains("high"), "{table}");
    assert!(table.contains("complete:"), "{table}");
    drop(outcome.stderr_has("bigkeys scan --host HOST"));
}
