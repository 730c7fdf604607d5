//! Getting in, and what is said when that fails: each message names the address and what to try.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use crate::support::{
    Action, Bigkeys, Certificates, Exit, Lab, Proxy, ServerKind, free_port, on_each_server, on_servers,
};

const PASSWORD: &str = "s3cret:p@ss/word?";

/// Runs a scan that cannot begin, and checks that it says why, where and what to try.
fn fails(command: Bigkeys, address: &str, why: &str) {
    let outcome = command
        .exits(Exit::Failed)
        .stderr_has("error: ")
        .stderr_has("hint: ")
        .stderr_has(address)
        .stderr_has(why);
    let errors = outcome.stderr().lines().filter(|line| line.starts_with("error:")).count();
    assert_eq!(errors, 1, "an error is said once, and wrapped once\n{}", outcome.scene());
    assert_eq!(outcome.stdout(), "", "nothing was found, so nothing is written\n{}", outcome.scene());
    let outcome = outcome.never_says("panicked").never_says("RUST_BACKTRACE");
    drop(outcome.never_says(PASSWORD));
}

fn locked(kind: ServerKind) -> Lab {
    let lab = Lab::with(kind, |_, options| {
        options.config(format!("requirepass \"{PASSWORD}\"")).config("user reader on >other ~* +@all")
    });
    lab.redis().call(&["AUTH", PASSWORD]);
    lab
}

