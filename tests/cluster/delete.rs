//! Deleting in clusters: each key on its primary, whoever that is by then.

use std::collections::BTreeSet;
use std::fs;

use crate::delete::ground::{Deletion, in_db_0, only_gone};
use crate::support::{Bigkeys, CALM, Cluster, ClusterOptions, Exit, on_each_cluster_server, tag_in};

const SLOTS: [u16; 6] = [50, 3_000, 5_600, 9_000, 11_000, 16_000];

/// Fills a cluster with strings, a big key of each type in each third of the slots, and neighbours.
fn fill(cluster: &Cluster, strings: usize) -> Vec<String> {
    let names: Vec<String> = (0..strings).map(|n| format!("small:{n}")).collect();
    cluster.pipeline(names.iter().map(|name| ["SET", name, "value"]));
    cluster.pipeline((0..50).map(|n| ["SET".to_owned(), format!("neighbour:{n}"), "v".to_owned()]));
    for slot in SLOTS {
        let tag = tag_in(slot);
        let words = |first: &str, kind: &str| vec![first.to_owned(), format!("big:{{{tag}}}:{kind}")];
        let mut commands =
            [words("SADD", "set"), words("HSET", "hash"), words("RPUSH", "list"), words("ZADD", "zset")];
        for member in 0..700 {
            commands[0].push(format!("m{member}"));
            commands[1].extend([format!("f{member}"), "v".to_owned()]);
            commands[2].push(format!("an element of a list, number {member}"));
            commands[3].extend([member.to_string(), format!("m{member}")]);
        }
        cluster.pipeline(commands);
    }
    names
}

fn big() -> Vec<String> {
    let kinds = ["set", "hash", "list", "zset"];
    SLOTS.iter().flat_map(|slot| kinds.map(|kind| format!("big:{{{}}}:{kind}", tag_in(*slot)))).collect()
}

/// Prepares a slow deletion, so that something can happen meanwhile.
fn slow(cluster: &Cluster, rate: &str, timeout: &str) -> Bigkeys {
    cluster
        .bigkeys([
            "delete",
            "--safe",
            "--yes",
            "--audit",
            "slow.ndjson",
            "--progress",
            "plain",
            "--rate",
            rate,
        ])
        .args(["--timeout", timeout, "--connect-timeout", "1s"])
        .args(CALM)
}

