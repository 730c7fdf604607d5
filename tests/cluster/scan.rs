//! The scan of clusters, while they rest and while they change.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{
    Bigkeys, CALM, Cluster, ClusterOptions, Exit, Scan, key_of, on_each_cluster_server, on_servers, slot_of,
    tag_in, wait_for,
};

/// Fills a cluster with small strings, and with a big set in each third of the slots.
fn fill(cluster: &Cluster, strings: usize) -> BTreeSet<Vec<u8>> {
    let mut names: BTreeSet<Vec<u8>> = (0..strings).map(|n| format!("small:{n}").into_bytes()).collect();
    cluster.pipeline(names.iter().map(|name| [b"SET".to_vec(), name.clone(), b"value".to_vec()]));
    for (slot, members) in [(100, 300), (6_000, 200), (16_000, 400)] {
        let name = format!("{{{}}}:set", tag_in(slot));
        let words = ["SADD".to_owned(), name.clone()];
        let all = words.into_iter().chain((0..members).map(|member| format!("member-{member}")));
        cluster.pipeline([all.collect::<Vec<_>>()]);
        names.insert(name.into_bytes());
    }
    cluster.catch_up();
    wait_for_replicas(cluster);
    names
}

/// Waits until every node tells clients of every replica: it does when it has heard how far each of them is.
fn wait_for_replicas(cluster: &Cluster) {
    let replicas = cluster.nodes.len() - cluster.masters().len();
    wait_for("replicas to be told", || {
        for node in cluster.nodes.up() {
            let ranges = cluster.redis(node).run("CLUSTER SLOTS");
            let told: BTreeSet<i64> = ranges
                .items()
                .iter()
                .flat_map(|range| &range.items()[3..])
                .map(|node| node.items()[1].int())
                .collect();
            if told.len() != replicas {
                return Err(format!("node {node} tells {} of {replicas}", told.len()));
            }
        }
        Ok(())
    });
}

/// Prepares a scan that reports every key, slowly enough for something to happen meanwhile.
fn slow_scan(cluster: &Cluster, rate: &str) -> Bigkeys {
    slow_scan_at(cluster.dir(), cluster.first_port(), rate)
}

fn slow_scan_at(dir: &Path, port: u16, rate: &str) -> Bigkeys {
    Bigkeys::new(dir, ["scan", "--all-keys", "--format", "json", "--progress", "plain", "--port"])
        .arg(port.to_string())
        .args(["--rate", rate])
        .args(CALM)
}

/// Returns the names that were reported.
fn reported(scan: &Scan) -> BTreeSet<Vec<u8>> {
    scan.findings().iter().map(key_of).collect()
}

/// Sees to it that nothing was lost, and that nothing was counted twice in silence.
#[track_caller]
fn assert_whole(scan: &Scan, names: &BTreeSet<Vec<u8>>) {
    let lost: Vec<_> =
        names.difference(&reported(scan)).map(|name| name.escape_ascii().to_string()).collect();
    assert!(lost.is_empty(), "{lost:?} were not found\n{}", scan.outcome().scene());
    assert_eq!(scan.summary("/clusters/0/slots_covered"), 16_384);
    let seen = scan.summary("/keys_seen").as_u64().expect("a number");
    let is_said = !scan.summary("/maybe_counted_twice").is_null();
    assert!(
        is_said || seen == names.len() as u64,
        "{seen} of {} keys, and nothing is said of it\n{}",
        names.len(),
        scan.outcome().scene()
    );
}

