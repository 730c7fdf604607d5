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

/// Passwords that mean something to URLs, shells or terminals.
const ODD_PASSWORDS: [&str; 8] = [
    "/?#[]@:%",
    "a/b?c#d@e:f%20g",
    "%2F%",
    " begins and ends ",
    "pässwörd-密码-🔑",
    "\"quoted\" 'twice' \\ and $HOME `id`",
    "redis://user:inner@elsewhere:1/2",
    "\u{1b}[31mred\u{7}",
];

/// Writes a password as a URL holds it.
fn escaped(password: &str) -> String {
    use std::fmt::Write as _;
    password.bytes().fold(String::new(), |mut url, byte| {
        if byte.is_ascii_alphanumeric() {
            url.push(char::from(byte));
        } else {
            write!(url, "%{byte:02X}").expect("a string takes all that is written");
        }
        url
    })
}

/// Checks that a run told nobody the password: not on a terminal, and not in a file that it left.
#[track_caller]
fn keeps_to_itself(lab: &Lab, password: &str, outcome: crate::support::Outcome) {
    let outcome = outcome.never_says(password).never_says(&escaped(password)).never_says("panicked");
    for entry in fs::read_dir(lab.dir()).expect("the lab's folder is there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.contains("audit") && !name.contains("report") {
            continue;
        }
        let bytes = fs::read(entry.path()).unwrap_or_default();
        for secret in [password, &escaped(password)] {
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "{name} holds the password\n{}", outcome.scene());
        }
    }
}

on_servers! {
    [redis_6_2 Redis62, redis_8_2 Redis82, valkey_9_1 Valkey91, bundled Bundled]
    fn odd_passwords_get_in_and_are_told_to_nobody(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let port = lab.address().port().to_string();
        let ways = ["url", "environment", "file"];
        for (number, password) in ODD_PASSWORDS.iter().enumerate() {
            redis.call(&["ACL", "SETUSER", "odd", "reset", "on", &format!(">{password}"), "~*", "+@all"]).is("OK");
            fs::write(lab.path("password"), format!("{password}\n")).expect("the lab's folder is writable");
            let url = format!("redis://odd:{}@127.0.0.1:{port}/0", escaped(password));
            let to = |command: Bigkeys, way| match way {
                "url" => command.env("BIGKEYS_URL", &url),
                "environment" => command.args(["--user", "odd", "--port", &port]).env("REDISCLI_AUTH", password),
                _ => command.args(["--user", "odd", "--password-file", "password", "--port", &port]),
            };
            redis.run("SET go v");
            let scan = lab.bigkeys_bare(["scan", "-v", "--format", "json", "-o", "report.csv"]);
            keeps_to_itself(&lab, password, to(scan, ways[number % 3]).exits(Exit::Done));
            let audit = format!("audit-{number}.csv");
            let delete = lab.bigkeys_bare(["delete", "go", "-v", "--safe", "--yes", "--audit", &audit]);
            keeps_to_itself(&lab, password, to(delete, ways[(number + 1) % 3]).exits(Exit::Done));
            assert!(redis.run("GET go").is_null());
            // And the same, a byte off.
            let wrong = lab.scan(["-v", "--user", "odd"]).env("REDISCLI_AUTH", format!("{password}x"));
            keeps_to_itself(&lab, password, wrong.exits(Exit::Failed).stderr_has("refused the user name or the password"));
        }
    }
}

on_each_server! {
    fn a_server_that_repeats_the_password_is_not_repeated(kind) {
        // Servers tell the arguments of a command that they do not know, and of a long one the beginning.
        let long = "long-".repeat(60);
        for password in [PASSWORD, &long] {
            let lab = Lab::with(kind, |_, options| options.config("rename-command AUTH \"\""));
            let told = lab.redis().try_call(&["AUTH", password]).error_text().unwrap_or_default();
            assert!(told.to_lowercase().contains("unknown command"), "{told}");
            let scan = lab.scan(["-v"]).env("REDISCLI_AUTH", password);
            let outcome = scan.exits(Exit::Failed).stderr_has("it does not know AUTH").stderr_has("leave the password out");
            drop(outcome.never_says(&password[..8]));
            for words in ["ERR no such login: '{}'", "WEIRD {} is wrong", "LOADING until {} is read", "{}"] {
                let words = words.replace("{}", password);
                let proxy = Proxy::start(lab.address(), move |request| {
                    if request.is("AUTH") { Action::error(&words) } else { Action::Forward }
                });
                let scan = lab.scan_at(proxy.port(), ["-v", "--timeout", "300ms"]).env("REDISCLI_AUTH", password);
                drop(scan.exits(Exit::Failed).never_says(&password[..8]).stderr_has("error: "));
            }
        }
    }

    fn a_url_that_cannot_be_read_is_not_repeated(kind) {
        let lab = Lab::start(kind);
        for url in [
            "redis://:hunter2/x@host", "redis://:hunter2?x@host:1", "redis://:hunter2#x@host", "redis://:hunter2%zz@host",
            "redis://hunter2@host", "http://:hunter2@host", ":hunter2@host", "redis://u:hunter2@host:99999",
            "redis://u:hunter2@host/db/hunter2", "redis://u:hunter2@ho st", "rediss://u:hunter2@[::1", "unix://u:hunter2@run",
        ] {
            for verb in ["scan", "delete"] {
                let by_flag = lab.bigkeys_bare([verb, "-v", "--url", url, "--match", "a*"]).exits(Exit::Usage);
                drop(by_flag.never_says("hunter2").never_says("panicked").stderr_has("hint: "));
                let by_environment = lab.bigkeys_bare([verb, "-v", "--match", "a*"]).env("BIGKEYS_URL", url).exits(Exit::Usage);
                drop(by_environment.never_says("hunter2").never_says("panicked"));
            }
        }
    }

    fn ps_shows_no_password(kind) {
        let lab = locked(kind);
        let redis = lab.redis();
        redis.call(&["AUTH", PASSWORD]);
        redis.run("SET k v");
        let hung = Proxy::start(lab.address(), |request| {
            if request.is("SCAN") { Action::Hang } else { Action::Forward }
        });
        let url = format!("redis://:{}@127.0.0.1:{}", escaped(PASSWORD), hung.port());
        fs::write(lab.path("password"), PASSWORD).expect("the lab's folder is writable");
        for command in [
            lab.bigkeys_bare(["scan"]).env("BIGKEYS_URL", &url),
            lab.bigkeys_bare(["scan", "--port"]).arg(hung.port().to_string()).env("REDISCLI_AUTH", PASSWORD),
            lab.bigkeys_bare(["scan", "--password-file", "password", "--port"]).arg(hung.port().to_string()),
        ] {
            let before = hung.requests("SCAN").len();
            let mut running = command.start();
            while hung.requests("SCAN").len() == before {
                assert!(running.is_running());
                thread::yield_now();
            }
            let files = (running.proc_file("cmdline"), running.proc_file("environ"));
            let (Some((line, _)), Some((_, environ))) = files else { return };
            let line = String::from_utf8_lossy(&line).into_owned();
            assert!(line.contains("scan"), "{line}");
            assert!(!line.contains(PASSWORD) && !line.contains(&escaped(PASSWORD)), "{line}");
            let mode = std::os::unix::fs::PermissionsExt::mode(&environ);
            assert_eq!(mode & 0o077, 0, "the environment is for its owner alone");
            running.kill();
        }
    }
}