on_each_cluster_server! {
    fn every_method_works_on_every_shard(kind) {
        let cluster = Cluster::start(kind);
        let names = fill(&cluster, 2_000);
        let before = cluster.keyspace();
        // Told of a replica: keys are deleted on primaries all the same.
        let port = cluster.address(4).port();
        let done = Deletion::new(cluster.dir(), port, ["--match", "small:*"]).exits(Exit::Done);
        only_gone(&before, &cluster.keyspace(), &in_db_0(&names), &done.scene());
        done.audit_is_sound();
        let nodes: BTreeSet<String> =
            done.rows("intent").iter().filter_map(|row| row["node"].as_str().map(str::to_owned)).collect();
        let masters: BTreeSet<String> = (0..3).map(|node| cluster.address(node).to_string()).collect();
        assert_eq!(nodes, masters, "each on the primary that holds it");

        for method in ["unlink", "chunked"] {
            let before = cluster.keyspace();
            let all = big();
            let mut deletion = cluster.delete(["--method", method]);
            for name in &all {
                deletion = deletion.arg(name);
            }
            let done = deletion.exits(Exit::Done);
            only_gone(&before, &cluster.keyspace(), &in_db_0(&all), &done.scene());
            done.audit_is_sound();
            fill(&cluster, 0);
        }
        // A row of a scan, though a replica told it.
        let rows = cluster.bigkeys(["scan", "--format", "csv", "--match", "big:*", "--min-elements", "1"]).args(CALM).stdout();
        let before = cluster.keyspace();
        fs::write(cluster.dir().join("rows.csv"), rows).expect("a writable folder");
        let done = cluster.delete(["--from", "rows.csv"]).exits(Exit::Done);
        only_gone(&before, &cluster.keyspace(), &in_db_0(big()), &done.scene());
        let strange = "node,db,key,key_encoding\n127.0.0.1:1,0,neighbour:1,plain\n";
        fs::write(cluster.dir().join("strange.csv"), strange).expect("a writable folder");
        cluster.bigkeys(["delete", "--from", "strange.csv"]).exits(Exit::Failed).stderr_has("127.0.0.1:1");
    }

    fn a_key_that_changes_between_plan_and_act_is_left_alone(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0));
        fill(&cluster, 0);
        let rows = cluster.bigkeys(["scan", "--format", "csv", "--match", "big:*", "--all-keys"]).args(CALM).stdout();
        fs::write(cluster.dir().join("rows.csv"), rows).expect("a writable folder");
        let changed = format!("big:{{{}}}:set", tag_in(SLOTS[3]));
        let words = ["SADD".to_owned(), changed.clone()];
        let more = words.into_iter().chain((0..500).map(|n| format!("more-{n}")));
        cluster.pipeline([more.collect::<Vec<_>>()]);
        let before = cluster.keyspace();
        let gone: Vec<String> = big().into_iter().filter(|name| *name != changed).collect();
        let done = cluster.delete(["--from", "rows.csv"]).exits(Exit::Partial);
        only_gone(&before, &cluster.keyspace(), &in_db_0(&gone), &done.scene());
        done.left(&changed, "changed");
    }

    fn slots_that_move_while_keys_are_deleted_are_followed(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0));
        fill(&cluster, 300);
        let mut tagged = Vec::new();
        let slots: Vec<u16> = (0..8).map(|n| 300 + n * 600).collect();
        for slot in &slots {
            tagged.extend((0..40).map(|n| format!("move:{{{}}}:{n}", tag_in(*slot))));
        }
        cluster.pipeline(tagged.iter().map(|name| ["SET", name, "v"]));
        let before = cluster.keyspace();
        // One by one, so that there is time.
        let running = slow(&cluster, "200/s", "4s").args(["--match", "move:*", "--method", "expire", "--expire-after", "1h"]).start();
        running.wait_for_stderr("audit:");
        for slot in &slots {
            cluster.move_slot(*slot, 2);
        }
        let outcome = running.finish().exits(Exit::Done);
        assert_eq!(cluster.keyspace().len(), before.len(), "{}", outcome.scene());
        for name in &tagged {
            let ttl = cluster.run(&format!("TTL {name}")).int();
            assert!(ttl > 0, "{name} has no time to live: {ttl}\n{}", outcome.scene());
        }
        for n in 0..50 {
            cluster.run(&format!("TTL neighbour:{n}")).is(-1);
        }
    }

    fn a_slot_half_way_is_waited_for(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0));
        fill(&cluster, 0);
        let tag = tag_in(700);
        let names: Vec<String> = (0..60).map(|n| format!("half:{{{tag}}}:{n}")).collect();
        cluster.pipeline(names.iter().map(|name| ["SET", name, "v"]));
        let before = cluster.keyspace();
        fs::write(cluster.dir().join("names.csv"), format!("key\n{}\n", names.join("\n"))).expect("writable");
        cluster.begin_move(700, 1);
        cluster.move_keys(700, 1, 25);
        // Not whole: no plan, and nothing is deleted.
        cluster.bigkeys(["delete", "--match", "half:*", "--timeout", "1s"]).args(CALM).exits(Exit::Failed);
        cluster.move_keys(700, 1, usize::MAX);
        cluster.end_move(700, 1);
        assert_eq!(cluster.keyspace(), before);
        let done = cluster.delete(["--from", "names.csv"]).exits(Exit::Done);
        only_gone(&before, &cluster.keyspace(), &in_db_0(&names), &done.scene());
    }

    fn a_failover_while_keys_are_deleted_is_followed(kind) {
        let cluster = Cluster::start(kind);
        let names = fill(&cluster, 900);
        cluster.catch_up();
        let running = slow(&cluster, "300/s", "4s").args(["--match", "small:*", "--method", "expire", "--expire-after", "1h"]).start();
        running.wait_for_stderr("audit:");
        cluster.nodes.kill(1);
        let outcome = running.finish().exits(Exit::Done);
        for name in &names {
            let ttl = cluster.run(&format!("TTL {name}")).int();
            assert!(ttl > 0, "{name} has no time to live: {ttl}\n{}", outcome.scene());
        }
    }

    fn without_a_shard_the_run_is_not_whole_and_can_be_finished(kind) {
        let options = ClusterOptions::default().replicas(0).config("cluster-require-full-coverage no");
        let cluster = Cluster::with(kind, options);
        let names = fill(&cluster, 900);
        let before = cluster.keyspace();
        let running = slow(&cluster, "400/s", "1s").args(["--match", "small:*", "--method", "expire", "--expire-after", "1h"]).start();
        running.wait_for_stderr("audit:");
        cluster.nodes.pause(2);
        let outcome = running.finish().exits(Exit::Partial);
        outcome.stderr_has("--resume");
        cluster.nodes.resume(2);
        cluster.settle();
        cluster
            .bigkeys(["delete", "--resume", "slow.ndjson", "--safe", "--yes", "--rate", "max"])
            .args(CALM)
            .exits(Exit::Done);
        assert_eq!(cluster.keyspace().len(), before.len());
        for name in &names {
            // As the first run was told, and not the ten minutes of the default.
            let ttl_s = cluster.run(&format!("TTL {name}")).int();
            assert!(ttl_s > 3_000, "{name} has a time to live of {ttl_s} s");
        }
    }
}
