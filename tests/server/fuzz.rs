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

/// What follows was found by the targets in `tests/fuzz`, or by writing them.
mod found {
    use bigkeys::server::{Config, InProcess};

    fn server(parameters: &[(&str, &str)]) -> (InProcess, usize) {
        let config = Config { seed: Some(1), ..Config::default() };
        let config = parameters.iter().fold(config, |config, (name, value)| config.with(name, value));
        let mut server = InProcess::new(&config).expect("good parameters");
        let client = server.connect();
        (server, client)
    }

    fn run(server: &mut InProcess, client: usize, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        server.call(client, &words).escape_ascii().to_string()
    }

    #[test]
    fn r3_a_file_that_announces_billions_of_keys_gets_no_memory_for_them() {
        let (mut server, client) = server(&[]);
        let mut file = b"REDIS0011".to_vec();
        for db in 0..16 {
            // SELECTDB, RESIZEDB with 2^56 keys and none that expire.
            file.extend([254, db, 251, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        file.extend([255, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(server.load(&file[..]), Ok(0));
        let info = String::from_utf8(server.call(client, &["INFO", "memory"])).expect("text");
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("the field");
        assert!(used.parse::<usize>().expect("a number") < 16 * (9 << 20), "{used}");
    }

    #[test]
    fn r3_debug_populate_keeps_to_the_length_of_a_string() {
        let (mut server, client) = server(&[]);
        assert_eq!(
            run(&mut server, client, "DEBUG POPULATE 1 k 9223372036854775807"),
            r"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"
        );
        assert_eq!(run(&mut server, client, "DEBUG POPULATE 1 k 5"), r"+OK\r\n");
        assert_eq!(run(&mut server, client, "GET k:0"), r"$5\r\nvalue\r\n");
    }

    #[test]
    fn r3_a_reply_stops_growing_at_its_bound_and_the_client_is_cut_off() {
        let long = "x".repeat(1000);
        for (fill, ask) in [
            (format!("SADD k {long}"), "SRANDMEMBER k -30000"),
            (format!("ZADD k 1 {long}"), "ZRANDMEMBER k -30000 WITHSCORES"),
            (format!("HSET k {long} {long}"), "HRANDFIELD k -30000 WITHVALUES"),
            (
                format!("XADD k 1-1 {long} 1"),
                &format!("XREAD STREAMS{}{}", " k".repeat(2000), " 0".repeat(2000)),
            ),
            (format!("SET k {long}"), &format!("MULTI\r\n{}EXEC", "GET k\r\n".repeat(2000))),
        ] {
            let (mut server, client) =
                server(&[("client-output-buffer-limit", "normal 1mb 0 0 replica 0 0 0 pubsub 0 0 0")]);
            run(&mut server, client, &fill);
            let replies = server.feed(client, format!("{ask}\r\n").as_bytes());
            assert!(replies.len() < (1 << 20) + (8 << 10), "{ask}: {}", replies.len());
            assert!(server.is_gone(client), "{ask}");
            let other = server.connect();
            assert_eq!(run(&mut server, other, "PING"), r"+PONG\r\n");
        }
    }

    #[test]
    fn r3_a_script_hears_of_a_reply_that_was_cut() {
        let limit = "normal 1mb 0 0 replica 0 0 0 pubsub 0 0 0";
        let (mut server, client) = server(&[("client-output-buffer-limit", limit)]);
        run(&mut server, client, "SADD k member");
        let ask = "EVAL \"return redis.pcall('SRANDMEMBER', 'k', '-100000').err\" 0\r\n";
        assert_eq!(
            server.feed(client, ask.as_bytes()).escape_ascii().to_string(),
            r"$51\r\nERR reply is larger than client-output-buffer-limit\r\n"
        );
        assert_eq!(run(&mut server, client, "SRANDMEMBER k -2"), r"*2\r\n$6\r\nmember\r\n$6\r\nmember\r\n");
    }

    #[test]
    fn r3_no_script_takes_the_process_down() {
        let (mut server, client) = server(&[]);
        for (script, reply) in [
            ("return string.find(string.rep('a', 1e6), string.rep('a?', 1e6))", "pattern too complex"),
            ("return (string.rep('a', 1e6)):gsub(string.rep('.-', 1e6) .. 'b', '')", "pattern too complex"),
            ("return string.match('a', string.rep('(', 1e6))", "pattern too complex"),
            ("return string.gmatch('a', string.rep('a-', 1e6))()", "pattern too complex"),
            ("return string.find('b' .. string.rep('a', 9999), string.rep('a', 9999), 1, true)", ":2\\r\\n"),
            ("return {string.find('hello', '(l+)')}", r"*3\r\n:3\r\n:4\r\n$2\r\nll\r\n"),
            ("local f, why = loadstring(string.dump(function() end)) return why", "a compiled chunk"),
            ("return tostring(getmetatable(''))", r"$5\r\nfalse\r\n"),
            ("local f f = function() return f() + 1 end return f()", "stack overflow"),
            ("local t = {} for i = 1, 3e5 do t = {t} end return t", "reached lua stack limit"),
        ] {
            let got = server.call(client, &["EVAL", script, "0"]).escape_ascii().to_string();
            assert!(got.contains(reply), "{script}: {got}");
        }
    }

    #[test]
    fn requests_arrive_in_any_pieces_in_process_too() {
        let (mut server, client) = server(&[]);
        assert_eq!(server.feed(client, b"*2\r\n$4\r\nECHO\r\n$3\r\na"), b"");
        assert_eq!(server.feed(client, b"bc\r\nPING\r\nQUIT\r\nPING\r\n"), b"$3\r\nabc\r\n+PONG\r\n+OK\r\n");
        assert!(server.is_gone(client));
        assert_eq!(server.feed(client, b"PING\r\n"), b"");
    }
}
