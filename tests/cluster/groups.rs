//! Groups behind Sentinel, primaries with replicas, and many servers at a time.

use std::fs;

use crate::support::{
    Bigkeys, CALM, Exit, Lab, Replicated, SentinelGroup, SentinelOptions, ServerKind, on_each_cluster_server,
};

fn fill(client: &crate::support::Client, strings: usize) {
    client.pipeline((0..strings).map(|n| ["SET".to_owned(), format!("small:{n}"), "v".to_owned()]));
    client.fill_hash("big", 400);
}

/// Prepares a scan of a group that reports every key.
fn scan(group: &SentinelGroup) -> Bigkeys {
    group.bigkeys(["scan", "--all-keys", "--format", "json", "--progress", "plain"]).args(CALM)
}

on_each_cluster_server! {
    fn sentinel_tells_where_the_servers_are(kind) {
        let group = SentinelGroup::start(kind);
        fill(&group.redis(0), 100);
        group.redis(0).run("WAIT 2 5000").is(2);
        let primary = group.servers().address(0).to_string();

        let replicas = scan(&group).args(["--rate", "max"]).document();
        assert_eq!(replicas.findings().len(), 101);
        assert!(replicas.findings().iter().all(|finding| finding["node"] != primary.as_str()));
        assert_eq!(replicas.summary("/servers/0/role"), "replica");
        let on_primary = scan(&group).args(["--rate", "max", "--primary-only"]).document();
        assert!(on_primary.findings().iter().all(|finding| finding["node"] == primary.as_str()));

        // A Sentinel that is down is passed over.
        let sentinel = group.sentinels.port(1);
        group.bigkeys_bare(["scan", "--sentinel", SentinelGroup::NAME, "--sentinel-node", "127.0.0.1:1"])
            .args(["--sentinel-node", &format!("127.0.0.1:{sentinel}")])
            .exits(Exit::Done);
        let unknown = Bigkeys::new(group.dir(), ["scan", "--sentinel", "nobody", "--sentinel-node"])
            .arg(format!("127.0.0.1:{sentinel}"))
            .exits(Exit::Failed);
        unknown.stderr_has("no Sentinel tells where `nobody` is").stderr_has("hint:");
        Bigkeys::new(group.dir(), ["scan", "--sentinel", "x", "--sentinel-node", "127.0.0.1:1"])
            .exits(Exit::Failed)
            .stderr_has("127.0.0.1:1");
    }

    fn a_failover_in_the_middle_is_followed(kind) {
        let group = SentinelGroup::start(kind);
        fill(&group.redis(0), 1_500);
        group.redis(0).run("WAIT 2 5000").is(2);
        let running = scan(&group)
            .args(["--rate", "1500/s", "--primary-only", "--timeout", "4s", "--connect-timeout", "1s"])
            .start();
        running.wait_for_stderr("progress:");
        group.kill_primary();
        let document = running.finish().exits(Exit::Done).document();
        assert_eq!(document.summary("/keys_seen"), 1_501);
        assert!(!document.summary("/maybe_counted_twice").is_null(), "rows may have been streamed twice");
    }

    fn delete_goes_to_the_primary_and_follows_it(kind) {
        let group = SentinelGroup::start(kind);
        fill(&group.redis(0), 1_500);
        group.redis(0).run("WAIT 2 5000").is(2);
        group.bigkeys(["delete", "big", "--safe", "--yes", "--audit", "one.csv"]).exits(Exit::Done);
        group.redis(0).run("EXISTS big").is(0);

        let running = group
            .bigkeys(["delete", "--match", "small:*", "--method", "expire", "--expire-after", "1h"])
            .args(["--safe", "--yes", "--audit", "two.csv", "--progress", "plain", "--rate", "400/s"])
            .args(["--timeout", "4s", "--connect-timeout", "1s"])
            .args(CALM)
            .start();
        running.wait_for_stderr("audit:");
        let before = group.primary();
        let after = group.kill_primary();
        assert_ne!(before, after);
        running.finish().exits(Exit::Done);
        let client = group.redis(after);
        client.run("DBSIZE").is(1_500);
        for n in 0..1_500 {
            let ttl = client.run(&format!("TTL small:{n}")).int();
            assert!(ttl > 0, "small:{n} has no time to live: {ttl}");
        }
    }

    fn passwords_of_sentinels_and_servers_may_differ(kind) {
        let group = SentinelGroup::with(kind, SentinelOptions::default().password("of-servers"));
        group.redis(0).run("SET k v").is("OK");
        scan(&group).env("REDISCLI_AUTH", "of-servers").exits(Exit::Done).never_says("of-servers");
        scan(&group).env("REDISCLI_AUTH", "wrong").exits(Exit::Failed).stderr_has("refused the user name");
    }

    fn replicas_are_preferred_where_they_are_asked_for(kind) {
        let pair = Replicated::start(kind);
        fill(&pair.primary(), 100);
        pair.catch_up();
        let (primary, replica) = (pair.servers.address(0).to_string(), pair.servers.address(1).to_string());
        let node = |document: &crate::support::Scan| document.summary("/servers/0/node").as_str().map(str::to_owned);
        assert_eq!(node(&pair.scan([]).document()), Some(primary.clone()));
        assert_eq!(node(&pair.scan(["--prefer-replica"]).document()), Some(replica.clone()));
        let at_replica = |args: [&str; 1]| Bigkeys::scan(pair.dir(), pair.servers.port(1), args);
        assert_eq!(node(&at_replica(["--primary-only"]).document()), Some(primary));
        assert_eq!(node(&at_replica(["--prefer-replica"]).document()), Some(replica));

        // What a replica holds may be old, and a replica is never written to.
        pair.bigkeys_bare(["delete", "big", "--safe", "--yes", "--port"])
            .arg(pair.servers.port(1).to_string())
            .exits(Exit::Failed)
            .stderr_has("is a replica");
        pair.primary().run("EXISTS big").is(1);
        pair.servers.kill(0);
        crate::support::wait_for("the replica to miss its primary", || {
            match pair.replica().info("master_link_status").as_str() {
                "down" => Ok(()),
                status => Err(status.to_owned()),
            }
        });
        at_replica(["--prefer-replica"]).exits(Exit::Done).stderr_has("what it holds may be old");
    }

    fn a_fleet_gives_one_report(kind) {
        let (one, two) = (Lab::start(kind), Lab::start(ServerKind::Bundled));
        fill(&one.redis(), 10);
        two.redis().fill_hash("bigger", 500);
        let in_3 = two.redis();
        in_3.run("SELECT 3").is("OK");
        in_3.run("SET elsewhere v").is("OK");
        let url = |lab: &Lab| format!("redis://127.0.0.1:{}", lab.address().port());
        let fleet = || Bigkeys::new(one.dir(), ["scan", "--all-keys", "--format", "json"]).args(CALM);
        let document = fleet().args(["-u", &url(&one), "-u", &url(&two)]).document();
        assert_eq!(document.summary("/servers").as_array().map(Vec::len), Some(2));
        assert_eq!(document.summary("/top/0/key"), "bigger");
        let node = two.address().to_string();
        assert_eq!(document.finding("bigger")["node"], node.as_str());

        // One that cannot be reached does not stop the others.
        let partial = fleet().args(["-u", "redis://127.0.0.1:1", "-u", &url(&one)]).exits(Exit::Partial).document();
        assert_eq!(partial.summary("/failed_targets/0/target"), "127.0.0.1:1");
        assert_eq!(partial.summary("/keys_seen"), 11);
        fleet().args(["-u", "redis://127.0.0.1:1", "-u", "redis://127.0.0.1:2"]).exits(Exit::Failed);

        // Each has settings of its own, and secrets by reference.
        one.redis().run("CONFIG SET requirepass pa/ss@word").is("OK");
        let toml = format!(
            "[[target]]\nurl = \"{}\"\npassword_env = \"FIRST_AUTH\"\n\n[[target]]\nurl = \"{}\"\ndb = [3]\n",
            url(&one),
            url(&two)
        );
        fs::write(one.dir().join("fleet.toml"), toml).expect("a writable folder");
        let document =
            fleet().args(["--targets", "fleet.toml"]).env("FIRST_AUTH", "pa/ss@word").document();
        assert_eq!(document.summary("/keys_seen"), 12, "and only database 3 of the second");
        document.outcome().clone().never_says("pa/ss@word");
        fleet().args(["--targets", "fleet.toml"]).exits(Exit::Usage).stderr_has("password_env");
        fs::write(one.dir().join("fleet.txt"), format!("# two\n{}\n\n{}\n", url(&two), url(&two))).unwrap();
        let document = fleet().args(["--targets", "fleet.txt"]).document();
        assert_eq!(document.summary("/servers").as_array().map(Vec::len), Some(2));
        for (text, says) in [
            ("[[target]]\nurl = 3\n", "line 2"),
            ("[[target]]\nurl = \"redis://:secret@h\"\nsecret = \"secret\"\n", "unknown field"),
            ("", "names no target"),
        ] {
            fs::write(one.dir().join("bad.toml"), text).expect("a writable folder");
            fleet()
                .args(["--targets", "bad.toml"])
                .exits(Exit::Usage)
                .stderr_has(says)
                .never_says(":secret@");
        }
        one.bigkeys_bare(["delete", "k", "-u", "redis://h", "-u", "redis://i"])
            .exits(Exit::Usage)
            .stderr_has("one server, cluster or group at a time");
    }
}
