//! The tools that come with Redis, on the bundled server: what people type first.
//!
//! They are those of Redis 7.0.15, below `target/servers`; where it is not installed, a named skip.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Lab, ServerKind};

/// A bundled server, and the tools to look at it with.
struct Bench {
    lab: Lab,
}

impl Bench {
    /// `None`: the tools are not installed.
    fn start() -> Option<Bench> {
        let installed = ServerKind::Redis70.is_installed_or_skipped();
        installed.then(|| Bench { lab: Lab::start(ServerKind::Bundled) })
    }

    /// Prepares a tool for this server. Without a colour, a terminal or a history file.
    fn tool(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(ServerKind::Redis70.tool(name));
        command
            .args(["-p", &self.lab.server().port().to_string()])
            .args(args)
            .current_dir(self.lab.path(""))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs redis-cli, which must end well and complain of nothing, and returns what it printed.
    #[track_caller]
    fn cli(&self, args: &[&str]) -> String {
        printed(&self.tool("redis-cli", args).output().expect("redis-cli can be started"))
    }

    /// Runs redis-cli with this on its standard input.
    #[track_caller]
    fn cli_reads(&self, args: &[&str], input: &[u8]) -> String {
        let mut child =
            self.tool("redis-cli", args).stdin(Stdio::piped()).spawn().expect("redis-cli can be started");
        child.stdin.take().expect("stdin is a pipe").write_all(input).expect("redis-cli reads it");
        printed(&child.wait_with_output().expect("redis-cli ends"))
    }

    /// Starts redis-cli in a mode that has no end, takes so many lines of it and ends it.
    fn cli_lines(&self, args: &[&str], count: usize) -> Vec<String> {
        // It buffers what goes to a pipe, and would keep its lines until it ends.
        let tool = self.tool("redis-cli", args);
        let mut command = Command::new("stdbuf");
        command.arg("-oL").arg(tool.get_program()).args(tool.get_args()).stdout(Stdio::piped());
        let mut child = Ended(command.spawn().expect("coreutils are here"));
        let lines = BufReader::new(child.0.stdout.take().expect("stdout is a pipe")).lines();
        lines.take(count).map(|line| line.expect("it prints text")).collect()
    }

    fn benchmark(&self, args: &[&str]) -> Vec<(String, f64)> {
        let output = self.tool("redis-benchmark", args).output().expect("redis-benchmark can be started");
        let text = printed(&output);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows = reader.records().map(|row| row.expect("rows of CSV"));
        rows.map(|row| (row[0].to_owned(), row[1].parse().expect("a number"))).collect()
    }
}

/// A process that is killed when the test is done with it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may be gone already; that is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn printed(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert_eq!(stderr, "", "{stdout}");
    stdout.into_owned()
}

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|shown| shown == *line), "no line {line:?} in\n{text}");
    }
}

fn fill(bench: &Bench) {
    let redis = bench.lab.redis();
    redis.run("DEBUG POPULATE 1000 key 20");
    redis.fill_list("list", 500, 10);
    redis.fill_set("set", 2000);
    redis.fill_hash("hash", 600);
    redis.fill_zset("zset", 7);
    redis.fill_stream("stream", 3);
}

#[test]
fn redis_cli_finds_the_big_keys() {
    let Some(bench) = Bench::start() else { return };
    fill(&bench);
    let text = bench.cli(&["--bigkeys"]);
    has(
        &text,
        &[
            "Sampled 1005 keys in the keyspace!",
            "Biggest   list found '\"list\"' has 500 items",
            "Biggest    set found '\"set\"' has 2000 members",
            "Biggest   hash found '\"hash\"' has 600 fields",
            "Biggest   zset found '\"zset\"' has 7 members",
            "Biggest stream found '\"stream\"' has 3 entries",
            "1000 strings with 20000 bytes (99.50% of keys, avg size 20.00)",
        ],
    );
    // The bytes are what MEMORY USAGE says of them.
    let text = bench.cli(&["--memkeys"]);
    for (kind, key) in [("  list", "list"), ("   set", "set"), ("  hash", "hash"), ("stream", "stream")] {
        let bytes = bench.lab.redis().run(&format!("MEMORY USAGE {key}")).int();
        has(&text, &[&format!("Biggest {kind} found '\"{key}\"' has {bytes} bytes")]);
    }
    assert_eq!(bench.cli(&["--scan"]).lines().count(), 1005);
    let mut found: Vec<_> =
        bench.cli(&["--scan", "--pattern", "*s[et]*"]).lines().map(str::to_owned).collect();
    found.sort();
    assert_eq!(found, ["list", "set", "stream", "zset"]);
    bench.lab.redis().run("CONFIG SET maxmemory-policy allkeys-lfu");
    bench.lab.redis().pipeline((0..1000).map(|_| ["LLEN", "list"]));
    let text = bench.cli(&["--hotkeys"]);
    assert!(text.contains("hot key found with counter:") && text.contains("keyname: \"list\""), "{text}");
}

