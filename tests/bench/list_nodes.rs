//! Compares the estimated number of a list's nodes with the real one (`ql_nodes` of `DEBUG OBJECT`), over
//! element sizes, directions, lengths and node limits.
//!
//! ```text
//! cargo bench --bench list_nodes                  # every server below target/servers
//! cargo bench --bench list_nodes -- NAME=PATH ..  # these servers
//! ```
//!
//! `CONTENT=spread` in the environment takes one content only. Writes one CSV row for each list to stdout and the table of docs/risk-model.md to stderr. It asks of a
//! list exactly what `probe_plan` says, as the scan does.

mod lab;

use std::collections::{BTreeMap, BTreeSet};

use bigkeys::engine::key::{
    Allocator, EncodingLimits, Flavour, Lazyfree, ListNodeLimit, Role, ServerProfile, Version,
};
use bigkeys::engine::risk::quicklist::{Element, LARGE_ELEMENT_BYTES, ListProbe, estimate_nodes, probe_plan};
use lab::{Connection, Server, binaries};

const LIMITS: [i64; 4] = [-1, -2, -5, 64];
const KEY: &str = "list";

/// What the elements are, and the lengths of the lists made of them.
const CONTENTS: [(Content, [usize; 3]); 10] = [
    (Content::Number, [3_000, 30_000, 300_000]),
    (Content::Length(10), [2_000, 20_000, 200_000]),
    (Content::Length(100), [1_000, 10_000, 100_000]),
    (Content::Length(1_000), [300, 3_000, 20_000]),
    (Content::Length(3_000), [100, 1_000, 8_000]),
    (Content::Length(9_000), [70, 700, 3_000]),
    (Content::Length(20_000), [70, 500, 1_500]),
    (Content::Mixed, [200, 2_000, 8_000]),
    (Content::Halves, [200, 2_000, 20_000]),
    (Content::Spread, [300, 3_000, 12_000]),
];

#[derive(Clone, Copy, PartialEq)]
enum Content {
    Number,
    Length(usize),
    /// Each element of one of the six lengths, by chance.
    Mixed,
    /// The first half 10 bytes each, the second 9 000: nothing at the head tells of the tail.
    Halves,
    /// Any length from 10 to 20 480 bytes, each doubling as likely. Held out: the estimate was not made with it.
    Spread,
}

impl Content {
    fn name(self) -> String {
        match self {
            Self::Number => "numbers".to_owned(),
            Self::Length(length) => format!("{length} B"),
            Self::Mixed => "mixed".to_owned(),
            Self::Halves => "10 B then 9000 B".to_owned(),
            Self::Spread => "spread".to_owned(),
        }
    }

    fn element(self, index: usize, of: usize) -> Vec<u8> {
        let dice = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let length = match self {
            Self::Number => return (dice % 1_000_000).to_string().into_bytes(),
            Self::Length(length) => length,
            Self::Mixed => [10, 100, 1_000, 3_000, 9_000, 20_000][dice % 6],
            Self::Spread => (10 + (dice / 11) % 10) << (dice % 11),
            Self::Halves if index < of / 2 => 10,
            Self::Halves => 9_000,
        };
        vec![b'x'; length]
    }
}

/// Relative errors, of one content on one server.
type Errors = BTreeMap<(String, String), Vec<f64>>;

fn main() {
    println!("server,content,limit,direction,elements,memory_usage,nodes,estimated,error_percent");
    let mut errors = Errors::new();
    let mut servers = Vec::new();
    for binary in binaries() {
        let server = Server::start(&binary);
        let mut connection = server.connect();
        let mut profile = profile(&mut connection);
        servers.push(binary.name.clone());
        for limit in LIMITS {
            set_limit(&mut connection, limit);
            profile.limits.list_node = ListNodeLimit::from_setting(limit);
            for (content, lengths) in CONTENTS {
                if std::env::var("CONTENT").is_ok_and(|only| only != content.name()) {
                    continue;
                }
                for length in lengths {
                    for push in ["RPUSH", "LPUSH"] {
                        fill(&mut connection, content, length, push);
                        let Some(nodes) = real_nodes(&mut connection) else { continue };
                        let (bytes, estimated) = estimate(&mut connection, &profile);
                        let error = (estimated as f64 - nodes as f64) / nodes as f64 * 100.0;
                        println!(
                            "{},{},{limit},{push},{length},{bytes},{nodes},{estimated},{error:.2}",
                            binary.name,
                            content.name()
                        );
                        errors.entry((content.name(), binary.name.clone())).or_default().push(error.abs());
                    }
                }
            }
        }
    }
    table(&errors, &servers);
}

