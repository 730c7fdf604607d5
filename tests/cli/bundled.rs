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
fn serve_takes_a_configuration_file_of_redis_and_starts_from_what_it_saved() {
    let dir = folder();
    let port = free_port();
    let text = format!(
        "# as in redis.conf\nport {port}\nbind 127.0.0.1 -::1\nunixsocket \"redis.sock\"\nrequirepass 'open sesame'\n\
         user reader on >pw ~* +@read\nsave 3600 1 300 100\nmaxmemory 100mb\nlazyfree-lazy-expire yes\n\
         list-max-ziplist-size -1\nrename-command DEBUG \"\"\nrename-command CONFIG Settings\ntimeout 0\n"
    );
    std::fs::write(dir.path().join("redis.conf"), text).expect("a file");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for run in 0..2 {
        let server = Bigkeys::new(dir.path(), ["serve", "--config", "redis.conf"]).start();
        server.wait_for_stderr(&format!("listens on {address} and redis.sock"));
        let redis = Client::connect(address);
        let refusal = redis.try_call(&["GET", "k"]).error_text();
        assert_eq!(refusal.as_deref(), Some("NOAUTH Authentication required."));
        redis.call(&["AUTH", "reader", "pw"]).is("OK");
        assert!(redis.try_call(&["SET", "k", "v"]).error_text().is_some(), "a reader may not write");
        redis.call(&["AUTH", "open sesame"]).is("OK");
        let settings = redis.call(&["SETTINGS", "GET", "*"]);
        for (name, value) in [
            ("maxmemory", "104857600"),
            ("save", "3600 1 300 100"),
            ("lazyfree-lazy-expire", "yes"),
            ("list-max-listpack-size", "-1"),
            ("unixsocket", "redis.sock"),
        ] {
            settings.field(name).is(value);
        }
        for gone in ["CONFIG GET *", "DEBUG SLEEP 0"] {
            let words: Vec<_> = gone.split(' ').collect();
            let refusal = redis.try_call(&words).error_text().expect("an error");
            assert!(refusal.starts_with("ERR unknown command"), "{refusal}");
        }
        assert!(redis.call(&["COMMAND", "INFO", "debug"]).items()[0].is_null());
        // The second time what the first one saved is there.
        assert_eq!(redis.run("EXISTS k").int(), run);
        redis.run("SET k v").is("OK");
        redis.run("SAVE").is("OK");
        server.interrupt();
        drop(server.finish().exits(Exit::Done).never_says("sesame"));
    }
}

#[test]
fn flags_of_serve_override_the_file() {
    let dir = folder();
    std::fs::write(dir.path().join("redis.conf"), "port 1\nbind 192.0.2.1\n").expect("a file");
    std::fs::write(dir.path().join("pass"), "sesame").expect("a file");
    let port = free_port();
    let serve =
        Bigkeys::new(dir.path(), ["serve", "--config", "redis.conf", "--bind", "127.0.0.1", "--port"]);
    let server = serve.arg(port.to_string()).args(["--password-file", "pass"]).start();
    server.wait_for_stderr("listens on");
    let redis = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    redis.call(&["AUTH", "sesame"]).is("OK");
    server.interrupt();
    drop(server.finish().exits(Exit::Done));
}

#[test]
fn a_configuration_that_cannot_be_followed_is_said_with_its_line() {
    let dir = folder();
    let serve = |text: &str| {
        std::fs::write(dir.path().join("redis.conf"), text).expect("a file");
        Bigkeys::new(dir.path(), ["serve", "--config", "redis.conf"]).exits(Exit::Failed)
    };
    drop(serve("port 0\n\ntls-port 6380\n").stderr_has(
        "error: cannot run the bundled server: `redis.conf`, line 3: tls-port: the bundled server has no such parameter",
    ));
    drop(serve("port seven\n").stderr_has("line 1: port: argument couldn't be parsed into an integer"));
    drop(serve("port 0\n").stderr_has("neither a port nor a Unix socket"));
    // What the flags refuse, the file cannot do either.
    drop(serve("bind *\nport 0\nport 7000\n").stderr_has("0.0.0.0 lets others in, and there is no password"));
    drop(serve("bind *\nrequirepass x\nuser default on nopass ~* +@all\n").stderr_has("lets others in"));
    let missing = Bigkeys::new(dir.path(), ["serve", "--config", "none.conf"]).exits(Exit::Failed);
    drop(missing.stderr_has("cannot read `none.conf`: no such file or directory"));
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
    assert!(table.contains("bigkeys delete --safe"), "{table}");
    drop(outcome.stderr_has("bigkeys scan --host HOST").stderr_has("bigkeys delete --from"));
}
