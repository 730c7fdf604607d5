//! Measures how long `DEL` holds the command thread, by type, size and server: the constants of
//! `engine::risk::stall` come from here.
//!
//! ```text
//! cargo bench --bench stall                  # every server below target/servers
//! cargo bench --bench stall -- NAME=PATH ..  # these servers
//! ```
//!
//! Writes one CSV row for each case to stdout. The times are the server's own (`usec` of commandstats), so
//! neither the network nor this client is in them.

mod lab;

use lab::{Connection, Server, binaries, describe};

/// Deletes for each case; the 1M cases take fewer, because building them is slow.
const REPEATS: usize = 5;
const REPEATS_LARGE: usize = 3;

/// A value to build: kind, elements, bytes of each.
#[derive(Clone, Copy)]
struct Case {
    kind: Kind,
    elements: usize,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Set,
    Hash,
    Zset,
    List,
    Stream,
    Pending,
    String,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Hash => "hash",
            Self::Zset => "zset",
            Self::List => "list",
            Self::Stream => "stream",
            Self::Pending => "pending",
            Self::String => "string",
        }
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |kind, elements, bytes| cases.push(Case { kind, elements, bytes });
    for elements in [1_000, 10_000, 100_000, 1_000_000] {
        add(Kind::Set, elements, 10);
        add(Kind::Hash, elements, 10);
        add(Kind::Zset, elements, 10);
    }
    for (elements, bytes) in [(100_000, 200), (100_000, 1 << 10), (20_000, 10 << 10), (2_000, 100 << 10)] {
        add(Kind::Set, elements, bytes);
        add(Kind::Hash, elements, bytes);
    }
    for (elements, bytes) in [(200, 1 << 20), (64, 4 << 20), (64, 8 << 20)] {
        add(Kind::Hash, elements, bytes);
        add(Kind::List, elements, bytes);
    }
    for (elements, bytes) in [
        (100_000, 10),
        (1_000_000, 10),
        (100_000, 100),
        (100_000, 1 << 10),
        (20_000, 9 << 10),
        (2_000, 100 << 10),
    ] {
        add(Kind::List, elements, bytes);
    }
    for elements in [10_000, 100_000, 1_000_000] {
        add(Kind::Stream, elements, 10);
    }
    for elements in [1_000, 10_000, 100_000] {
        add(Kind::Pending, elements, 10);
    }
    for mib in [1, 2, 4, 6, 7, 8, 16, 32, 64, 128, 256, 511] {
        add(Kind::String, 1, mib << 20);
    }
    cases
}

fn main() {
    println!("server,version,kind,elements,element_bytes,encoding,memory_usage,min_us,median_us,max_us");
    for binary in binaries() {
        let server = Server::start(&binary);
        let mut connection = server.connect();
        let version = describe(&mut connection).replace(',', ";");
        // Valkey >= 8.0 would hand DEL to the background thread.
        connection.run("CONFIG SET lazyfree-lazy-user-del no");
        for case in cases() {
            measure(&mut connection, &binary.name, &version, case);
        }
    }
}

fn measure(connection: &mut Connection, server: &str, version: &str, case: Case) {
    let repeats = if case.elements >= 1_000_000 { REPEATS_LARGE } else { REPEATS };
    let mut encoding = String::new();
    let mut usage = 0;
    let mut times: Vec<u64> = (0..repeats)
        .map(|_| {
            build(connection, case);
            encoding = connection.run("OBJECT ENCODING key").text();
            usage = connection.run("MEMORY USAGE key").int();
            connection.server_us("DEL key")
        })
        .collect();
    times.sort_unstable();
    println!(
        "{server},{version},{},{},{},{encoding},{usage},{},{},{}",
        case.kind.name(),
        case.elements,
        case.bytes,
        times[0],
        times[times.len() / 2],
        times[times.len() - 1],
    );
}

/// Returns a number that looks random and never repeats: scores in insertion order would be too kind.
fn scatter(index: usize) -> usize {
    index.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF
}

fn build(connection: &mut Connection, case: Case) {
    let Case { kind, elements, bytes } = case;
    if kind == Kind::String {
        connection.run(&format!("SETRANGE key {} x", bytes - 1));
        return;
    }
    for index in 0..elements {
        let name = format!("{index:0>10}");
        let filled = if bytes > name.len() {
            format!("{name}{}", "x".repeat(bytes - name.len()))
        } else {
            name.clone()
        };
        match kind {
            Kind::Set => connection.push(&["SADD", "key", &filled]),
            Kind::Hash => connection.push(&["HSET", "key", &name, &filled]),
            Kind::Zset => connection.push(&["ZADD", "key", &scatter(index).to_string(), &filled]),
            Kind::List => connection.push(&["RPUSH", "key", &filled]),
            Kind::Stream | Kind::Pending => {
                // Three milliseconds apart, as the clock would give them.
                let id = format!("{}-0", 1_700_000_000_000_u64 + 3 * index as u64);
                connection.push(&["XADD", "key", &id, "f", &filled]);
            }
            Kind::String => unreachable!("built above"),
        }
    }
    connection.flush();
    if kind == Kind::Pending {
        connection.run("XGROUP CREATE key group 0");
        connection.run(&format!("XREADGROUP GROUP group consumer COUNT {elements} STREAMS key >"));
    }
}
