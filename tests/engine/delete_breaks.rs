//! Connections that break before, in the middle of, and after each command of a deletion: afterwards
//! everything of the plan is gone, or `--resume` sees to it, and nothing else is missing.

use crate::support::{
    Action, Client, Exit, Keyspace, Lab, Proxy, Request, ServerKind, on_each_server, snapshot,
};

/// What must still be there afterwards; some of it has the names of what is deleted, in another database.
fn fill_kept(redis: &Client) {
    redis.pipeline((0..50).map(|n| ["SET".to_owned(), format!("kept:{n}"), "v".to_owned()]));
    redis.fill_set("kept:set", 300);
    redis.fill_list("doome", 10, 10);
    redis.run("SET kept:ttl v EX 100000");
    redis.run("SELECT 3");
    redis.fill_hash("doomed:hash", 300);
    redis.fill_set("doomed:set", 10);
    redis.run("SELECT 0");
}

/// A key of each type that is taken apart, and one with a time to live.
fn fill_collections(redis: &Client) {
    redis.fill_set("doomed:set", 1500);
    redis.fill_hash("doomed:hash", 1500);
    redis.fill_zset("doomed:zset", 1500);
    redis.fill_list("doomed:list", 1500, 100);
    redis.fill_stream("doomed:stream", 600);
    for group in ["one", "two"] {
        redis.call(&["XGROUP", "CREATE", "doomed:stream", group, "0"]);
        let read = ["XREADGROUP", "GROUP", group, "c", "COUNT", "300", "STREAMS", "doomed:stream", ">"];
        redis.call(&read);
    }
    redis.run("EXPIRE doomed:set 100000");
}

/// Keys that go in batches, and a hash that would be padded.
fn fill_small(redis: &Client) {
    redis.pipeline((0..300).map(|n| ["SET".to_owned(), format!("doomed:{n}"), "v".to_owned()]));
    redis.fill_hash("doomed:little", 5);
}

/// How a connection breaks.
#[derive(Debug, Clone, Copy)]
enum Break {
    /// The command never comes to the server.
    Before,
    /// The server acts, and half of its answer comes.
    Middle,
    /// The server acts, and nobody hears of it.
    After,
}

impl Break {
    fn action(self) -> Action {
        match self {
            Self::Before => Action::Drop,
            Self::Middle => Action::Cut(usize::MAX),
            Self::After => Action::Cut(0),
        }
    }
}

