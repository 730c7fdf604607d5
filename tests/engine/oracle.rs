//! The server is the oracle: it frees in the background exactly when its own effort exceeds 64.
//!
//! A value is made at 63, 64, 65 and 66 elements (nodes, for what is counted in nodes), the engine
//! judges it, and then it is removed in each of the four ways. `lazyfreed_objects` rises when, and only
//! when, the background thread was given something. The judgement must have said so.
//!
//! `free_effort` itself cannot be asked of any server. The threshold pins it: a model that counts one
//! too many or too few is wrong at 64 or 65.

use std::thread;
use std::time::{Duration, Instant};

use bigkeys::engine::key::KeyFacts;
use bigkeys::engine::risk::{Effect, Policy, Thresholds, judge};

use super::cases::cases;
use super::observe;
use crate::support::{Client, Lab, ServerKind, on_each_server};

/// A way in which a value goes.
#[derive(Debug, Clone, Copy)]
enum Removal {
    Unlink,
    Del,
    Expiry,
    Overwriting,
}

impl Removal {
    const ALL: [Self; 4] = [Self::Unlink, Self::Del, Self::Expiry, Self::Overwriting];

    /// Removes the value of `k`, and returns where the server freed it.
    fn carry_out(self, redis: &Client) -> Effect {
        let before = lazyfreed(redis);
        match self {
            Self::Unlink => redis.run("UNLINK k").is(1),
            Self::Del => redis.run("DEL k").is(1),
            Self::Overwriting => redis.run("SET k x").is("OK"),
            Self::Expiry => {
                redis.run("PEXPIRE k 1").is(1);
                while redis.run("EXISTS k").int() == 1 {}
            }
        }
        if lazyfreed(redis) > before { Effect::Background } else { Effect::Inline }
    }

    fn judged(self, facts: &KeyFacts, policy: &Policy) -> Effect {
        let effects = judge(facts, policy).effects;
        match self {
            Self::Unlink => effects.unlink,
            Self::Del => effects.del,
            Self::Expiry => effects.expire,
            Self::Overwriting => effects.overwrite,
        }
    }
}

/// Returns how many values the background thread has freed, once it has nothing left to do.
fn lazyfreed(redis: &Client) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(20);
    while redis.info("lazyfree_pending_objects") != "0" {
        assert!(Instant::now() < deadline, "the background thread does not finish");
        thread::yield_now();
    }
    // The thread counts a value as no longer pending right before it counts it as freed. Asking again
    // gives it the time of a round trip between the two.
    (0..2).map(|_| redis.info("lazyfreed_objects").parse().expect("a number")).max().expect("two readings")
}

fn set_lazyfree(redis: &Client, value: &str) {
    for setting in ["user-del", "expire", "server-del"] {
        redis.run(&format!("CONFIG SET lazyfree-lazy-{setting} {value}"));
    }
}

/// Goes through all cases at four sizes and in four ways, and returns what was wrong.
fn contradictions(kind: ServerKind, redis: &Client) -> Vec<String> {
    let policy = Policy { server: observe::profile(kind, redis), thresholds: Thresholds::default() };
    let mut wrong = Vec::new();
    for case in cases(kind) {
        for n in 63..=66 {
            for removal in Removal::ALL {
                redis.run("FLUSHALL SYNC");
                case.make(redis, n);
                if matches!(removal, Removal::Expiry) {
                    redis.run("PEXPIRE k 1000000").is(1);
                }
                let facts = observe::facts(redis, "k");
                let encoding = facts.encoding.as_ref().expect("asked for").as_str();
                assert_eq!(encoding, case.encoding, "{}: the case does not make what it says", case.name);

                let verdict = judge(&facts, &policy);
                let effort = case.effort.map(|effort| effort(n)).or_else(|| {
                    let stream = facts.stream?;
                    Some(stream.radix_tree_nodes + stream.groups * (1 + stream.first_group_pending))
                });
                if verdict.free_effort != effort {
                    let judged = verdict.free_effort;
                    wrong.push(format!("{} at {n}: effort {judged:?}, not {effort:?}", case.name));
                }
                let (judged, measured) = (removal.judged(&facts, &policy), removal.carry_out(redis));
                if judged != measured {
                    wrong.push(format!(
                        "{} at {n}, effort {effort:?}: {removal:?} was judged {judged:?} and is {measured:?}",
                        case.name
                    ));
                }
            }
        }
    }
    wrong
}

on_each_server! {
    fn effort_and_effects_are_the_servers_own_with_its_defaults(kind) {
        let lab = Lab::start(kind);
        let wrong = contradictions(kind, &lab.redis());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn effort_and_effects_are_the_servers_own_when_all_is_lazy(kind) {
        let lab = Lab::start(kind);
        set_lazyfree(&lab.redis(), "yes");
        let wrong = contradictions(kind, &lab.redis());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn effort_and_effects_are_the_servers_own_when_nothing_is_lazy(kind) {
        let lab = Lab::start(kind);
        set_lazyfree(&lab.redis(), "no");
        let wrong = contradictions(kind, &lab.redis());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
