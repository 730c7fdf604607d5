//! That the clusters and groups of the laboratory are what the other tests take them for.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::delete::ground::{in_db_0, only_gone};
use crate::support::{
    Client, Cluster, ClusterOptions, Exit, Replicated, SentinelGroup, SentinelOptions, ServerKind,
    on_each_cluster_server, on_servers, slot_of, tag_in,
};

/// Returns the answer to a command with one key; an error as its text.
fn ask(client: &Client, words: &[&str]) -> String {
    let reply = client.try_call(words);
    reply.error_text().unwrap_or_else(|| if reply.is_null() { "null".to_owned() } else { reply.text() })
}

fn keys_of(cluster: &Cluster) -> usize {
    let counts = cluster.masters().into_iter().map(|master| cluster.redis(master).run("DBSIZE").int());
    usize::try_from(counts.sum::<i64>()).expect("not negative")
}

on_each_cluster_server! {
    fn a_cluster_holds_all_slots_and_moves_them(kind) {
        let cluster = Cluster::start(kind);
        assert_eq!(cluster.masters(), [0, 1, 2]);
        for master in 0..3 {
            assert_eq!(cluster.replicas_of(master), [3 + master]);
        }
        let all = [(0, 5460), (5461, 10921), (10922, 16383)];
        assert_eq!([0, 1, 2].map(|master| cluster.slots_of(master)), all.map(|slots| vec![slots]));
        let client = cluster.redis(4);
        for key in ["", "a", "{}", "{a", "{a}b", "x{a}{b}", "{}{a}", "}{a}", "a\u{e9}\u{0}"] {
            client.call(&["CLUSTER", "KEYSLOT", key]).is(slot_of(key.as_bytes()));
        }

        let slot = 700;
        let (tag, to) = (tag_in(slot), 2);
        let names: Vec<_> = (0..250).map(|n| format!("{{{tag}}}:{n}")).chain((0..1000).map(|n| format!("k{n}"))).collect();
        cluster.pipeline(names.iter().map(|name| ["SET", name, "v"]));
        cluster.master_of("a hash").fill_hash("a hash", 1000);
        cluster.run("INCR counter").is(1);
        assert_eq!(keys_of(&cluster), names.len() + 2);

        // Half way, in both directions: what is gone, and what is not there yet.
        cluster.begin_move(slot, to);
        assert_eq!(cluster.move_keys(slot, to, 120), 120);
        assert_eq!(cluster.owner_of(slot), 0);
        let (source, target) = (cluster.redis(0), cluster.redis(to));
        source.run(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).is(130);
        let asked = format!("ASK {slot} 127.0.0.1:{}", cluster.address(to).port());
        let answers: Vec<_> = names[..250].iter().map(|name| ask(&source, &["GET", name])).collect();
        assert_eq!(answers.iter().filter(|answer| **answer == "v").count(), 130, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| **answer == asked).count(), 120, "{answers:?}");
        let moved_at = answers.iter().position(|answer| *answer == asked).expect("120 are");
        let there = format!("MOVED {slot} 127.0.0.1:{}", cluster.address(0).port());
        assert_eq!(ask(&target, &["GET", &names[moved_at]]), there);
        target.run("ASKING").is("OK");
        assert_eq!(ask(&target, &["GET", &names[moved_at]]), "v");

        assert_eq!(cluster.move_keys(slot, to, usize::MAX), 130);
        cluster.end_move(slot, to);
        assert_eq!(cluster.owner_of(slot), to);
        assert_eq!(cluster.slots_of(0), [(0, 699), (701, 5460)]);
        cluster.move_slot(10922, 0);
        assert_eq!(cluster.slots_of(2), [(700, 700), (10923, 16383)]);
        assert_eq!(keys_of(&cluster), names.len() + 2);
        cluster.run(&format!("GET {}", names[moved_at])).is("v");
        let scan = cluster.scan(["--primary-only"]).document();
        assert_eq!(*scan.summary("/keys_seen"), names.len() + 2);
        drop(cluster.bigkeys(["scan"]).exits(Exit::Done));
        let (before, gone) = (cluster.keyspace(), in_db_0(&names[..250]));
        let done = cluster.delete(["--match", &format!("{{{tag}}}:*")]).exits(Exit::Done);
        only_gone(&before, &cluster.keyspace(), &gone, &done.scene());
    }

    fn a_cluster_survives_failovers_and_crashes(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().password("a-secret").host_names());
        let names: Vec<_> = (0..1000).map(|n| format!("k{n}")).collect();
        cluster.pipeline(names.iter().map(|name| ["SET", name, "v"]));
        let elsewhere = ask(&cluster.redis(0), &["GET", &format!("{{{}}}", tag_in(6000))]);
        assert_eq!(elsewhere, format!("MOVED 6000 {}:{}", Cluster::host_name(1), cluster.address(1).port()));

        cluster.failover(3);
        assert_eq!((cluster.masters(), cluster.replicas_of(3)), (vec![1, 2, 3], vec![0]));
        cluster.move_slot(5461, 3);
        assert_eq!(cluster.slots_of(3), [(0, 5461)]);
        assert_eq!(keys_of(&cluster), names.len());

        cluster.catch_up();
        cluster.nodes.kill(1);
        cluster.wait_for_failure(1);
        cluster.wait_for_promotion(4);
        assert_eq!(cluster.masters(), [2, 3, 4]);
        assert_eq!(keys_of(&cluster), names.len());
        cluster.nodes.restart(1);
        cluster.settle();
        assert_eq!(cluster.replicas_of(4), [1]);

        cluster.nodes.pause(3);
        cluster.wait_for_promotion(0);
        assert_eq!(cluster.masters(), [0, 2, 4]);
        cluster.nodes.resume(3);
        cluster.settle();
        assert_eq!(cluster.replicas_of(0), [3]);
        assert_eq!(keys_of(&cluster), names.len());
    }

    fn a_sentinel_group_fails_over(kind) {
        let group = SentinelGroup::start(kind);
        assert_eq!(group.primary(), 0);
        group.redis(0).run("SET k v").is("OK");

        let second = group.failover();
        assert_ne!(second, 0);
        group.redis(second).run("GET k").is("v");
        group.redis(second).run("SET k w").is("OK");
        group.redis(second).run("WAIT 2 0").is(2);

        let third = group.kill_primary();
        assert_ne!(third, second);
        group.redis(third).run("GET k").is("w");
        group.servers().restart(second);
        assert_eq!(group.settle(), third);
        group.redis(second).run("GET k").is("w");
        drop(group.bigkeys(["scan"]).exits(Exit::Done));
    }

    fn a_sentinel_group_has_passwords_of_its_own(kind) {
        let options = SentinelOptions::default()
            .password("of-servers")
            .config("user reader on >r ~* +@read")
            .sentinel_password("of-sentinels")
            .sentinel_config("user asker on >a +sentinel|get-master-addr-by-name");
        let group = SentinelGroup::with(kind, options);
        let bare = Client::connect(group.sentinels.address(0));
        assert!(ask(&bare, &["SENTINEL", "MASTERS"]).starts_with("NOAUTH"));
        assert!(ask(&Client::connect(group.servers().address(0)), &["GET", "k"]).starts_with("NOAUTH"));
        let primary = group.failover();
        group.redis(primary).run("SET k v").is("OK");
        let reader = Client::connect(group.servers().address(primary));
        reader.run("AUTH reader r").is("OK");
        reader.run("GET k").is("v");
        assert!(ask(&reader, &["DEL", "k"]).starts_with("NOPERM"));
        let asker = Client::connect(group.sentinels.address(2));
        asker.run("AUTH asker a").is("OK");
        let address = asker.run(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", SentinelGroup::NAME));
        address.items()[1].is(group.servers().port(primary));
    }

    fn a_replica_has_what_its_primary_has(kind) {
        let replicated = Replicated::start(kind);
        replicated.primary().fill_hash("h", 1000);
        replicated.catch_up();
        replicated.replica().run("HLEN h").is(1000);
        let of_primary = replicated.scan([]).document();
        assert_eq!(of_primary.summary("/servers/0/role"), "primary");
        let scan = replicated.bigkeys_bare(["scan", "--format", "json", "--port"]);
        let of_replica = scan.arg(replicated.servers.port(1).to_string()).document();
        assert_eq!(of_replica.summary("/servers/0/role"), "replica");
        assert_eq!(of_replica.finding("h")["elements"], 1000);
    }
}

