//! One value of each type and encoding, in the sizes that its memory is compared at. The bench and a smaller
//! test fill their servers with it.

/// The server whose MEMORY USAGE is the measure.
pub(crate) const REDIS: &str = "redis-7.0.15";
/// The measure for what Redis 7.0 does not have yet.
pub(crate) const NEWER_REDIS: &str = "redis-8.2.3";

/// A value to build under the key `key`.
pub(crate) struct ValueKind {
    pub(crate) kind: &'static str,
    /// As the bundled server calls it.
    pub(crate) encoding: &'static str,
    /// Elements, or bytes of a string.
    pub(crate) sizes: &'static [usize],
    /// Which server it is compared with.
    pub(crate) measure: &'static str,
    /// Parameter that has to be set for the encoding to hold at these sizes.
    pub(crate) parameter: Option<(&'static str, &'static str)>,
    element: Element,
    /// Gives an element that is there a TTL.
    expire: Option<Element>,
    /// Elements that one command may take.
    batch: usize,
    /// What follows once all elements are there.
    after: &'static [&'static str],
}

const ALL: &[usize] = &[10, 100, 1_000, 10_000, 100_000, 1_000_000];
const FROM_100: &[usize] = &[100, 1_000, 10_000, 100_000, 1_000_000];
const FROM_1000: &[usize] = &[1_000, 10_000, 100_000, 1_000_000];
/// Listpacks are searched from the front: more would take minutes to fill.
const PACKED: &[usize] = &[10, 100, 1_000, 10_000];

/// The command that adds the element of that index.
type Element = fn(usize) -> Vec<String>;

const fn kind(
    kind: &'static str,
    encoding: &'static str,
    sizes: &'static [usize],
    element: Element,
) -> ValueKind {
    ValueKind {
        kind,
        encoding,
        sizes,
        measure: REDIS,
        parameter: None,
        element,
        expire: None,
        batch: 100,
        after: &[],
    }
}

impl ValueKind {
    const fn with(mut self, parameter: &'static str, value: &'static str) -> ValueKind {
        self.parameter = Some((parameter, value));
        self
    }

    const fn single(mut self) -> ValueKind {
        self.batch = 1;
        self
    }

    const fn measured_by(mut self, server: &'static str) -> ValueKind {
        self.measure = server;
        self
    }

    const fn mortal(mut self) -> ValueKind {
        self.expire = Some(field_ttl);
        self.measured_by(NEWER_REDIS)
    }

    const fn then(mut self, after: &'static [&'static str]) -> ValueKind {
        self.after = after;
        self
    }

    /// Calls `send` with each command that builds the value with `size` elements.
    pub(crate) fn build(&self, size: usize, mut send: impl FnMut(&[String])) {
        if self.kind == "string" {
            let text = if self.encoding == "int" { "1".repeat(size) } else { "x".repeat(size) };
            send(&["SET".to_owned(), "key".to_owned(), text]);
            return;
        }
        for start in (0..size).step_by(self.batch) {
            let mut words = (self.element)(start);
            let head = words.iter().position(|word| word == "key").expect("an element has a key") + 1;
            for index in start + 1..size.min(start + self.batch) {
                words.extend_from_slice(&(self.element)(index)[head..]);
            }
            send(&words);
        }
        if let Some(expire) = self.expire {
            (0..size).for_each(|index| send(&expire(index)));
        }
        for command in self.after {
            let size = size.to_string();
            let words: Vec<String> = command
                .split(' ')
                .map(|word| if word == "SIZE" { size.clone() } else { word.to_owned() })
                .collect();
            send(&words);
        }
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// A number that looks random and never repeats: in insertion order would be too kind.
fn scatter(index: usize) -> String {
    (index.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF).to_string()
}

fn set_of_names(index: usize) -> Vec<String> {
    words(["SADD", "key", &format!("member-{index}")])
}

fn hash_of_texts(index: usize) -> Vec<String> {
    words(["HSET", "key", &format!("field-{index}"), "a value of some length"])
}

fn field_ttl(index: usize) -> Vec<String> {
    words(["HEXPIRE", "key", "86400", "FIELDS", "1", &format!("field-{index}")])
}

fn zset_of_names(index: usize) -> Vec<String> {
    words(["ZADD", "key", &scatter(index), &format!("player-{index}")])
}

fn stream_of_events(index: usize) -> Vec<String> {
    // Three milliseconds apart, as the clock would give them.
    let id = format!("{}-0", 1_700_000_000_000 + 3 * index as u64);
    words(["XADD", "key", &id, "user", &scatter(index), "event", "login"])
}

pub(crate) fn value_kinds() -> Vec<ValueKind> {
    vec![
        kind("string", "int", &[10], |_| Vec::new()),
        kind("string", "embstr", &[10], |_| Vec::new()),
        kind("string", "raw", FROM_100, |_| Vec::new()),
        kind("list of numbers", "listpack", &[10, 100, 1_000], |n| words(["RPUSH", "key", &n.to_string()])),
        kind("list of numbers", "quicklist", &[10_000, 100_000, 1_000_000], |n| {
            words(["RPUSH", "key", &n.to_string()])
        }),
        kind("list of 100 bytes", "quicklist", FROM_100, |n| words(["RPUSH", "key", &format!("{n:0>100}")])),
        kind("set of numbers", "intset", ALL, |n| words(["SADD", "key", &n.to_string()]))
            .with("set-max-intset-entries", "1000000"),
        kind("set of names", "listpack", &[10, 100], set_of_names).measured_by(NEWER_REDIS),
        kind("set of names", "hashtable", FROM_1000, set_of_names),
        kind("hash of texts", "listpack", PACKED, hash_of_texts).with("hash-max-listpack-entries", "10000"),
        kind("hash of texts", "hashtable", ALL, hash_of_texts).with("hash-max-listpack-entries", "0"),
        kind("hash with field TTLs", "listpackex", &[10, 100], hash_of_texts).mortal(),
        kind("hash with field TTLs", "hashtable", FROM_1000, hash_of_texts).mortal(),
        kind("sorted set", "listpack", PACKED, zset_of_names).with("zset-max-listpack-entries", "10000"),
        kind("sorted set", "skiplist", ALL, zset_of_names).with("zset-max-listpack-entries", "0"),
        kind("stream", "stream", ALL, stream_of_events).single(),
        kind("stream, all pending", "stream", ALL, stream_of_events)
            .single()
            .then(&["XGROUP CREATE key group 0", "XREADGROUP GROUP group consumer COUNT SIZE STREAMS key >"]),
        kind("HyperLogLog", "raw", ALL, |n| words(["PFADD", "key", &format!("visitor-{n}")])),
    ]
}
