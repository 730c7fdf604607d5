//! A scan of three shards against one of a single server with as many keys.
//!
//! ```sh
//! cargo bench --bench cluster                       # three rounds of two million keys
//! cargo bench --bench cluster -- --keys 200000 --rounds 1
//! ```
//!
//! Needs Redis 7.0.15 below `target/servers` (`tests/run --servers`). Prints Markdown.

#[path = "lab.rs"]
mod lab;

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Connection, Server, describe, median, number, redis_7_0_15};

const BIGKEYS: &str = env!("CARGO_BIN_EXE_bigkeys");
const SHARDS: usize = 3;
const SLOTS: usize = 16_384;
/// Time between two looks at the client's memory, and at a cluster in the making.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

struct Run {
    wall_s: f64,
    /// Of all servers together.
    cpu_s: f64,
    memory_mib: f64,
}

fn main() {
    let (keys, rounds) = (number("--keys", 2_000_000), number("--rounds", 3));
    let binary = redis_7_0_15();
    let nodes: Vec<Server> = (0..SHARDS).map(|_| Server::start_node(&binary)).collect();
    let mut shards: Vec<Connection> = nodes.iter().map(Server::connect).collect();
    println!(
        "# A cluster of {SHARDS} shards against one server, {keys} keys\n\n{}\n",
        describe(&mut shards[0])
    );
    join(&nodes, &mut shards);
    let alone = Server::start(&binary);
    let mut single = [alone.connect()];
    fill(keys, &mut single, |_| 0);
    fill(keys, &mut shards, |name| usize::from(slot(name)) * SHARDS / SLOTS);

    println!("| round | servers | wall s | server CPU s | client memory MiB |\n|---|---|---|---|---|");
    let (mut of_one, mut of_shards) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        for (what, port, servers, runs) in [
            ("one", alone.port(), &mut single[..], &mut of_one),
            ("three shards", nodes[0].port(), &mut shards[..], &mut of_shards),
        ] {
            let run = scan(port, servers);
            println!("| {round} | {what} | {:.2} | {:.2} | {:.1} |", run.wall_s, run.cpu_s, run.memory_mib);
            runs.push(run);
        }
    }
    let middle = |runs: &[Run], of: fn(&Run) -> f64| median(runs.iter().map(of).collect());
    println!("\n## Medians\n\n| | one server | three shards | ratio |\n|---|---|---|---|");
    let figures: [Figure; 3] = [
        ("wall s", |run| run.wall_s),
        ("server CPU s", |run| run.cpu_s),
        ("client memory MiB", |run| run.memory_mib),
    ];
    for (name, of) in figures {
        let (one, three) = (middle(&of_one, of), middle(&of_shards, of));
        println!("| {name} | {one:.2} | {three:.2} | {:.2} |", three / one);
    }
}

type Figure = (&'static str, fn(&Run) -> f64);

/// Makes a cluster of the nodes, each with an equal part of the slots.
fn join(nodes: &[Server], shards: &mut [Connection]) {
    for (index, shard) in shards.iter_mut().enumerate() {
        shard.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
        // As `fill` divides them.
        let (first, last) = ((index * SLOTS).div_ceil(SHARDS), ((index + 1) * SLOTS).div_ceil(SHARDS) - 1);
        shard.run(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        for other in &nodes[..index] {
            let bus = other.connect().run("CONFIG GET cluster-port").array()[1].text();
            shard.run(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port()));
        }
    }
    for shard in shards {
        while !shard.run("CLUSTER INFO").text().contains("cluster_state:ok") {
            thread::sleep(LOOK_INTERVAL);
        }
    }
}

/// Fills servers with small strings and a hash of 200 fields for each ten thousand of them.
fn fill(keys: u64, servers: &mut [Connection], place: impl Fn(&str) -> usize) {
    for n in 0..keys {
        let name = format!("user:{n}:name");
        servers[place(&name)].push(&["SET", &name, "a value of some length"]);
        if n % 10_000 == 0 {
            let name = format!("user:{n}:cart");
            let mut words = vec!["HSET".to_owned(), name.clone()];
            words.extend((0..200).flat_map(|field| [format!("field:{field}"), field.to_string()]));
            servers[place(&name)].push(&words);
        }
    }
    for server in servers {
        server.flush();
    }
}

/// Returns the slot of a name without a hash tag: CRC16 (XMODEM), of the cluster specification.
fn slot(name: &str) -> u16 {
    let crc = name.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

fn scan(port: u16, servers: &mut [Connection]) -> Run {
    let cpu = |servers: &mut [Connection]| servers.iter_mut().map(cpu_s).sum::<f64>();
    let cpu_before = cpu(servers);
    let started = Instant::now();
    let mut child = Command::new(BIGKEYS)
        .args(["scan", "--rate", "max", "--format", "json", "--port", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("bigkeys starts");
    let status_path = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0.0;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        // It only ever rises, so the last look will do.
        let text = fs::read_to_string(&status_path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kib) = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()) {
            peak_kib = kib;
        }
        thread::sleep(LOOK_INTERVAL);
    };
    assert!(status.success(), "the scan is whole");
    let wall_s = started.elapsed().as_secs_f64();
    Run { wall_s, cpu_s: cpu(servers) - cpu_before, memory_mib: peak_kib / 1024.0 }
}

fn cpu_s(connection: &mut Connection) -> f64 {
    let info = connection.info("cpu");
    let seconds = |name: &str| info[name].parse::<f64>().expect("seconds");
    seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread")
}
