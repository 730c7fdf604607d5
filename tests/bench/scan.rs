//! `bigkeys scan` against `redis-cli --memkeys` and `--bigkeys`, on one server in one run.
//!
//! ```text
//! cargo bench --bench scan                               # 1 million keys, five rounds
//! cargo bench --bench scan -- --rounds 0                         # only what others wait, and the rate
//! cargo bench --bench scan -- --keys 5000000 --rounds 2 --alone   # our memory at another size
//! ```
//!
//! Needs Redis 7.0.15 and its redis-cli below `target/servers` (`tests/run --servers`). Prints Markdown: the
//! rounds as they were, then medians and ratios. Server CPU is `used_cpu_{user,sys}_main_thread`, so what
//! else the machine does is not in it; wall times are, and rounds alternate for that reason.

mod dataset;
#[path = "lab.rs"]
mod lab;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Connection, Server, describe, median, number, redis_7_0_15};

const BIGKEYS: &str = env!("CARGO_BIN_EXE_bigkeys");
/// Time between two looks at a client's memory.
const MEMORY_INTERVAL: Duration = Duration::from_millis(10);
/// Time over which the server's own count of commands is taken for `--rate 5k/s`.
const RATE_WINDOW: Duration = Duration::from_secs(20);
/// Time that a scan at the default rate is watched for.
const DEFAULT_RATE_WINDOW: Duration = Duration::from_secs(20);

fn main() {
    let keys = number("--keys", 1_000_000);
    let rounds = number("--rounds", 5);
    let binary = redis_7_0_15();
    let redis_cli = Path::new(&binary.path).with_file_name("redis-cli");
    let server = Server::start(&binary);
    let mut connection = server.connect();
    dataset::fill(&mut connection, keys);
    println!("# Scan of {keys} keys and six giants\n\nServer: {}.", describe(&mut connection));

    let port = server.port().to_string();
    let ours = |rate: &str| {
        let mut command = Command::new(BIGKEYS);
        command.args(["scan", "-p", &port, "--rate", rate, "--no-progress"]);
        command
    };
    let theirs = |mode: &str| {
        let mut command = Command::new(&redis_cli);
        command.args(["-p", &port, mode]);
        command
    };
    println!("\n## Rounds\n\n| round | tool | wall s | server CPU s | server busy | client memory MiB |");
    println!("|---|---|---|---|---|---|");
    let alone = std::env::args().any(|arg| arg == "--alone");
    let mut runs: [Vec<Run>; 3] = Default::default();
    for round in 1..=rounds {
        let commands = [
            ("bigkeys scan --rate max", ours("max")),
            ("redis-cli --memkeys", theirs("--memkeys")),
            ("redis-cli --bigkeys", theirs("--bigkeys")),
        ];
        for (index, (name, command)) in commands.into_iter().enumerate().take(if alone { 1 } else { 3 }) {
            let run = measure(command, &mut connection);
            println!(
                "| {round} | `{name}` | {:.2} | {:.2} | {:.0} % | {:.1} |",
                run.wall_s,
                run.cpu_s,
                100.0 * run.cpu_s / run.wall_s,
                run.memory_mib
            );
            runs[index].push(run);
        }
    }
    if alone {
        return;
    }
    if rounds > 0 {
        summarise(&runs);
    }
    let mut default_rate = ours("10k/s");
    default_rate.args(["--format", "json"]);
    watch_default_rate(default_rate, &server);
    watch_fixed_rate(ours("5k/s"), &mut connection);
}

/// What one scan took.
struct Run {
    wall_s: f64,
    cpu_s: f64,
    memory_mib: f64,
}

fn measure(mut command: Command, connection: &mut Connection) -> Run {
    let cpu_before = cpu_s(connection);
    let started = Instant::now();
    let mut child = quietly(&mut command);
    let memory_mib = memory_until_exit(&mut child);
    let wall_s = started.elapsed().as_secs_f64();
    Run { wall_s, cpu_s: cpu_s(connection) - cpu_before, memory_mib }
}

fn quietly(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the tool starts")
}

fn cpu_s(connection: &mut Connection) -> f64 {
    let info = connection.info("cpu");
    let seconds = |name: &str| info[name].parse::<f64>().expect("seconds");
    seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread")
}