/// A deletion over TLS of the key `k`, which acts.
fn tls_delete(lab: &Lab, args: &[&str]) -> Bigkeys {
    let port = lab.server().tls_port().to_string();
    let command = lab
        .bigkeys_bare(["delete", "k", "--safe", "--yes", "--audit", "run.csv", "--tls", "--port"])
        .arg(port);
    args.iter().fold(command, Bigkeys::arg)
}

/// Checks that a deletion did not begin: the key is there, and no audit says otherwise.
#[track_caller]
fn deletes_nothing(lab: &Lab, args: &[&str], why: &str) {
    fails(tls_delete(lab, args), &lab.server().tls_port().to_string(), why);
    lab.redis().run("GET k").is("v");
    assert!(!lab.path("run.csv").exists(), "a run that did not begin has no audit");
}

on_servers! {
    [redis_7_0 Redis70]
    fn tls_carries_a_deletion(kind) {
        let (lab, certificates) = tls_lab(kind, "server", "yes");
        let ca = certificates.cert("ca");
        let ours = ["--cert", &certificates.cert("client"), "--key", &certificates.key("client")];
        let with_ours = |args: &[&str]| [args, &ours[..]].concat().join("\n");
        let split = |args: &str| args.split('\n').map(str::to_owned).collect::<Vec<_>>();
        for (args, why) in [
            (with_ours(&[]), "unknown CA"),
            (with_ours(&["--cacert", &certificates.cert("other-ca")]), "unknown CA"),
            (with_ours(&["--cacert", &ca, "--sni", "redis.example.com"]), "another host name"),
            (["--cacert", &ca].join("\n"), "--cert"),
        ] {
            let args = split(&args);
            deletes_nothing(&lab, &args.iter().map(String::as_str).collect::<Vec<_>>(), why);
        }
        let args = split(&with_ours(&["--cacert", &ca]));
        drop(tls_delete(&lab, &args.iter().map(String::as_str).collect::<Vec<_>>()).exits(Exit::Done));
        assert!(lab.redis().run("GET k").is_null());
        let audit = fs::read_to_string(lab.path("run.csv")).expect("it ran");
        assert!(audit.contains("deleted"), "{audit}");
    }
}

on_servers! {
    [redis_7_0 Redis70]
    fn tls_stops_a_deletion_on_a_certificate_that_is_no_good(kind) {
        for (certificate, why) in [("expired", "expired"), ("elsewhere", "another host name")] {
            let (lab, certificates) = tls_lab(kind, certificate, "no");
            deletes_nothing(&lab, &["--cacert", &certificates.cert("ca")], why);
        }
    }
}

on_servers! {
    [redis_7_0 Redis70]
    fn tls_takes_users_and_passwords_too(kind) {
        let (lab, certificates) = tls_lab(kind, "server", "no");
        let ca = certificates.cert("ca");
        let password = ODD_PASSWORDS[1];
        lab.redis().call(&["ACL", "SETUSER", "odd", "reset", "on", &format!(">{password}"), "~*", "+@all"]).is("OK");
        let url = format!("rediss://odd:{}@localhost:{}", escaped(password), lab.server().tls_port());
        let scan = lab.bigkeys_bare(["scan", "-v", "--format", "json", "--cacert", &ca]).env("BIGKEYS_URL", &url).exits(Exit::Done);
        keeps_to_itself(&lab, password, scan);
        let delete = lab.bigkeys_bare(["delete", "k", "-v", "--safe", "--yes", "--audit", "audit.csv", "--cacert", &ca]);
        keeps_to_itself(&lab, password, delete.env("BIGKEYS_URL", &url).exits(Exit::Done));
        assert!(lab.redis().run("GET k").is_null());
    }
}