fn set_limit(connection: &mut Connection, limit: i64) {
    // The older name is an alias everywhere.
    connection.run(&format!("CONFIG SET list-max-ziplist-size {limit}"));
}

fn fill(connection: &mut Connection, content: Content, length: usize, push: &str) {
    connection.ask(&["DEL", KEY]);
    // From the front, the last element goes in first.
    for step in 0..length {
        let index = if push == "RPUSH" { step } else { length - 1 - step };
        connection.push(&[push.as_bytes(), KEY.as_bytes(), &content.element(index, length)]);
    }
    connection.flush();
}

/// `None`: it is no quicklist.
fn real_nodes(connection: &mut Connection) -> Option<u64> {
    let text = connection.ask(&["DEBUG", "OBJECT", KEY]).text();
    text.split(' ').find_map(|part| part.strip_prefix("ql_nodes:"))?.parse().ok()
}

fn estimate(connection: &mut Connection, server: &ServerProfile) -> (u64, u64) {
    let llen = connection.ask(&["LLEN", KEY]).int();
    let bytes = connection.ask(&["MEMORY", "USAGE", KEY]).int();
    let mut ends = 0;
    if bytes / llen <= LARGE_ELEMENT_BYTES {
        for index in ["0", "-1"] {
            ends = connection.ask(&["LINDEX", KEY, index]).text().len().max(ends);
        }
    }
    let plan = probe_plan(llen, bytes, ends as u64, server);
    let mut range = |from: i64, to: i64| -> Vec<Element> {
        connection
            .ask(&["LRANGE", KEY, &from.to_string(), &to.to_string()])
            .array()
            .iter()
            .map(|element| Element::of(element.text().as_bytes()))
            .collect()
    };
    let count = |elements: u64| i64::try_from(elements).expect("few");
    let head = if plan.head_elements > 0 { range(0, count(plan.head_elements) - 1) } else { Vec::new() };
    let tail = if plan.tail_elements > 0 { range(-count(plan.tail_elements), -1) } else { Vec::new() };
    let memory = plan
        .memory_samples
        .iter()
        .map(|samples| {
            let bytes = connection.ask(&["MEMORY", "USAGE", KEY, "SAMPLES", &samples.to_string()]).int();
            (*samples, bytes)
        })
        .collect();
    let probe = ListProbe { llen, memory, head, tail, key_len: KEY.len() as u64 };
    (bytes, estimate_nodes(&probe, server).expect("enough was answered"))
}

/// As far as the estimate needs it.
fn profile(connection: &mut Connection) -> ServerProfile {
    let server = connection.info("server");
    let memory = connection.info("memory");
    let (flavour, version) = match server.get("valkey_version") {
        Some(version) => (Flavour::Valkey, version),
        None => (Flavour::Redis, &server["redis_version"]),
    };
    ServerProfile {
        node: String::new(),
        flavour,
        version: Version::parse(version).expect("a version"),
        run_id: None,
        role: Role::Primary,
        cluster: false,
        allocator: if memory["mem_allocator"].starts_with("jemalloc") {
            Allocator::Jemalloc
        } else {
            Allocator::Libc
        },
        maxmemory_policy: None,
        used_memory_bytes: None,
        databases: None,
        lazyfree: Lazyfree::default(),
        limits: EncodingLimits::default(),
        access: BTreeMap::new(),
    }
}

/// Prints median and worst error for each content and server.
fn table(errors: &Errors, servers: &[String]) {
    eprintln!("| elements | {} |", servers.join(" | "));
    eprintln!("|---|{}", "---|".repeat(servers.len()));
    let contents: BTreeSet<&String> = errors.keys().map(|(content, _)| content).collect();
    for content in contents {
        let cells: Vec<String> =
            servers.iter().map(|server| cell(&errors[&(content.clone(), server.clone())])).collect();
        eprintln!("| {content} | {} |", cells.join(" | "));
    }
    let all: Vec<f64> = errors.values().flatten().copied().collect();
    eprintln!("all {} lists: {}", all.len(), cell(&all));
}

fn cell(errors: &[f64]) -> String {
    let mut errors = errors.to_vec();
    errors.sort_by(f64::total_cmp);
    format!("{:.2} / {:.1}", errors[errors.len() / 2], errors[errors.len() - 1])
}