#[test]
fn redis_cli_runs_commands_and_shows_replies() {
    let Some(bench) = Bench::start() else { return };
    assert_eq!(bench.cli(&["SET", "k", "a \"b\""]), "OK\n");
    assert_eq!(bench.cli(&["--no-raw", "GET", "k"]), "\"a \\\"b\\\"\"\n");
    assert_eq!(bench.cli(&["--no-raw", "TTL", "k"]), "(integer) -1\n");
    assert_eq!(bench.cli(&["--no-raw", "GET", "none"]), "(nil)\n");
    assert_eq!(bench.cli(&["--csv", "MGET", "k", "none"]), "\"a \\\"b\\\"\",NULL\n");
    bench.lab.redis().run("HSET hash f v g 1");
    assert_eq!(bench.cli(&["--no-raw", "-3", "HGETALL", "hash"]), "1# \"f\" => \"v\"\n2# \"g\" => \"1\"\n");
    assert_eq!(bench.cli(&["-3", "--json", "HGETALL", "hash"]), "{\"f\":\"v\",\"g\":\"1\"}\n");
    assert_eq!(bench.cli(&["-r", "3", "INCR", "n"]), "1\n2\n3\n");
    assert_eq!(bench.cli(&["-n", "3", "DBSIZE"]), "0\n");
    assert_eq!(bench.cli_reads(&["-x", "SET", "piped"], b"in\0put"), "OK\n");
    assert_eq!(bench.lab.redis().run("STRLEN piped").int(), 6);
    // A script, and a session that is typed: a transaction, an error, another database.
    std::fs::write(bench.lab.path("s.lua"), "return {KEYS[1], ARGV[1], redis.call('GET', 'n')}")
        .expect("a file");
    assert_eq!(bench.cli(&["--eval", "s.lua", "a", ",", "b"]), "a\nb\n3\n");
    let typed = b"MULTI\nINCR n\nEXEC\nLPUSH n x\nSELECT 2\nSET k v\nDBSIZE\n";
    let text = bench.cli_reads(&[], typed);
    assert_eq!(
        text,
        "OK\nQUEUED\n4\nWRONGTYPE Operation against a key holding the wrong kind of value\n\nOK\nOK\n1\n"
    );
    let refused = bench.tool("redis-cli", &["-e", "NOSUCH", "x"]).output().expect("redis-cli can be started");
    assert_eq!(refused.status.code(), Some(1));
    let refusal = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refusal.contains("ERR unknown command 'NOSUCH', with args beginning with: 'x'"), "{refusal}");
}

#[test]
fn redis_cli_loads_a_protocol_file_and_watches() {
    let Some(bench) = Bench::start() else { return };
    let set = |n: u32| format!("*3\r\n$3\r\nSET\r\n$8\r\nkey:{n:04}\r\n$5\r\nvalue\r\n");
    let mut input: String = (0..5000).map(set).collect();
    input += "*2\r\n$4\r\nINCR\r\n$8\r\nkey:0000\r\n";
    let output = {
        let mut child =
            bench.tool("redis-cli", &["--pipe"]).stdin(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("stdin is a pipe").write_all(input.as_bytes()).expect("redis-cli reads it");
        child.wait_with_output().expect("redis-cli ends")
    };
    // It counts the one error, and says so by its exit code.
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("errors: 1, replies: 5001"), "{text}");
    assert_eq!(bench.lab.redis().run("DBSIZE").int(), 5000);

    let lines = bench.cli_lines(&["--stat", "-i", "0.05"], 4);
    assert!(lines[0].contains("data") && lines[1].starts_with("keys"), "{lines:?}");
    for line in &lines[2..] {
        assert_eq!(line.split_whitespace().next(), Some("5000"), "{lines:?}");
    }
    // Without a terminal it takes one second, prints the least, the most and the mean, and ends.
    let text = bench.cli(&["--latency", "-i", "1"]);
    let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [min, max, mean, count] = numbers[..] else { panic!("{text}") };
    assert!(min <= mean && mean <= max && count > 10.0, "{text}");
}

#[test]
fn redis_benchmark_gets_what_it_waits_for() {
    let Some(bench) = Bench::start() else { return };
    for pipeline in ["1", "16"] {
        bench.lab.redis().run("FLUSHALL");
        // It ends, and not well, at the first error that the server replies with.
        let rows = bench.benchmark(&["--csv", "-n", "2000", "-P", pipeline]);
        let names: Vec<_> = rows.iter().map(|(name, _)| name.split(' ').next().unwrap_or_default()).collect();
        let expected = "PING_INLINE PING_MBULK SET GET INCR LPUSH RPUSH LPOP RPOP SADD HSET SPOP ZADD ZPOPMIN \
                        LPUSH LRANGE_100 LRANGE_300 LRANGE_500 LRANGE_600 MSET";
        assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>(), "{rows:?}");
        assert!(rows.iter().all(|(_, per_second)| *per_second > 100.0), "{rows:?}");
        // And it was really done: each of the 2000 came, once.
        let redis = bench.lab.redis();
        let calls = |command: &str| {
            let line = redis.run("INFO commandstats").text();
            let line =
                line.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:"))).map(str::to_owned);
            let line = line.unwrap_or_else(|| panic!("nobody called {command}"));
            line.split(['=', ',']).nth(1).and_then(|calls| calls.parse::<u64>().ok()).expect("a number")
        };
        let round = if pipeline == "1" { 1 } else { 2 };
        for (command, times) in
            [("set", 1), ("get", 1), ("lpush", 2), ("lrange", 4), ("mset", 1), ("zadd", 1)]
        {
            assert_eq!(calls(command), round * times * 2000, "{command}");
        }
        assert_eq!(redis.info("total_error_replies"), "0");
    }
}
