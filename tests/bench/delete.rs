//! What other clients wait while a key is deleted: by DEL, by UNLINK, by `delete --safe`, and in chunks.
//!
//! ```text
//! cargo bench --bench delete                        # every part
//! cargo bench --bench delete -- waits               # what four other clients wait
//! cargo bench --bench delete -- busy                # how busy chunks keep the server, and the slowest command
//! cargo bench --bench delete -- small               # a million small keys, against redis-cli and xargs
//! cargo bench --bench delete -- waits --million redis-7.0.15=target/servers/redis-7.0.15/redis-server
//! ```
//!
//! `--million` leaves out what has five million elements; `NAME=PATH` names the servers.
//!
//! Needs the servers below `target/servers` (`tests/run --servers`) and some 6 GB of memory. Prints Markdown
//! tables and all rows as CSV.

#[path = "lab.rs"]
mod lab;
#[path = "victims.rs"]
mod victims;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::{Binary, Connection, Server, binaries, describe};
use victims::{Waits, watch};

const BIGKEYS: &str = env!("CARGO_BIN_EXE_bigkeys");
const SERVERS: [&str; 3] = ["redis-7.0.15", "redis-8.2.3", "valkey-9.1.2"];
const SMALL_KEYS: u64 = 1_000_000;
/// Commands of ours that take longer are counted.
const SLOW_US: u64 = 5_000;

/// What is deleted.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    Set(u64),
    Hash(u64),
    Zset(u64),
    List(u64),
    String,
    FatHash,
    Stream,
}

const VALUES: [(Value, &str); 10] = [
    (Value::Set(1_000_000), "set of 1M"),
    (Value::Set(5_000_000), "set of 5M"),
    (Value::Hash(1_000_000), "hash of 1M"),
    (Value::Hash(5_000_000), "hash of 5M"),
    (Value::Zset(1_000_000), "zset of 1M"),
    (Value::Zset(5_000_000), "zset of 5M"),
    (Value::List(1_000_000), "list of 1M"),
    (Value::String, "string of 300 MB"),
    (Value::FatHash, "hash of 64 x 8 MB"),
    (Value::Stream, "stream, 500k pending in its second group"),
];

/// Returns what is deleted in this run.
fn values() -> impl Iterator<Item = (Value, &'static str)> {
    let only_a_million = std::env::args().any(|arg| arg == "--million");
    VALUES.into_iter().filter(move |(_, title)| !only_a_million || !title.ends_with("5M"))
}

const WAYS: [&str; 4] = ["DEL", "UNLINK", "safe", "chunked"];

fn main() {
    let parts: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|name| name == part);
    let servers: Vec<Binary> =
        binaries().into_iter().filter(|binary| SERVERS.contains(&binary.name.as_str())).collect();
    if wants("waits") {
        waits(&servers);
    }
    if wants("busy") {
        busy(&servers);
    }
    if wants("small") {
        small(&servers);
    }
}

// ---- what others wait

struct Row {
    server: String,
    value: &'static str,
    way: &'static str,
    before: Waits,
    during: Waits,
    took: Duration,
}

fn waits(servers: &[Binary]) {
    let mut rows = Vec::new();
    for binary in servers {
        let server = Server::start(binary);
        let mut driver = server.connect();
        println!("{}: {}.\n", binary.name, describe(&mut driver));
        for (value, title) in values() {
            for way in WAYS {
                if way == "chunked" && value == Value::String {
                    continue;
                }
                fill(&mut driver, value);
                let (before, ()) = watch(&server, || {}, || {});
                let (during, took) = watch(&server, || {}, || delete(&server, &mut driver, way, &[]));
                assert_eq!(driver.run("EXISTS giant").int(), 0, "{title} is gone by {way}");
                clean_up(&mut driver);
                eprintln!(
                    "{} {title} {way}: before {:.1} ms, during {:.1} ms, took {} ms",
                    binary.name,
                    before.max / 1e3,
                    during.max / 1e3,
                    took.as_millis()
                );
                rows.push(Row { server: binary.name.clone(), value: title, way, before, during, took });
            }
        }
    }
    tabulate(&rows);
}

