//! What other clients wait while something big happens, on the bundled server and on Redis 7.0.15.
//!
//! ```text
//! cargo bench --bench server_stall                # three rounds, the servers in turn
//! cargo bench --bench server_stall -- --rounds 5
//! ```
//!
//! Four threads loop GET on one hot key, each on a blocking socket of its own, and time each reply. Half a
//! second later one command is given, and they go on until half a second after it is done, for two seconds at
//! least: a stall that is one in ten thousand replies must show as such. Needs Redis 7.0.15 below
//! `target/servers` (`tests/run --servers`). Prints Markdown: medians, whether their shape is that of Redis, and
//! all rounds as CSV.

#[path = "lab.rs"]
mod lab;
#[path = "victims.rs"]
mod victims;

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::{Connection, Server, describe, median, number, redis_7_0_15};
use victims::{MARGIN, Waits, watch};

const BIGKEYS: &str = env!("CARGO_BIN_EXE_bigkeys");
/// Small keys in the keyspace, which KEYS and SCAN go through.
const KEYS: u64 = 1_000_000;
const ELEMENTS: u64 = 1_000_000;
const EXPIRING: u64 = 250_000;
/// From setting the TTLs of the storm to when they are due.
const STORM_IN: Duration = Duration::from_secs(8);

/// What happens meanwhile.
#[derive(Clone, Copy, PartialEq)]
enum Case {
    Nothing,
    Keys,
    Scan,
    Lrange,
    DelList,
    UnlinkList,
    DelSet,
    UnlinkSet,
    Expiry,
}

const CASES: [(Case, &str); 9] = [
    (Case::Nothing, "nothing"),
    (Case::Keys, "KEYS * of 1M"),
    (Case::Scan, "a full SCAN of 1M by 1000"),
    (Case::Lrange, "LRANGE 0 -1 of 1M"),
    (Case::DelList, "DEL of a 1M-int list"),
    (Case::UnlinkList, "UNLINK of a 1M-int list"),
    (Case::DelSet, "DEL of a 1M-member set"),
    (Case::UnlinkSet, "UNLINK of a 1M-member set"),
    (Case::Expiry, "250k keys expire at once"),
];

const SERVERS: [&str; 2] = ["bundled", "redis-7.0.15"];

/// One window, in microseconds.
struct Run {
    server: usize,
    case: Case,
    replies: usize,
    p50: f64,
    p99: f64,
    max: f64,
    late: f64,
    /// What the command took on the command thread; for the storm, from when it was due to the last key.
    took: f64,
}

fn main() {
    let redis = redis_7_0_15();
    let mut runs = Vec::new();
    let mut raw = "round,server,case,replies,p50_us,p99_us,max_us,over_10ms,command_us,rss_kib\n".to_owned();
    for round in 1..=number("--rounds", 3) {
        for (index, name) in SERVERS.into_iter().enumerate() {
            let server = if index == 0 { Server::start_bundled(BIGKEYS) } else { Server::start(&redis) };
            let mut driver = server.connect();
            if round == 1 {
                println!("{name}: {}.\n", describe(&mut driver));
            }
            driver.run(&format!("DEBUG POPULATE {KEYS}"));
            for (case, title) in CASES {
                prepare(&mut driver, case);
                let run = measure(&server, &mut driver, index, case);
                let Run { replies, p50, p99, max, late, took, .. } = run;
                let rss = server.resident_kib();
                let row = format!("{round},{name},{title},{replies},{p50},{p99},{max},{late},{took},{rss}\n");
                raw.push_str(&row);
                eprintln!(
                    "{round} {name}: {title}: p50 {p50} p99 {p99} max {max} late {late} took {took} us"
                );
                runs.push(run);
                clean_up(&mut driver);
            }
        }
    }
    tabulate(&runs);
    judge(&runs);
    println!("\n## Rounds\n\n```csv\n{raw}```");
}

fn prepare(driver: &mut Connection, case: Case) {
    let mut fill = |command: &str, prefix: &str| {
        for start in (0..ELEMENTS).step_by(500) {
            let mut args = vec![command.to_owned(), "giant".to_owned()];
            args.extend((start..start + 500).map(|n| format!("{prefix}{n}")));
            driver.push(&args);
        }
        driver.flush();
    };
    match case {
        Case::Lrange | Case::DelList | Case::UnlinkList => fill("RPUSH", ""),
        Case::DelSet | Case::UnlinkSet => fill("SADD", "member:"),
        Case::Nothing | Case::Keys | Case::Scan | Case::Expiry => {}
    }
}

/// What UNLINK left to the other thread must not reach into the next case.
fn clean_up(driver: &mut Connection) {
    driver.run("UNLINK giant");
    while driver.info("memory")["lazyfree_pending_objects"] != "0" {
        thread::sleep(Duration::from_millis(20));
    }
}

fn measure(server: &Server, driver: &mut Connection, index: usize, case: Case) -> Run {
    let storm = (case == Case::Expiry).then(|| set_the_storm(driver));
    driver.run("CONFIG RESETSTAT");
    let until_the_storm = || {
        if let Some(due) = storm {
            sleep_until(due.saturating_sub(MARGIN));
        }
    };
    let (Waits { replies, p50, p99, max, late }, took) = watch(server, until_the_storm, || {
        act(driver, case).unwrap_or_else(|| server_us(driver, case) as f64)
    });
    Run { server: index, case, replies, p50, p99, max, late, took }
}