/// A way to delete: what is there, and the flags.
struct Way {
    fill: fn(&Client),
    user: &'static str,
    args: [&'static str; 4],
}

const CHUNKED: Way =
    Way { fill: fill_collections, user: "default", args: ["--match", "doomed:*", "--method", "chunked"] };
const BATCHES: Way =
    Way { fill: fill_small, user: "default", args: ["--match", "doomed:*", "--min-bytes", "1"] };
const PADDED: Way = Way {
    fill: |redis| redis.fill_hash("doomed:little", 20),
    user: "default",
    args: ["--match", "doomed:*", "--method", "pad"],
};
/// RENAMENX between WATCH and EXEC.
const WATCHED: Way = Way {
    fill: |redis| {
        redis.fill_set("doomed:set", 600);
        redis.run("EXPIRE doomed:set 100000");
    },
    user: "noeval",
    args: ["--match", "doomed:*", "--method", "chunked"],
};
/// RENAMENX by itself.
const BARE: Way = Way { user: "nomulti", ..WATCHED };
/// No RENAMENX: it is taken apart where it is.
const IN_PLACE: Way = Way { user: "norename", ..WATCHED };

fn lab(kind: ServerKind) -> Lab {
    Lab::with(kind, |_, options| {
        options
            .config("lazyfree-lazy-expire no")
            .config("user noeval on >pw ~* +@all -eval")
            .config("user nomulti on >pw ~* +@all -eval -multi -watch")
            .config("user norename on >pw ~* +@all -rename -renamenx")
    })
}

/// Deletes behind a connection that breaks at the n-th command of these words; then finishes the run if it
/// did not finish itself.
fn breaks(lab: &Lab, way: &Way, words: &'static str, n: usize, how: Break) {
    let scene = format!("{how:?} {words} {n} of {:?} as {}", way.args, way.user);
    let redis = lab.redis();
    redis.run("FLUSHALL");
    let _ = std::fs::remove_file(lab.path("run.csv"));
    fill_kept(&redis);
    let kept = snapshot(&redis);
    (way.fill)(&redis);
    let before = snapshot(&redis);

    let mut seen = 0;
    let mut struck = false;
    let proxy = Proxy::start(lab.address(), move |request: &Request| {
        if !struck && request.is(words) {
            seen += 1;
            if seen == n {
                struck = true;
                return how.action();
            }
        }
        Action::Forward
    });
    let as_user = |command: crate::support::Bigkeys| {
        if way.user == "default" {
            command
        } else {
            command.args(["--user", way.user]).env("REDISCLI_AUTH", "pw")
        }
    };
    let outcome = as_user(lab.delete_at(proxy.port(), way.args)).start().finish();
    assert!(proxy.requests(words).len() >= n, "{words} was never sent: {scene}\n{}", outcome.scene());
    let outcome = outcome.never_says("panicked");
    let after = snapshot(&redis);
    nothing_else_is_gone(&kept, &after, &format!("{scene}\n{}", outcome.scene()));
    if !lab.path("run.csv").exists() {
        assert_eq!(outcome.code(), Some(1), "{scene}\n{}", outcome.scene());
        assert_eq!(after, before, "without an audit nothing is deleted: {scene}\n{}", outcome.scene());
        return;
    }
    let _ = lab.audit();
    if outcome.code() == Some(0) {
        assert_eq!(after, kept, "{scene}\n{}", outcome.scene());
        return;
    }
    assert!(matches!(outcome.code(), Some(1 | 3)), "{scene}\n{}", outcome.scene());
    let resumed = as_user(lab.resume_at(proxy.port())).exits(Exit::Done);
    assert_eq!(snapshot(&redis), kept, "{scene}\n{}\n{}", outcome.scene(), resumed.scene());
    assert_eq!(lab.audit().rows("end").last().expect("an end")["detail"], "done", "{scene}");
}

/// Everything of `kept` is there, as it was.
#[track_caller]
fn nothing_else_is_gone(kept: &Keyspace, after: &Keyspace, scene: &str) {
    for (key, value) in kept {
        assert_eq!(
            after.get(key),
            Some(value),
            "{:?} is not as it was: {scene}",
            key.1.escape_ascii().to_string()
        );
    }
}

/// Breaks at every third of these commands: two of the six servers take the same, in different ways.
fn breaks_at_each(kind: ServerKind, way: &Way, commands: &[(&'static str, usize)]) {
    let lab = lab(kind);
    let ways = [Break::Before, Break::Middle, Break::After];
    for (index, (words, n)) in commands.iter().enumerate().skip(kind as usize % 3).step_by(3) {
        breaks(&lab, way, words, *n, ways[(index / 3 + kind as usize / 3) % 3]);
    }
}

on_each_server! {
    fn a_connection_that_breaks_before_the_first_key(kind) {
        breaks_at_each(kind, &CHUNKED, &[
            ("CLIENT", 1), ("CLIENT", 4), ("WATCH", 1), ("MULTI", 1), ("DISCARD", 1), ("SCAN", 1), ("TYPE", 3),
            ("LATENCY", 1), ("SLOWLOG", 1), ("PING", 1), ("PING", 40),
        ]);
    }

    fn a_connection_that_breaks_while_a_key_is_taken_apart(kind) {
        breaks_at_each(kind, &CHUNKED, &[
            ("INFO", 5), ("INFO", 9), ("EVAL", 3), ("EVAL", 4), ("EVAL", 6), ("SSCAN", 1), ("SSCAN", 3), ("SREM", 1),
            ("SREM", 2), ("HSCAN", 2), ("HDEL", 1), ("HDEL", 2), ("ZCARD", 1), ("ZREMRANGEBYRANK", 1),
            ("ZREMRANGEBYRANK", 2), ("LLEN", 2), ("LTRIM", 1), ("XLEN", 2), ("XTRIM", 1), ("XINFO", 4),
            ("XPENDING", 1), ("XACK", 1), ("XGROUP", 1), ("XGROUP", 2), ("UNLINK", 2), ("UNLINK", 3),
        ]);
    }

    fn a_connection_that_breaks_in_a_batch(kind) {
        breaks_at_each(kind, &BATCHES, &[("EVAL", 3), ("EVAL", 4), ("INFO", 8), ("LATENCY", 2), ("SLOWLOG", 2)]);
        breaks_at_each(kind, &PADDED, &[("EVAL", 3), ("EVAL", 3), ("EVAL", 3)]);
    }

    fn a_connection_that_breaks_without_scripts(kind) {
        breaks_at_each(kind, &WATCHED, &[
            ("WATCH", 2), ("TYPE", 2), ("MULTI", 2), ("RENAMENX", 2), ("PERSIST", 1), ("EXEC", 1), ("SSCAN", 2), ("SREM", 2),
        ]);
        breaks_at_each(kind, &BARE, &[("TYPE", 2), ("RENAMENX", 1), ("PERSIST", 1), ("SSCAN", 1)]);
    }

    fn a_connection_that_breaks_where_rename_is_denied(kind) {
        breaks_at_each(kind, &IN_PLACE, &[("EVAL", 3), ("SSCAN", 1), ("SSCAN", 2), ("SREM", 2), ("UNLINK", 2)]);
    }
}