fn tabulate(rows: &[Row]) {
    println!("## What another client waits at the most, in ms (above its own maximum before)\n");
    println!(
        "| server | value | DEL | UNLINK | delete --safe | --method chunked |\n|---|---|---|---|---|---|"
    );
    for server in SERVERS {
        for (_, value) in VALUES {
            let cell = |way: &str| {
                rows.iter().find(|row| row.server == server && row.value == value && row.way == way).map_or(
                    String::new(),
                    |row| {
                        let above = (row.during.max - row.before.max) / 1e3;
                        format!("{:.1} ({above:+.1})", row.during.max / 1e3)
                    },
                )
            };
            let cells = WAYS.map(cell);
            if cells.iter().any(|cell| !cell.is_empty()) {
                println!("| {server} | {value} | {} |", cells.join(" | "));
            }
        }
    }
    println!(
        "\n```csv\nserver,value,way,replies,before_p50_us,before_p99_us,before_max_us,before_over_10ms,p50_us,p99_us,max_us,over_10ms,took_ms"
    );
    for row in rows {
        let (before, during) = (row.before, row.during);
        println!(
            "{},\"{}\",{},{},{},{},{},{},{},{},{},{},{}",
            row.server,
            row.value,
            row.way,
            during.replies,
            before.p50,
            before.p99,
            before.max,
            before.late,
            during.p50,
            during.p99,
            during.max,
            during.late,
            row.took.as_millis()
        );
    }
    println!("```\n");
}

// ---- how busy chunks keep the server

fn busy(servers: &[Binary]) {
    println!(
        "## Chunks at full pace\n\n| server | value | took | server busy | commands of ours over 5 ms | slowest by SLOWLOG |\n|---|---|---|---|---|---|"
    );
    for binary in servers {
        let server = Server::start(binary);
        let mut driver = server.connect();
        driver.run(&format!("CONFIG SET slowlog-log-slower-than {SLOW_US}"));
        for (value, title) in values() {
            if matches!(value, Value::String) {
                continue;
            }
            fill(&mut driver, value);
            driver.run("SLOWLOG RESET");
            let before = cpu(&mut driver);
            let took = delete(&server, &mut driver, "chunked", &["--rate", "max"]);
            let used = cpu(&mut driver) - before;
            let slow: Vec<u64> = driver
                .run("SLOWLOG GET 128")
                .array()
                .into_iter()
                .map(|entry| entry.array()[2].int())
                .collect();
            println!(
                "| {} | {title} | {:.2} s | {:.0} % | {} | {:.1} ms |",
                binary.name,
                took.as_secs_f64(),
                100.0 * used / took.as_secs_f64(),
                slow.len(),
                slow.iter().max().copied().unwrap_or(0) as f64 / 1e3
            );
            clean_up(&mut driver);
        }
    }
    println!();
}

/// Returns the seconds that the server's process has used. Its background thread has nothing to do here.
fn cpu(driver: &mut Connection) -> f64 {
    let info = driver.info("cpu");
    let seconds = |field: &str| info[field].parse::<f64>().expect("seconds");
    seconds("used_cpu_user") + seconds("used_cpu_sys")
}

// ---- a million small keys

fn small(servers: &[Binary]) {
    println!(
        "## A million small keys\n\n| server | by | took | others waited at the most | at p99 |\n|---|---|---|---|---|"
    );
    for binary in servers {
        let server = Server::start(binary);
        let mut driver = server.connect();
        for by in ["redis-cli and xargs", "bigkeys"] {
            for n in 0..SMALL_KEYS {
                driver.push(&["SET", &format!("small:{n}"), "value"]);
            }
            driver.flush();
            let (waits, took) = watch(
                &server,
                || {},
                || {
                    if by == "bigkeys" {
                        bigkeys(&server, &["--match", "small:*", "--rate", "max"])
                    } else {
                        xargs(binary, &server)
                    }
                },
            );
            assert_eq!(driver.run("DBSIZE").int(), 1, "only the hot key is left by {by}");
            println!(
                "| {} | {by} | {:.2} s | {:.1} ms | {:.2} ms |",
                binary.name,
                took.as_secs_f64(),
                waits.max / 1e3,
                waits.p99 / 1e3
            );
        }
    }
    println!();
}

