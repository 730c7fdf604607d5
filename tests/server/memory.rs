//! MEMORY USAGE against a real server. `tests/bench/server_memory.rs` does the same for larger values and
//! records it; sizes are not timings, so the small ones may be asserted.

#[path = "../bench/value_kinds.rs"]
mod value_kinds;

use value_kinds::{NEWER_REDIS, REDIS, ValueKind, value_kinds};

use super::reply::Reply;
use super::target::{Client, Running, encode};
use crate::support::{Lab, ServerKind, on_servers};

/// Larger values take the debug build too long to fill; listpacks, which are searched from the front, sooner.
const ELEMENTS_MAX: usize = 10_000;
const LISTPACK_ELEMENTS_MAX: usize = 1_000;
/// How many percent the two may differ.
const DIFFERENCE_MAX: u64 = 25;

fn weigh(client: &mut Client, kind: &ValueKind, size: usize) -> (String, u64) {
    if let Some((parameter, value)) = kind.parameter {
        client.call(&["CONFIG", "SET", parameter, value]).expect("an answer");
    }
    client.run("FLUSHALL");
    // Pipelined, or a value of ten thousand elements takes seconds.
    let mut sent = 0;
    kind.build(size, |words| {
        client.send(&encode(words));
        sent += 1;
    });
    for _ in 0..sent {
        let reply = client.read().expect("an answer");
        assert!(!matches!(reply, Reply::Error(_)), "{}: {reply}", kind.kind);
    }
    let encoding = client.run("OBJECT ENCODING key").expect("an answer").to_string();
    match client.run("MEMORY USAGE key SAMPLES 0") {
        Some(Reply::Int(bytes)) => (encoding, u64::try_from(bytes).expect("a size")),
        other => panic!("MEMORY USAGE: {other:?}"),
    }
}

on_servers! {
    [redis_7_0 Redis70, redis_8_2 Redis82]
    fn values_weigh_what_they_do_in_redis(server) {
        let measure = if server == ServerKind::Redis70 { REDIS } else { NEWER_REDIS };
        let lab = Lab::start(server);
        let mut failures = Vec::new();
        for kind in value_kinds().into_iter().filter(|kind| kind.measure == measure) {
            let bundled = Running::start();
            let (mut ours, mut real) = (bundled.client(), Client::connect(&lab.address().to_string()));
            let max = if kind.encoding == "listpack" { LISTPACK_ELEMENTS_MAX } else { ELEMENTS_MAX };
            for size in kind.sizes.iter().copied().filter(|size| *size <= max) {
                let (encoding, ours) = weigh(&mut ours, &kind, size);
                let (_, real) = weigh(&mut real, &kind, size);
                assert_eq!(encoding, format!("\"{}\"", kind.encoding), "{} of {size}", kind.kind);
                if ours.abs_diff(real) * 100 > real * DIFFERENCE_MAX {
                    failures.push(format!("{} {encoding} of {size}: {ours}, Redis says {real}", kind.kind));
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