#[test]
fn a_test_that_panics_leaves_no_server() {
    let kind = ServerKind::Redis70;
    if !kind.is_installed_or_skipped() {
        return;
    }
    let addresses = Mutex::new(Vec::new());
    let test = AssertUnwindSafe(|| {
        let replicated = Replicated::with(kind, 2, Some("a-secret"), |options| options);
        replicated.servers.pause(1);
        let all = (0..3).map(|n| replicated.servers.address(n));
        addresses.lock().expect("nobody panicked yet").extend(all);
        panic!("this test is meant to fail");
    });
    assert!(catch_unwind(test).is_err());
    let addresses = addresses.into_inner().expect("it was not held");
    assert_eq!(addresses.len(), 3);
    for address in addresses {
        let error = TcpStream::connect(address).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

on_servers! {
    [valkey_9_1 Valkey91]
    fn a_cluster_has_databases(kind) {
        let cluster = Cluster::with(kind, ClusterOptions::default().replicas(0).databases(16));
        let tag = tag_in(3);
        cluster.pipeline((0..150).map(|n| ["SET".to_owned(), format!("{{{tag}}}{n}"), "v".to_owned()]));
        cluster.pipeline_in(9, (0..70).map(|n| ["SET".to_owned(), format!("{{{tag}}}{n}"), "v".to_owned()]));
        cluster.begin_move(3, 1);
        assert_eq!(cluster.move_keys(3, 1, 200), 200);
        assert_eq!(cluster.move_keys(3, 1, 200), 20);
        cluster.end_move(3, 1);
        let target = cluster.redis(1);
        target.run("DBSIZE").is(150);
        target.run("SELECT 9").is("OK");
        target.run("DBSIZE").is(70);

        let before = cluster.keyspace();
        assert_eq!(before.len(), 220);
        cluster.migrate_slots(3, 3, 2);
        cluster.migrate_slots(4, 10, 2);
        assert_eq!(cluster.slots_of(2)[0], (3, 10));
        assert_eq!(cluster.keyspace(), before);
    }
}