fn xargs(binary: &Binary, server: &Server) -> Duration {
    // The first of the servers comes with tools that all of them understand.
    let tools = binaries().into_iter().find(|other| other.name == "redis-7.0.15").expect("redis-7.0.15");
    let cli = tools.path.ancestors().find_map(|folder| {
        let cli = folder.join("redis-cli");
        cli.is_file().then_some(cli)
    });
    let cli = cli.unwrap_or_else(|| panic!("no redis-cli beside {}", binary.path.display()));
    let cli = std::path::absolute(cli).expect("a current folder");
    let (cli, port) = (cli.display(), server.port());
    let line =
        format!("{cli} -p {port} --scan --pattern 'small:*' | xargs {cli} -p {port} unlink > /dev/null");
    let started = Instant::now();
    let status = Command::new("sh").args(["-c", &line]).status().expect("a shell");
    assert!(status.success(), "{line}");
    started.elapsed()
}

// ---- deleting

fn delete(server: &Server, driver: &mut Connection, way: &str, extra: &[&str]) -> Duration {
    match way {
        "DEL" | "UNLINK" => {
            let started = Instant::now();
            driver.run(&format!("{way} giant"));
            started.elapsed()
        }
        "chunked" => bigkeys(server, &[&["giant", "--method", "chunked"], extra].concat()),
        _ => bigkeys(server, &[&["giant", "--quarantine-db", "15"], extra].concat()),
    }
}

fn bigkeys(server: &Server, args: &[&str]) -> Duration {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let started = Instant::now();
    let output = Command::new(BIGKEYS)
        .arg("delete")
        .args(args)
        .args(["--safe", "--yes", "--format", "csv", "--abort-latency", "10s"])
        .args(["--port", &server.port().to_string()])
        .current_dir(Path::new(folder.path()))
        .stdin(Stdio::null())
        .output()
        .expect("bigkeys runs");
    let took = started.elapsed();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    took
}

/// What was left to the other thread must not reach into the next case.
fn clean_up(driver: &mut Connection) {
    while driver.info("memory")["lazyfree_pending_objects"] != "0" {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn fill(driver: &mut Connection, value: Value) {
    let mut many = |command: &str, elements: u64, element: &dyn Fn(u64) -> Vec<String>| {
        for start in (0..elements).step_by(500) {
            let mut args = vec![command.to_owned(), "giant".to_owned()];
            args.extend((start..start + 500).flat_map(element));
            driver.push(&args);
        }
        driver.flush();
    };
    match value {
        Value::Set(elements) => many("SADD", elements, &|n| vec![format!("member:{n}")]),
        Value::Hash(elements) => {
            many("HSET", elements, &|n| vec![format!("field:{n}"), format!("value:{n}")]);
        }
        Value::Zset(elements) => {
            many("ZADD", elements, &|n| vec![(n * 7919 % elements).to_string(), format!("member:{n}")]);
        }
        Value::List(elements) => many("RPUSH", elements, &|n| vec![format!("element:{n}")]),
        Value::String => {
            driver.ask(&[&b"SET"[..], b"giant", &vec![b'x'; 300_000_000]]);
        }
        Value::FatHash => {
            let fat = vec![b'x'; 8 << 20];
            for n in 0..64 {
                driver.ask(&[&b"HSET"[..], b"giant", format!("field:{n}").as_bytes(), &fat]);
            }
        }
        Value::Stream => {
            for n in 1..=500_000 {
                driver.push(&["XADD", "giant", &format!("{n}-1"), "field", "value"]);
            }
            driver.flush();
            driver.run("XGROUP CREATE giant a $");
            driver.run("XGROUP CREATE giant b 0");
            for _ in 0..50 {
                driver.run("XREADGROUP GROUP b reader COUNT 10000 STREAMS giant >");
            }
            driver.run("XTRIM giant MAXLEN 0");
        }
    }
}