on_each_server! {
    fn no_password_where_one_is_needed(kind) {
        let lab = locked(kind);
        fails(lab.scan([]), &lab.address().to_string(), "asks for a password");
    }

    fn a_wrong_password(kind) {
        let lab = locked(kind);
        let scan = lab.scan([]).env("REDISCLI_AUTH", "wr0ng");
        fails(scan.clone(), &lab.address().to_string(), "refused the user name or the password");
        drop(scan.exits(Exit::Failed).never_says("wr0ng"));
    }

    fn a_password_that_nobody_asked_for(kind) {
        let lab = Lab::start(kind);
        // Servers with ACLs take any password of a default user without one.
        let outcome = lab.scan([]).env("REDISCLI_AUTH", PASSWORD).start().finish();
        drop(outcome.never_says(PASSWORD).never_says("panicked"));
    }

    fn the_right_password_by_environment_file_url_and_user(kind) {
        let lab = locked(kind);
        let redis = lab.redis();
        redis.call(&["AUTH", PASSWORD]);
        redis.run("SET k v");
        let port = lab.address().port();

        let whole = |command: Bigkeys| {
            let scan = command.document();
            assert_eq!(scan.summary("/keys_seen"), 1);
            drop(scan);
        };
        whole(lab.scan([]).env("REDISCLI_AUTH", PASSWORD));
        fs::write(lab.path("password"), format!("{PASSWORD}\n")).expect("the lab's folder is writable");
        whole(lab.scan(["--password-file", "password"]));
        whole(lab.scan(["--user", "reader"]).env("REDISCLI_AUTH", "other"));
        let escaped = PASSWORD.replace(':', "%3A").replace('@', "%40").replace('/', "%2F").replace('?', "%3F");
        let url = format!("redis://:{escaped}@127.0.0.1:{port}");
        whole(lab.bigkeys_bare(["scan", "--format", "json"]).env("BIGKEYS_URL", url));
        whole(lab.bigkeys_bare(["scan", "--format", "json"]).env("BIGKEYS_URL", format!("redis://reader:other@localhost:{port}/0")));
    }

    fn a_unix_socket(kind) {
        let lab = Lab::start(kind);
        lab.redis().run("SET k v");
        let path = lab.server().unix_socket();
        let path = path.to_str().expect("temporary folders are UTF-8");
        let by_flag = lab.bigkeys_bare(["scan", "--format", "json", "--socket", path]).document();
        assert_eq!(by_flag.summary("/keys_seen"), 1);
        let by_url = lab.bigkeys_bare(["scan", "--format", "json", "--url", &format!("unix://{path}?db=0")]).document();
        assert_eq!(by_url.summary("/keys_seen"), 1);
        fails(lab.bigkeys_bare(["scan", "--socket", "/nowhere/redis.sock"]), "/nowhere/redis.sock", "cannot connect");
    }

    fn databases_one_some_and_all_of_sixteen(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        for db in 0..16 {
            redis.run(&format!("SELECT {db}"));
            // The same name everywhere: a database is part of what a key is called.
            redis.run("SET same v");
            for n in 0..db {
                redis.run(&format!("SET only:{db}:{n} v"));
            }
        }
        let all = lab.scan(["--all-keys"]).document();
        assert_eq!(all.by_key().len(), 16 + (0..16).sum::<usize>());
        assert_eq!(all.summary("/dbs").as_array().expect("a list").len(), 16);
        let some = lab.scan(["--all-keys", "-n", "3,7"]).document();
        assert_eq!(some.by_key().len(), 4 + 8);
        assert!(some.by_key().contains_key(&(7, b"only:7:6".to_vec())));
        let one = lab.scan(["--all-keys", "--db", "15"]).document();
        assert_eq!(one.by_key().len(), 16);
        drop(lab.scan(["--db", "16"]).exits(Exit::Failed).stderr_has("16"));
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn nobody_listens(kind) {
        let lab = Lab::start(kind);
        let port = free_port().to_string();
        fails(lab.bigkeys_bare(["scan", "--port", &port]), &port, "refused");
        fails(lab.bigkeys_bare(["scan", "--host", "no-such-host.invalid"]), "no-such-host.invalid", "cannot find the address");
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn not_redis_at_all(kind) {
        let lab = Lab::start(kind);
        let http = talker(b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nConnection: close\r\n\r\n<html>");
        fails(lab.bigkeys_bare(["scan", "--port", &http]), &http, "is no Redis or Valkey server");
        let ssh = talker(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
        fails(lab.bigkeys_bare(["scan", "--port", &ssh]), &ssh, "is no Redis or Valkey server");
        let silent_close = talker(b"");
        fails(lab.bigkeys_bare(["scan", "--port", &silent_close]), &silent_close, "closed the connection");
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn a_server_that_never_answers_is_given_up_in_time(kind) {
        let lab = Lab::start(kind);
        let proxy = Proxy::start(lab.address(), |_| Action::Hang);
        let port = proxy.port().to_string();
        fails(lab.bigkeys_bare(["scan", "--port", &port, "--connect-timeout", "300ms"]), &port, "timed out");
    }
}

/// Listens on a port, reads a little, says this and closes; returns the port.
fn talker(says: &'static [u8]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
    let port = listener.local_addr().expect("a listener has an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Whether it reads or listens to us is its own affair.
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(says);
        }
    });
    port.to_string()
}

/// A server with a TLS port, whose certificate is `certificate`.
fn tls_lab(kind: ServerKind, certificate: &str, clients: &str) -> (Lab, Certificates) {
    let mut certificates = None;
    let lab = Lab::with(kind, |dir, options| {
        let made = certificates.insert(Certificates::create(dir));
        options
            .tls()
            .config(format!("tls-cert-file {}", made.cert(certificate)))
            .config(format!("tls-key-file {}", made.key(certificate)))
            .config(format!("tls-ca-cert-file {}", made.cert("ca")))
            .config(format!("tls-auth-clients {clients}"))
    });
    lab.redis().run("SET k v");
    (lab, certificates.expect("made above"))
}

fn tls_scan(lab: &Lab, args: &[&str]) -> Bigkeys {
    let port = lab.server().tls_port().to_string();
    let command = lab.bigkeys_bare(["scan", "--format", "json", "--tls", "--port"]).arg(port);
    args.iter().fold(command, Bigkeys::arg)
}

on_servers! {
    [redis_7_0 Redis70]
    fn tls_verified(kind) {
        let (lab, certificates) = tls_lab(kind, "server", "no");
        let port = lab.server().tls_port();
        let ca = certificates.cert("ca");
        let scan = tls_scan(&lab, &["--cacert", &ca]).document();
        assert_eq!(scan.summary("/keys_seen"), 1);
        let by_name = lab.bigkeys_bare(["scan", "--format", "json", "--cacert", &ca, "--url", &format!("rediss://localhost:{port}")]);
        assert_eq!(by_name.document().summary("/keys_seen"), 1);

        // The system's CAs do not know ours, and neither does another CA.
        fails(tls_scan(&lab, &[]), &port.to_string(), "unknown CA");
        fails(tls_scan(&lab, &["--cacert", &certificates.cert("other-ca")]), &port.to_string(), "unknown CA");
        fails(tls_scan(&lab, &["--cacert", &ca, "--sni", "redis.example.com"]), &port.to_string(), "another host name");
        assert_eq!(tls_scan(&lab, &["--insecure"]).document().summary("/keys_seen"), 1);
        fails(tls_scan(&lab, &["--cacert", "/nowhere/ca.pem"]), "/nowhere/ca.pem", "cannot use");
    }
}

on_servers! {
    [redis_7_0 Redis70]
    fn tls_expired_or_for_another_host(kind) {
        let (expired, certificates) = tls_lab(kind, "expired", "no");
        let port = expired.server().tls_port().to_string();
        fails(tls_scan(&expired, &["--cacert", &certificates.cert("ca")]), &port, "expired");

        let (elsewhere, certificates) = tls_lab(kind, "elsewhere", "no");
        let port = elsewhere.server().tls_port().to_string();
        let ca = certificates.cert("ca");
        fails(tls_scan(&elsewhere, &["--cacert", &ca]), &port, "another host name");
        let scan = tls_scan(&elsewhere, &["--cacert", &ca, "--sni", "redis.example.com"]).document();
        assert_eq!(scan.summary("/keys_seen"), 1);
    }
}

on_servers! {
    [redis_7_0 Redis70]
    fn tls_with_a_client_certificate(kind) {
        let (lab, certificates) = tls_lab(kind, "server", "yes");
        let port = lab.server().tls_port().to_string();
        let ca = certificates.cert("ca");
        let (cert, key) = (certificates.cert("client"), certificates.key("client"));
        let scan = tls_scan(&lab, &["--cacert", &ca, "--cert", &cert, "--key", &key]).document();
        assert_eq!(scan.summary("/keys_seen"), 1);
        fails(tls_scan(&lab, &["--cacert", &ca]), &port, "--cert");
        drop(tls_scan(&lab, &["--cert", &cert]).exits(Exit::Usage).stderr_has("--key"));
    }
}

on_servers! {
    [redis_7_0 Redis70]
    fn tls_and_plain_the_wrong_way_round(kind) {
        let (lab, certificates) = tls_lab(kind, "server", "no");
        let plain = lab.address().port().to_string();
        let tls = lab.server().tls_port().to_string();
        let ca = certificates.cert("ca");
        fails(lab.bigkeys_bare(["scan", "--tls", "--cacert", &ca, "--port", &plain]), &plain, "TLS");
        fails(lab.bigkeys_bare(["scan", "--port", &tls]), &tls, "TLS");
    }
}
