//! Nothing a client sends makes the server panic: every command there is, with arguments that are
//! wrong in every way we could think of, and bytes that are no requests at all.

use std::sync::Arc;

use bigkeys::server::{Config, InProcess, ManualClock};

use super::reply::{Reply, decode};
use super::target::Running;

/// `SplitMix64`, so that a failure can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % (n as u64)).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

const ARGUMENTS: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "e",
    "",
    "0",
    "1",
    "-1",
    "2",
    "3",
    "5",
    "10",
    "100",
    "1000000",
    "-9223372036854775808",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "4294967295",
    "1.5",
    "-0.0",
    "1e308",
    "inf",
    "-inf",
    "nan",
    "+inf",
    "(1",
    "[a",
    "-",
    "+",
    "(",
    "*",
    "?",
    "[",
    "\\",
    "$",
    ">",
    "~",
    "=",
    "0-0",
    "5-1",
    "*-*",
    "18446744073709551615-18446744073709551615",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "GET",
    "EX",
    "PX",
    "EXAT",
    "KEEPTTL",
    "PERSIST",
    "COUNT",
    "MATCH",
    "TYPE",
    "LIMIT",
    "WITHSCORES",
    "WITHVALUES",
    "REV",
    "BYSCORE",
    "BYLEX",
    "MAXLEN",
    "MINID",
    "STREAMS",
    "GROUP",
    "FIELDS",
    "STORE",
    "WEIGHTS",
    "AGGREGATE",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "REPLACE",
    "DB",
    "SAMPLES",
    "ABSTTL",
    "IDLETIME",
    "SETNAME",
    "AUTH",
    "YES",
    "NO",
    "on",
    "off",
    "+@all",
    "~*",
    "nopass",
    "string",
    "\u{0}\u{1}",
    "\r\n",
    "é",
];

/// Commands that would end the test, wait, or write files.
const SPARED: &[&str] =
    &["shutdown", "debug", "quit", "wait", "save", "bgsave", "client|pause", "client|kill", "client|reply"];

fn command_names(server: &mut InProcess, client: usize) -> Vec<String> {
    let bytes = server.call(client, &["COMMAND", "LIST", "FILTERBY", "PATTERN", "*"]);
    let Some((Reply::Array(names), _)) = decode(&bytes) else { panic!("no list of commands") };
    let names = names.into_iter().map(|name| match name {
        Reply::Bulk(name) => String::from_utf8_lossy(&name).into_owned(),
        other => panic!("not a name: {other}"),
    });
    names.filter(|name| !SPARED.contains(&name.as_str())).collect()
}

#[test]
fn no_command_panics_whatever_its_arguments() {
    let seed = std::env::var("BIGKEYS_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let rounds = std::env::var("BIGKEYS_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60_000);
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    // Nothing here needs a long string, and SETRANGE would make one.
    let config = Config { clock: clock.clone(), seed: Some(seed), ..Config::default() };
    let config = config.with("proto-max-bulk-len", "1mb");
    let mut server = InProcess::new(&config).expect("good parameters");
    let mut client = server.connect();
    let names = command_names(&mut server, client);
    let mut random = Random(seed);
    for round in 0..rounds {
        let mut words: Vec<&str> = random.pick(&names).split('|').collect();
        for _ in 0..random.below(7) {
            words.push(random.pick::<&str>(ARGUMENTS));
        }
        let bytes = server.call(client, &words);
        let whole = decode(&bytes).is_none_or(|(_, rest)| rest.is_empty());
        assert!(whole, "seed {seed}, round {round}: {words:?} got {}", bytes.escape_ascii());
        if round % 500 == 0 {
            clock.advance(std::time::Duration::from_secs(1));
            server.cron();
            client = server.connect();
            // Passwords and rules that the rounds made must not lock the rest out.
            server.call(client, &["CONFIG", "SET", "maxmemory", "0"]);
        }
    }
}

#[test]
fn no_bytes_hurt_the_server() {
    let server = Running::start();
    let mut random = Random(3);
    let pieces: [&[u8]; 14] = [
        b"*",
        b"$",
        b"\r\n",
        b"1",
        b"3",
        b"-1",
        b"GET",
        b"SET",
        b"a",
        b"\"",
        b"'",
        b"\\x",
        b"\0",
        b"99999999999",
    ];
    for _ in 0..200 {
        let mut client = server.client();
        for _ in 0..30 {
            let piece = *random.pick(&pieces);
            client.send(piece);
        }
    }
    assert_eq!(server.client().run("PING"), Some(Reply::Simple("PONG".to_owned())));
}