/// Waits for a process and returns its peak memory: `VmHWM` only ever rises, so the last look will do.
fn memory_until_exit(child: &mut Child) -> f64 {
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0.0;
    while child.try_wait().expect("the tool can be waited for").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kib) = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()) {
            peak_kib = kib;
        }
        thread::sleep(MEMORY_INTERVAL);
    }
    peak_kib / 1024.0
}

type Figure = (&'static str, fn(&Run) -> f64);

fn summarise(runs: &[Vec<Run>; 3]) {
    let middle = |runs: &[Run], value: fn(&Run) -> f64| median(runs.iter().map(value).collect());
    let [ours, memkeys, bigkeys] = runs;
    println!(
        "\n## Medians\n\n| | bigkeys | --memkeys | --bigkeys | to --memkeys | to --bigkeys |\n|---|---|---|---|---|---|"
    );
    let values: [Figure; 3] = [
        ("wall s", |run| run.wall_s),
        ("server CPU s", |run| run.cpu_s),
        ("client memory MiB", |run| run.memory_mib),
    ];
    for (name, value) in values {
        let (a, b, c) = (middle(ours, value), middle(memkeys, value), middle(bigkeys, value));
        println!("| {name} | {a:.2} | {b:.2} | {c:.2} | {:.2} | {:.2} |", a / b, a / c);
    }
    let busy = middle(ours, |run| run.cpu_s / run.wall_s);
    println!("\nServer busy during `bigkeys scan --rate max`, from start to end: {:.0} %.", 100.0 * busy);
}

/// What another client waits while a scan runs at the default rate, and what the scan's own canary saw.
fn watch_default_rate(mut command: Command, server: &Server) {
    let before = victim(server, || thread::sleep(Duration::from_secs(5)));
    let mut report = String::new();
    let during = victim(server, || {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the tool starts");
        thread::sleep(DEFAULT_RATE_WINDOW);
        // SIGINT: the scan ends with a report of what it saw.
        let pid = child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status().expect("kill is there");
        child.stdout.take().expect("piped").read_to_string(&mut report).expect("JSON is text");
        child.wait().expect("the tool ends");
    });
    println!("\n## A scan at the default rate, for {} s\n", DEFAULT_RATE_WINDOW.as_secs());
    println!("| | n | p50 us | p99 us | max us |\n|---|---|---|---|---|");
    for (name, mut waits) in
        [("another client (GET each ms), before", before), ("another client, during", during)]
    {
        waits.sort();
        let at = |part: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
            let index = (part * (waits.len() - 1) as f64) as usize;
            waits[index].as_micros()
        };
        println!("| {name} | {} | {} | {} | {} |", waits.len(), at(0.5), at(0.99), at(1.0));
    }
    let report: serde_json::Value = serde_json::from_str(&report).expect("the report is JSON");
    for when in ["before", "during"] {
        let canary = &report["summary"]["canary"][when];
        let us = |field: &str| (canary[field].as_f64().expect("milliseconds") * 1000.0).round();
        println!(
            "| the canary (PING), {when} | {} | {} | {} | {} |",
            canary["count"],
            us("p50_ms"),
            us("p99_ms"),
            us("max_ms")
        );
    }
}

/// Measures GETs, one each millisecond, while something happens.
fn victim(server: &Server, work: impl FnOnce()) -> Vec<Duration> {
    let mut connection = server.connect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut waits = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let started = Instant::now();
                connection.run("GET session:1");
                waits.push(started.elapsed());
                thread::sleep(Duration::from_millis(1));
            }
            waits
        });
        work();
        done.store(true, Ordering::Relaxed);
        waits.join().expect("the victim ends")
    })
}

/// The rate that the server itself counts.
fn watch_fixed_rate(mut command: Command, connection: &mut Connection) {
    let mut child = quietly(&mut command);
    thread::sleep(Duration::from_secs(2));
    let processed = |connection: &mut Connection| {
        connection.info("stats")["total_commands_processed"].parse::<f64>().expect("a count")
    };
    let (before, started) = (processed(connection), Instant::now());
    thread::sleep(RATE_WINDOW);
    let (after, elapsed) = (processed(connection), started.elapsed().as_secs_f64());
    stop(&mut child);
    let rate = (after - before) / elapsed;
    println!("\n## `--rate 5k/s`, counted by the server over {elapsed:.1} s\n");
    println!(
        "{rate:.0} commands a second, {:+.1} % of 5000 (the canary's 20 PINGs a second are among them).",
        rate / 50.0 - 100.0
    );
}

fn stop(child: &mut Child) {
    child.kill().ok();
    child.wait().ok();
}
