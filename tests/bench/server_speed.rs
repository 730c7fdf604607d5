//! The bundled server against Redis 7.0.15 by redis-benchmark, in turn.
//!
//! ```text
//! cargo bench --bench server_speed
//! cargo bench --bench server_speed -- --rounds 5 --requests 200000 --keyspace 100000
//! ```
//!
//! Servers are kept on CPU 0 and redis-benchmark on CPU 1, so that neither takes the other's. `--keyspace` is
//! redis-benchmark's `-r`; without it each test uses one key. Needs Redis 7.0.15 with its redis-benchmark below
//! `target/servers` (`tests/run --servers`). Prints Markdown: medians, and all rounds as CSV.

#[path = "lab.rs"]
mod lab;

use std::path::Path;
use std::process::Command;

use lab::{Server, describe, median, number, redis_7_0_15};

const BIGKEYS: &str = env!("CARGO_BIN_EXE_bigkeys");
const SERVERS: [&str; 2] = ["bundled", "redis-7.0.15"];
const TESTS: [&str; 9] = ["SET", "GET", "INCR", "LPUSH", "SADD", "HSET", "ZADD", "LRANGE_100", "MSET"];
/// Requests sent at once, and how much of `--requests` that gets: all runs should take some seconds.
const PIPELINES: [(u64, u64); 2] = [(1, 1), (16, 5)];
/// The least part of Redis' speed that will do.
const RATIO_MIN: f64 = 0.7;
const SERVER_CPU: u32 = 0;
const BENCHMARK_CPU: &str = "1";

/// What one test gave.
struct Run {
    server: usize,
    pipeline: u64,
    test: usize,
    per_second: f64,
}

fn main() {
    let redis = redis_7_0_15();
    let benchmark = Path::new(&redis.path).with_file_name("redis-benchmark");
    let requests = number("--requests", 200_000);
    let keyspace = number("--keyspace", 0);
    let mut runs = Vec::new();
    for round in 1..=number("--rounds", 3) {
        for (index, name) in SERVERS.into_iter().enumerate() {
            let server = if index == 0 { Server::start_bundled(BIGKEYS) } else { Server::start(&redis) };
            server.pin_to(SERVER_CPU);
            let mut connection = server.connect();
            if round == 1 {
                println!("{name}: {}.\n", describe(&mut connection));
            }
            for (pipeline, share) in PIPELINES {
                for (test, title) in TESTS.into_iter().enumerate() {
                    connection.run("FLUSHALL");
                    let mut command = Command::new("taskset");
                    command.args(["-c", BENCHMARK_CPU]).arg(&benchmark).args(["--csv", "-t", title]);
                    let options = [
                        ("-p", server.port().into()),
                        ("-P", pipeline),
                        ("-n", requests * share),
                        ("-r", keyspace),
                    ];
                    for (flag, value) in options.into_iter().filter(|(_, value)| *value > 0) {
                        command.args([flag, &value.to_string()]);
                    }
                    let per_second = measure(&mut command, title);
                    eprintln!("{round} {name}: {title} -P {pipeline}: {per_second:.0}/s");
                    runs.push(Run { server: index, pipeline, test, per_second });
                }
            }
        }
    }
    tabulate(&runs);
}

/// Runs redis-benchmark and returns the requests a second of one test.
fn measure(command: &mut Command, title: &str) -> f64 {
    let output = command.output().expect("taskset, of util-linux, is there");
    let text = String::from_utf8_lossy(&output.stdout);
    // `"LRANGE_100 (first 100 elements)","12345.67",...`, behind what it took to prepare that.
    let line = text.lines().rfind(|line| line.trim_start_matches('"').starts_with(title));
    let value = line.and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
    value.unwrap_or_else(|| panic!("{title}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn tabulate(runs: &[Run]) {
    println!("## Medians\n\nRequests a second.\n");
    println!("| test | -P | bundled | Redis 7.0.15 | ratio |\n|---|---|---|---|---|");
    let mut least = f64::INFINITY;
    for (pipeline, _) in PIPELINES {
        for (test, title) in TESTS.into_iter().enumerate() {
            let [ours, theirs] = [0, 1].map(|server| {
                let same = |run: &&Run| (run.server, run.pipeline, run.test) == (server, pipeline, test);
                median(runs.iter().filter(same).map(|run| run.per_second).collect())
            });
            println!("| {title} | {pipeline} | {ours:.0} | {theirs:.0} | {:.2} |", ours / theirs);
            least = least.min(ours / theirs);
        }
    }
    let holds = if least >= RATIO_MIN { "yes" } else { "NO" };
    println!("\n- {holds}: at least {RATIO_MIN} of Redis 7.0.15 everywhere (the least is {least:.2})");
    println!("\n## Rounds\n\n```csv\nserver,test,pipeline,requests_per_second");
    for Run { server, pipeline, test, per_second } in runs {
        println!("{},{},{pipeline},{per_second}", SERVERS[*server], TESTS[*test]);
    }
    println!("```");
}
