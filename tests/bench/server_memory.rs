//! What the bundled server says a value takes, against what a real one says.
//!
//! ```text
//! cargo bench --bench server_memory                 # MEMORY USAGE by type, encoding and size
//! cargo bench --bench server_memory -- --dataset    # a million keys: used_memory and resident memory
//! ```
//!
//! Needs Redis 7.0.15 and 8.2.3 below `target/servers` (`tests/run --servers`). Writes CSV to stdout; the first
//! stands as a table in docs/compatibility.md.

mod dataset;
#[path = "lab.rs"]
mod lab;
mod value_kinds;

use lab::{Binary, Connection, Server, binaries};
use value_kinds::{REDIS, ValueKind, value_kinds};

const BIGKEYS: &str = env!("CARGO_BIN_EXE_bigkeys");
/// Keys of the dataset, giants aside.
const DATASET_KEYS: u64 = 1_000_000;

fn main() {
    let binaries = binaries();
    if std::env::args().any(|arg| arg == "--dataset") {
        whole(&binaries);
    } else {
        values(&binaries);
    }
}

fn binary<'a>(binaries: &'a [Binary], name: &str) -> &'a Binary {
    let found = binaries.iter().find(|binary| binary.name == name);
    found.unwrap_or_else(|| panic!("{name} is not below target/servers: run tests/run --servers"))
}

fn values(binaries: &[Binary]) {
    println!("kind,encoding,elements,redis_bytes,bundled_bytes,redis_used_memory,bundled_used_memory,redis");
    for kind in value_kinds() {
        let real = Server::start(binary(binaries, kind.measure));
        let ours = Server::start_bundled(BIGKEYS);
        let mut connections = [real.connect(), ours.connect()];
        for size in kind.sizes {
            let [(real, real_used), (ours, ours_used)] =
                connections.each_mut().map(|connection| weigh(connection, &kind, *size));
            let ValueKind { kind, encoding, measure, .. } = &kind;
            let kind = kind.replace(',', ";");
            println!("{kind},{encoding},{size},{real},{ours},{real_used},{ours_used},{measure}");
        }
    }
}

/// Builds the value and returns what MEMORY USAGE says, and by how much `used_memory` grew.
fn weigh(connection: &mut Connection, kind: &ValueKind, size: usize) -> (u64, u64) {
    if let Some((parameter, value)) = kind.parameter {
        connection.ask(&["CONFIG", "SET", parameter, value]);
    }
    connection.run("FLUSHALL SYNC");
    let empty = used_memory(connection);
    kind.build(size, |words| connection.push(words));
    connection.flush();
    let used = used_memory(connection).saturating_sub(empty);
    (connection.run("MEMORY USAGE key SAMPLES 0").int(), used)
}

fn used_memory(connection: &mut Connection) -> u64 {
    connection.info("memory")["used_memory"].parse().expect("a number")
}

fn whole(binaries: &[Binary]) {
    println!("server,keys,used_memory,resident_bytes,resident_bytes_max");
    let real = Server::start(binary(binaries, REDIS));
    let ours = Server::start_bundled(BIGKEYS);
    for (name, server) in [(REDIS, real), ("bundled", ours)] {
        dataset::fill(&mut server.connect(), DATASET_KEYS);
        // A new connection: the buffers that took the giants are gone with the old one.
        let mut connection = server.connect();
        let keys = connection.run("DBSIZE").int();
        let used = used_memory(&mut connection);
        let pid = &connection.info("server")["process_id"];
        let [now, max] = ["VmRSS:", "VmHWM:"].map(|field| resident(pid, field));
        println!("{name},{keys},{used},{now},{max}");
    }
}

/// Returns a field of the process's status, in bytes.
fn resident(pid: &str, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field is there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