on_each_cluster_server! {
    fn a_cluster_is_scanned_as_one_from_any_node(kind) {
        let cluster = Cluster::start(kind);
        let names = fill(&cluster, 500);
        let replicas: Vec<String> = (3..6).map(|node| cluster.address(node).to_string()).collect();
        for node in [0, 4] {
            let port = cluster.address(node).port();
            let scan = Bigkeys::scan(cluster.dir(), port, ["--all-keys"]).document();
            assert_eq!(scan.by_key().len(), names.len());
            assert_whole(&scan, &names);
            assert!(scan.summary("/maybe_counted_twice").is_null());
            assert_eq!(scan.summary("/dbsize_before"), names.len());
            for finding in scan.findings() {
                assert_eq!(finding["slot"], slot_of(&key_of(finding)), "{finding}");
                let node = finding["node"].as_str().expect("each has its node");
                assert!(replicas.iter().any(|replica| replica == node), "{finding}: replicas are preferred");
            }
            // One ranking of all: the largest set is first, wherever it is.
            assert_eq!(scan.summary("/top/0/elements"), 400);
            assert_eq!(scan.summary("/servers").as_array().map(Vec::len), Some(3));
            assert_eq!(scan.summary("/completeness/status"), "complete");
        }

        let scan = cluster.scan(["--all-keys", "--primary-only", "--cluster"]).document();
        assert_whole(&scan, &names);
        let masters: Vec<String> = (0..3).map(|node| cluster.address(node).to_string()).collect();
        let on_masters = |finding: &serde_json::Value| masters.iter().any(|m| finding["node"] == m.as_str());
        assert!(scan.findings().iter().all(on_masters));

        let scan = cluster.scan(["--all-keys", "--one-node"]).document();
        assert!(scan.findings().len() < names.len());
        assert!(scan.outcome().stderr().contains("only its own keys are scanned"));

        // A pattern that fixes the hash tag fixes the slot, and so the server.
        let tag = tag_in(6_000);
        let scan = cluster.scan(["--all-keys"]).args(["--match", &format!("{{{tag}}}:*")]).document();
        assert_eq!(scan.findings().len(), 1);
        assert_eq!(scan.summary("/servers").as_array().map(Vec::len), Some(1));
        assert_eq!(scan.summary("/clusters/0/slots_wanted"), 1);

        cluster.bigkeys(["scan", "--format", "table"]).args(CALM).exits(Exit::Done)
            .stdout_has("all 16,384 slots of the cluster, on 3 servers")
            .stdout_has("slot 16000");
        let sample = cluster.scan(["--sample", "60"]).document();
        let seen = sample.summary("/keys_seen").as_u64().expect("a number");
        assert!((30..300).contains(&seen), "{seen} keys for a sample of 60");
    }

    fn the_budget_is_shared_by_all_shards(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0));
        let names = fill(&cluster, 500);
        let scan = slow_scan(&cluster, "1k/s").document();
        assert_whole(&scan, &names);
        let commands = scan.summary("/pace/commands").as_f64().expect("a number");
        let elapsed_s = scan.summary("/elapsed_s").as_f64().expect("a number");
        // Each server may begin with a burst of 50 ms.
        assert!(commands <= 1_000.0 * elapsed_s + 200.0, "{commands} commands in {elapsed_s} s");
        let scan = slow_scan(&cluster, "max").args(["--rate-per-node", "500/s"]).document();
        let commands = scan.summary("/pace/commands").as_f64().expect("a number");
        let elapsed_s = scan.summary("/elapsed_s").as_f64().expect("a number");
        assert!(commands <= 1_500.0 * elapsed_s + 200.0, "{commands} commands in {elapsed_s} s");
    }

    fn slots_that_move_meanwhile_are_scanned_again(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0));
        let mut names = fill(&cluster, 1_500);
        let slots: Vec<u16> = (0..12).map(|n| 200 + n * 450).collect();
        for slot in &slots {
            let tag = tag_in(*slot);
            let tagged: Vec<Vec<u8>> = (0..20).map(|n| format!("{{{tag}}}:{n}").into_bytes()).collect();
            cluster.pipeline(tagged.iter().map(|name| [b"SET".to_vec(), name.clone(), b"v".to_vec()]));
            names.extend(tagged);
        }
        let scan = slow_scan(&cluster, "1500/s").start();
        scan.wait_for_stderr("progress:");
        for slot in &slots {
            cluster.move_slot(*slot, 2);
        }
        let scan = scan.finish().exits(Exit::Done).document();
        assert_whole(&scan, &names);
    }

    fn a_slot_half_way_is_named_and_one_that_arrives_is_scanned(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0));
        let mut names = fill(&cluster, 200);
        let tag = tag_in(700);
        let tagged: Vec<Vec<u8>> = (0..30).map(|n| format!("{{{tag}}}:{n}").into_bytes()).collect();
        cluster.pipeline(tagged.iter().map(|name| [b"SET".to_vec(), name.clone(), b"v".to_vec()]));
        cluster.begin_move(700, 2);
        cluster.move_keys(700, 2, 10);
        let scan = cluster.scan(["--all-keys", "--timeout", "1s"]).exits(Exit::Partial).document();
        assert_eq!(scan.summary("/clusters/0/slots_missing"), "700");
        assert_eq!(scan.summary("/completeness/reason"), "slots_not_covered");
        assert!(names.is_subset(&reported(&scan)), "all other slots are whole");
        scan.outcome().clone().stderr_has("moved from one node to another");

        let scan = slow_scan(&cluster, "max").start();
        scan.wait_for_stderr("progress:");
        cluster.move_keys(700, 2, usize::MAX);
        cluster.end_move(700, 2);
        names.extend(tagged);
        let scan = scan.finish().exits(Exit::Done).document();
        assert_whole(&scan, &names);
    }

    fn a_scan_survives_the_loss_of_replicas_and_masters(kind) {
        let cluster = Cluster::start(kind);
        let names = fill(&cluster, 1_500);
        // A replica goes: its master, or another replica, is asked instead.
        let scan = slow_scan(&cluster, "1500/s").args(["--timeout", "2s", "--connect-timeout", "1s"]).start();
        scan.wait_for_stderr("progress:");
        cluster.nodes.kill(4);
        let scan = scan.finish().exits(Exit::Done).document();
        assert_whole(&scan, &names);
        assert_eq!(scan.summary("/keys_seen"), names.len(), "what the lost server told is not counted");
        cluster.nodes.restart(4);
        cluster.settle();

        // A master goes, and its replica takes over.
        let scan = slow_scan(&cluster, "1500/s")
            .args(["--primary-only", "--timeout", "4s", "--connect-timeout", "1s"])
            .start();
        scan.wait_for_stderr("progress:");
        cluster.nodes.kill(1);
        let scan = scan.finish().exits(Exit::Done).document();
        assert_whole(&scan, &names);
        assert_eq!(scan.summary("/keys_seen"), names.len());
    }

    fn a_failover_by_hand_loses_nothing(kind) {
        let cluster = Cluster::start(kind);
        let names = fill(&cluster, 1_500);
        for preference in ["--prefer-replica", "--primary-only"] {
            let scan = slow_scan(&cluster, "1500/s").arg(preference).start();
            scan.wait_for_stderr("progress:");
            let master = cluster.masters()[0];
            let replica = cluster.replicas_of(master)[0];
            cluster.failover(replica);
            let scan = scan.finish().exits(Exit::Done).document();
            assert_whole(&scan, &names);
        }
    }

    fn without_a_shard_the_rest_is_had_and_its_slots_are_named(kind) {
        let options = ClusterOptions::default().replicas(0).config("cluster-require-full-coverage no");
        let cluster = Cluster::with(kind, options);
        let names = fill(&cluster, 300);
        cluster.nodes.kill(1);
        cluster.wait_for_failure(1);
        let scan = cluster
            .scan(["--all-keys", "--timeout", "1s", "--connect-timeout", "1s"])
            .exits(Exit::Partial)
            .document();
        assert_eq!(scan.summary("/clusters/0/slots_missing"), "5461-10921");
        let expected: BTreeSet<Vec<u8>> =
            names.into_iter().filter(|name| !(5_461..=10_921).contains(&slot_of(name))).collect();
        assert_eq!(reported(&scan), expected);
        let why = scan.summary("/clusters/0/why").as_str().expect("a reason").to_owned();
        assert!(why.contains(&cluster.address(1).to_string()), "{why}");
        scan.outcome().clone().stderr_has("5461-10921");
    }

    fn a_stall_of_one_server_stops_the_run_on_all(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0));
        fill(&cluster, 3_000);
        let scan = Bigkeys::new(cluster.dir(), ["scan", "--all-keys", "--rate", "1k/s", "--progress", "plain"])
            .args(["--abort-latency", "700ms", "--max-latency", "300ms", "--format", "json", "--port"])
            .arg(cluster.first_port().to_string())
            .start();
        scan.wait_for_stderr("progress:");
        cluster.nodes.pause(2);
        let outcome = scan.finish().exits(Exit::Guard);
        cluster.nodes.resume(2);
        assert_eq!(outcome.document().summary("/completeness/reason"), "guard");
    }

    fn addresses_that_cannot_be_reached_are_mapped(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0).host_names().password("s3cret"));
        let names = fill(&cluster, 100);
        let failed = cluster
            .scan(["--all-keys", "--timeout", "1s"])
            .env("REDISCLI_AUTH", "s3cret")
            .start()
            .finish()
            .exits_with([Exit::Partial, Exit::Failed]);
        failed.stderr_has(".cluster.invalid").stderr_has("--map-address");
        let mut scan = cluster.scan(["--all-keys"]).env("REDISCLI_AUTH", "s3cret");
        for node in 0..3 {
            let rule = format!("{}=127.0.0.1:{}", Cluster::host_name(node), cluster.address(node).port());
            scan = scan.args(["--map-address", &rule]);
        }
        let scan = scan.document();
        assert_whole(&scan, &names);
        scan.outcome().clone().never_says("s3cret");
    }

    fn a_cluster_of_one_shard_is_a_cluster_too(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0));
        let names = fill(&cluster, 50);
        for slot in 5_461..16_384 {
            if slot % 1_000 == 0 {
                cluster.move_slot(slot, 0);
            }
        }
        let scan = cluster.scan(["--all-keys"]).document();
        assert_whole(&scan, &names);
        assert!(scan.summary("/maybe_counted_twice").is_null(), "what moved before moves no more");
    }
}

on_servers! {
    [valkey_9_1 Valkey91]
    fn numbered_databases_of_a_cluster_are_scanned(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0).databases(16));
        cluster.pipeline((0..150).map(|n| ["SET".to_owned(), format!("zero:{n}"), "v".to_owned()]));
        cluster.pipeline_in(9, (0..70).map(|n| ["SET".to_owned(), format!("nine:{n}"), "v".to_owned()]));
        let scan = cluster.scan(["--all-keys"]).document();
        let of = |db: u64| scan.by_key().keys().filter(|(found, _)| *found == db).count();
        assert_eq!((of(0), of(9)), (150, 70));
        let scan = cluster.scan(["--all-keys", "--db", "9"]).document();
        assert_eq!(scan.findings().len(), 70);
    }
}