/// Gives the command; returns microseconds where the server does not count them.
fn act(driver: &mut Connection, case: Case) -> Option<f64> {
    match case {
        Case::Nothing => return Some(0.0),
        Case::Keys => driver.run_unheard("KEYS *"),
        Case::Scan => scan(driver),
        Case::Lrange => driver.run_unheard("LRANGE giant 0 -1"),
        Case::DelList | Case::DelSet => driver.run_unheard("DEL giant"),
        Case::UnlinkList | Case::UnlinkSet => driver.run_unheard("UNLINK giant"),
        Case::Expiry => {
            let started = Instant::now();
            while driver.run("DBSIZE").int() > KEYS + 1 {
                thread::sleep(Duration::from_millis(5));
            }
            return Some(started.elapsed().as_micros() as f64);
        }
    }
    None
}

fn server_us(driver: &mut Connection, case: Case) -> u64 {
    driver.us_since_reset(match case {
        Case::Keys => "keys",
        Case::Scan => "scan",
        Case::Lrange => "lrange",
        Case::DelList | Case::DelSet => "del",
        Case::UnlinkList | Case::UnlinkSet => "unlink",
        Case::Nothing | Case::Expiry => unreachable!("timed where it happens"),
    })
}

fn scan(driver: &mut Connection) {
    let mut cursor = "0".to_owned();
    loop {
        let page = driver.run(&format!("SCAN {cursor} COUNT 1000")).array();
        cursor = page[0].text();
        if cursor == "0" {
            return;
        }
    }
}

/// Makes the keys that expire together; returns when.
fn set_the_storm(driver: &mut Connection) -> Duration {
    let due = since_epoch() + STORM_IN;
    let due_ms = due.as_millis().to_string();
    for n in 0..EXPIRING {
        driver.push(&["SET", &format!("storm:{n}"), "value", "PXAT", &due_ms]);
    }
    driver.flush();
    assert!(since_epoch() + MARGIN < due, "the keys were not made in time");
    due
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970")
}

fn sleep_until(moment: Duration) {
    thread::sleep(moment.saturating_sub(since_epoch()));
}

fn middle(runs: &[Run], server: usize, case: Case, value: fn(&Run) -> f64) -> f64 {
    median(runs.iter().filter(|run| run.server == server && run.case == case).map(value).collect())
}

fn tabulate(runs: &[Run]) {
    println!("## Medians\n\nThe bundled server / Redis 7.0.15; milliseconds.\n");
    println!("| meanwhile | p50 | p99 | max | over 10 ms | the command |\n|---|---|---|---|---|---|");
    for (case, title) in CASES {
        let both = |value: fn(&Run) -> f64| [0, 1].map(|server| middle(runs, server, case, value));
        let ms = |value| both(value).map(|us| format!("{:.2}", us / 1000.0)).join(" / ");
        let late = both(|run| run.late).map(|count| format!("{count:.0}")).join(" / ");
        let [p50, p99, max] = [ms(|run| run.p50), ms(|run| run.p99), ms(|run| run.max)];
        println!("| {title} | {p50} | {p99} | {max} | {late} | {} |", ms(|run| run.took));
    }
}

/// Says whether the table has the shape that a Redis has, for each server.
fn judge(runs: &[Run]) {
    println!("\n## Shape\n");
    for (server, name) in SERVERS.into_iter().enumerate() {
        let max = |case| middle(runs, server, case, |run| run.max) / 1000.0;
        let p99 = |case| middle(runs, server, case, |run| run.p99) / 1000.0;
        let took = |case| middle(runs, server, case, |run| run.took) / 1000.0;
        let say = |holds: bool, what: String| {
            println!("- {name}: {}: {what}", if holds { "yes" } else { "NO" });
        };
        // Five busy threads on two CPUs wait for each other; what that makes is no stall.
        let calm = (2.0 * max(Case::Nothing)).max(10.0);
        let [scan, unlink_set, unlink_list] = [Case::Scan, Case::UnlinkSet, Case::UnlinkList].map(max);
        say(scan <= calm, format!("SCAN does not raise the max ({scan:.1} ms, calm is up to {calm:.1} ms)"));
        let (set, list) = (took(Case::DelSet), took(Case::DelList));
        say(
            set >= 30.0 * list,
            format!(
                "DEL of the set costs 30 times that of the list ({set:.1} ms, {list:.2} ms: {:.0})",
                set / list
            ),
        );
        let (shown, hidden) = (max(Case::DelSet), p99(Case::DelSet));
        say(
            shown >= 0.9 * set && hidden <= 0.1 * set,
            format!("it shows in max ({shown:.1} ms) but hardly in p99 ({hidden:.2} ms)"),
        );
        say(
            unlink_set.max(unlink_list) <= calm,
            format!("UNLINK does not show (set {unlink_set:.1} ms, list {unlink_list:.1} ms)"),
        );
    }
}
