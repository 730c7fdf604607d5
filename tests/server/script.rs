//! The format of the scripts, and how a reply is judged.
//!
//! ```text
//! # a comment
//! == a section: everything is flushed and clients start anew
//! SET a "hello\r\n"        => OK
//! GET a                    => "hello\r\n"
//! INCR n                   => 1
//! @2 GET a                 => "hello\r\n"      (a second client, made on first use)
//! LPUSH a x                => !WRONGTYPE *     (an error; a final * matches the rest)
//! SMEMBERS s               => {"a" "b"}        (in any order)
//! HGETALL h                => ["f" "v"]
//! TTL a                    => 90..100
//! INFO                     => ~*redis_version:* (a string that matches a glob)
//! CLIENT ID                => _                (anything)
//! OBJECT ENCODING l        => "listpack"
//!   redis<7.2              => "quicklist"      (what a real server of that kind says instead)
//!   valkey>=9 redis<7      => _                (all conditions must hold)
//! sleep 20ms                                   (moves the clock, where there is one to move)
//! repeat 100 RPUSH l item:$i                   (no expectation: it must only not fail)
//! ```
//!
//! A command's words follow the quoting rules of redis-cli. An integer reply is a bare number, a
//! bulk string is quoted, `nil` is either null; RESP3 has `%[k v]`, `~[a b]`, `,1.5`, `#t`.

use std::time::Duration;

use super::reply::Reply;
use super::target::{Kind, Target};

/// A parsed script.
#[derive(Debug)]
pub(crate) struct Script {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    number: usize,
    text: String,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Section,
    Sleep(Duration),
    Repeat { times: u64, client: usize, words: Vec<String> },
    Case { client: usize, words: Vec<Vec<u8>>, expected: Expected, instead: Vec<(Vec<Condition>, Expected)> },
}

/// What a reply must be like.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expected {
    Anything,
    Exactly(Reply),
    Error(String),
    Glob(String),
    Between(i64, i64),
    InOrder(Vec<Expected>),
    InAnyOrder(Vec<Expected>),
    Map(Vec<Expected>),
    Set(Vec<Expected>),
}

/// How a list opens and closes, and what it is then.
type List = (&'static str, char, fn(Vec<Expected>) -> Expected);

/// `redis<7.2`
#[derive(Debug, Clone)]
struct Condition {
    kind: Kind,
    operator: String,
    version: Vec<u64>,
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) cases: usize,
    pub(crate) failures: Vec<String>,
}

impl Script {
    pub(crate) fn parse(text: &str) -> Result<Script, String> {
        let mut lines: Vec<Line> = Vec::new();
        for (index, raw) in text.lines().enumerate() {
            let number = index + 1;
            let at = |why: String| format!("{number}: {why}: {raw}");
            let line = raw.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if raw.starts_with([' ', '\t']) {
                let (conditions, expected) = parse_instead(line).map_err(at)?;
                match lines.last_mut().map(|line| &mut line.step) {
                    Some(Step::Case { instead, .. }) => instead.push((conditions, expected)),
                    _ => return Err(format!("{number}: nothing to replace")),
                }
                continue;
            }
            let step = parse_step(line).map_err(at)?;
            lines.push(Line { number, text: line.to_owned(), step });
        }
        Ok(Script { lines })
    }

    /// Runs the script from its first section on.
    pub(crate) fn run(&self, target: &mut dyn Target) -> Outcome {
        let mut outcome = Outcome::default();
        target.start_over();
        for line in &self.lines {
            match &line.step {
                Step::Section => target.start_over(),
                Step::Sleep(time) => target.sleep(*time),
                Step::Repeat { times, client, words } => {
                    for i in 0..*times {
                        let words: Vec<Vec<u8>> = words
                            .iter()
                            .map(|word| word.replace("$i", &i.to_string()).into_bytes())
                            .collect();
                        if let Some(Reply::Error(why)) = target.call(*client, &words) {
                            outcome.failures.push(format!("{}: {}\n    got !{why}", line.number, line.text));
                            break;
                        }
                    }
                }
                Step::Case { client, words, expected, instead } => {
                    outcome.cases += 1;
                    let (kind, version) = target.version();
                    let replaced = instead
                        .iter()
                        .find(|(conditions, _)| conditions.iter().all(|c| c.holds(kind, &version)));
                    let expected = replaced.map_or(expected, |(_, expected)| expected);
                    let reply = target.call(*client, words);
                    let good = reply.as_ref().is_some_and(|reply| expected.accepts(reply));
                    if !good {
                        let got = reply.map_or("no reply".to_owned(), |reply| reply.to_string());
                        outcome.failures.push(format!("{}: {}\n    got {got}", line.number, line.text));
                    }
                }
            }
        }
        outcome
    }
}

fn parse_step(line: &str) -> Result<Step, String> {
    if line.starts_with("==") {
        return Ok(Step::Section);
    }
    if let Some(time) = line.strip_prefix("sleep ") {
        let ms = time.strip_suffix("ms").and_then(|ms| ms.trim().parse().ok());
        return ms.map(|ms| Step::Sleep(Duration::from_millis(ms))).ok_or("a time in ms".to_owned());
    }
    if let Some(rest) = line.strip_prefix("repeat ") {
        let (times, command) = rest.split_once(' ').ok_or("repeat what?")?;
        let times = times.parse().map_err(|_| "repeat how often?")?;
        let (client, command) = parse_client(command)?;
        let words = split_words(command)?.into_iter().map(|word| String::from_utf8_lossy(&word).into_owned());
        return Ok(Step::Repeat { times, client, words: words.collect() });
    }
    let (command, expected) = line.split_once("=>").ok_or("no =>")?;
    let (client, command) = parse_client(command)?;
    Ok(Step::Case {
        client,
        words: split_words(command)?,
        expected: Expected::parse(expected.trim())?,
        instead: Vec::new(),
    })
}

fn parse_client(command: &str) -> Result<(usize, &str), String> {
    match command.strip_prefix('@') {
        None => Ok((1, command)),
        Some(rest) => {
            let (number, command) = rest.split_once(' ').ok_or("no command")?;
            Ok((number.parse().map_err(|_| "not a client's number")?, command))
        }
    }
}

fn parse_instead(line: &str) -> Result<(Vec<Condition>, Expected), String> {
    let (conditions, expected) = line.split_once("=>").ok_or("no =>")?;
    let conditions = conditions.split_whitespace().map(Condition::parse).collect::<Result<_, _>>()?;
    Ok((conditions, Expected::parse(expected.trim())?))
}

impl Condition {
    fn parse(text: &str) -> Result<Condition, String> {
        let at = text.find(['<', '>', '=']).ok_or("a condition is like redis<7.2")?;
        let (kind, rest) = text.split_at(at);
        let digits = rest.find(|c: char| c.is_ascii_digit()).ok_or("no version")?;
        let (operator, version) = rest.split_at(digits);
        let kind = match kind {
            "redis" => Kind::Redis,
            "valkey" => Kind::Valkey,
            "bigkeys" => Kind::Bigkeys,
            _ => return Err(format!("unknown kind of server {kind}")),
        };
        Ok(Condition { kind, operator: operator.to_owned(), version: parse_version(version) })
    }

    fn holds(&self, kind: Kind, version: &[u64]) -> bool {
        let shown = &version[..version.len().min(self.version.len())];
        kind == self.kind
            && match self.operator.as_str() {
                "<" => version < &self.version[..],
                ">=" => version >= &self.version[..],
                "<=" => shown <= &self.version[..],
                ">" => shown > &self.version[..],
                _ => shown == &self.version[..],
            }
    }
}

pub(crate) fn parse_version(text: &str) -> Vec<u64> {
    text.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

impl Expected {
    pub(crate) fn parse(text: &str) -> Result<Expected, String> {
        if let Some(error) = text.strip_prefix('!') {
            return Ok(Expected::Error(error.to_owned()));
        }
        let mut rest = text;
        let expected = Expected::parse_one(&mut rest)?;
        if rest.trim().is_empty() { Ok(expected) } else { Err(format!("what is `{rest}`?")) }
    }

    fn parse_one(rest: &mut &str) -> Result<Expected, String> {
        *rest = rest.trim_start();
        let lists: [List; 4] = [
            ("%[", ']', Expected::Map),
            ("~[", ']', Expected::Set),
            ("[", ']', Expected::InOrder),
            ("{", '}', Expected::InAnyOrder),
        ];
        for (open, close, make) in lists {
            if let Some(inner) = rest.strip_prefix(open) {
                *rest = inner;
                return Expected::parse_list(rest, close).map(make);
            }
        }
        if rest.starts_with('"') {
            let end = closing_quote(rest).ok_or("an open quote")?;
            let words = split_words(&rest[..=end])?;
            *rest = &rest[end + 1..];
            return Ok(Expected::Exactly(Reply::Bulk(words.concat())));
        }
        let end = rest.find([' ', ']', '}']).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        if let Some(glob) = word.strip_prefix('~') {
            *rest = tail;
            return Ok(Expected::Glob(glob.to_owned()));
        }
        *rest = tail;
        Ok(match word {
            "" => return Err("an expectation is missing".to_owned()),
            "_" => Expected::Anything,
            "nil" => Expected::Exactly(Reply::Nil),
            "#t" => Expected::Exactly(Reply::Bool(true)),
            "#f" => Expected::Exactly(Reply::Bool(false)),
            _ => {
                if let Some(error) = word.strip_prefix('!') {
                    Expected::Error(error.to_owned())
                } else if let Some(double) = word.strip_prefix(',') {
                    Expected::Exactly(Reply::Double(double.to_owned()))
                } else if let Some((low, high)) = word.split_once("..") {
                    let number = |text: &str| text.parse().map_err(|_| format!("not a range: {word}"));
                    Expected::Between(number(low)?, number(high)?)
                } else if let Ok(value) = word.parse() {
                    Expected::Exactly(Reply::Int(value))
                } else {
                    Expected::Exactly(Reply::Simple(word.to_owned()))
                }
            }
        })
    }

    fn parse_list(rest: &mut &str, close: char) -> Result<Vec<Expected>, String> {
        let mut items = Vec::new();
        loop {
            *rest = rest.trim_start();
            if let Some(tail) = rest.strip_prefix(close) {
                *rest = tail;
                return Ok(items);
            }
            if rest.is_empty() {
                return Err(format!("no closing {close}"));
            }
            items.push(Expected::parse_one(rest)?);
        }
    }

    pub(crate) fn accepts(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Expected::Anything, _) => true,
            (Expected::Exactly(expected), reply) => expected == reply,
            (Expected::Error(text), Reply::Error(got)) => match text.strip_suffix('*') {
                Some(start) => got.starts_with(start),
                None => got.trim_end() == text,
            },
            (Expected::Glob(pattern), Reply::Bulk(got) | Reply::Verbatim(got)) => {
                glob(pattern.as_bytes(), got)
            }
            (Expected::Glob(pattern), Reply::Simple(got)) => glob(pattern.as_bytes(), got.as_bytes()),
            (Expected::Between(low, high), Reply::Int(got)) => (low..=high).contains(&got),
            (Expected::InAnyOrder(expected), Reply::Array(got) | Reply::Set(got)) => {
                in_any_order(expected, got)
            }
            (Expected::InOrder(expected), Reply::Array(got))
            | (Expected::Map(expected), Reply::Map(got))
            | (Expected::Set(expected), Reply::Set(got)) => in_order(expected, got),
            _ => false,
        }
    }
}

fn in_order(expected: &[Expected], got: &[Reply]) -> bool {
    expected.len() == got.len() && expected.iter().zip(got).all(|(expected, got)| expected.accepts(got))
}

fn in_any_order(expected: &[Expected], got: &[Reply]) -> bool {
    let mut left: Vec<&Reply> = got.iter().collect();
    expected.len() == got.len()
        && expected.iter().all(|expected| {
            let found = left.iter().position(|reply| expected.accepts(reply));
            found.map(|at| left.swap_remove(at)).is_some()
        })
}

/// `*` and `?` are all that the scripts need.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| glob(rest, &text[skip..])),
        ([b'?', rest @ ..], [_, tail @ ..]) => glob(rest, tail),
        ([byte, rest @ ..], [head, tail @ ..]) => byte == head && glob(rest, tail),
        _ => false,
    }
}

/// Returns where the quote that opens `text` closes.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().enumerate().skip(1).find_map(|(at, byte)| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes.then_some(at)
    })
}

/// Splits a command into words, with double quotes and their escapes.
pub(crate) fn split_words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let (mut words, mut bytes) = (Vec::new(), line.trim().bytes().peekable());
    while let Some(&first) = bytes.peek() {
        if first == b' ' {
            bytes.next();
            continue;
        }
        let mut word = Vec::new();
        if first == b'"' {
            bytes.next();
            loop {
                match bytes.next().ok_or("an open quote")? {
                    b'"' => break,
                    b'\\' => word.push(match bytes.next().ok_or("an open escape")? {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'x' => {
                            let digits = [bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)];
                            let digits = String::from_utf8_lossy(&digits).into_owned();
                            u8::from_str_radix(&digits, 16).map_err(|_| "a bad \\x")?
                        }
                        other => other,
                    }),
                    byte => word.push(byte),
                }
            }
        } else {
            while let Some(byte) = bytes.next_if(|byte| *byte != b' ') {
                word.push(byte);
            }
        }
        words.push(word);
    }
    Ok(words)
}

#[test]
fn expectations_accept_what_they_say() {
    let accepts = |text: &str, reply: Reply| Expected::parse(text).expect(text).accepts(&reply);
    assert!(accepts("OK", Reply::Simple("OK".to_owned())));
    assert!(!accepts("OK", Reply::Bulk(b"OK".to_vec())));
    assert!(accepts(r#""a\"b""#, Reply::Bulk(b"a\"b".to_vec())));
    assert!(accepts("1..3", Reply::Int(2)) && !accepts("1..3", Reply::Int(4)));
    assert!(accepts("{1 2}", Reply::Array(vec![Reply::Int(2), Reply::Int(1)])));
    assert!(!accepts("[1 2]", Reply::Array(vec![Reply::Int(2), Reply::Int(1)])));
    assert!(accepts("!ERR x *", Reply::Error("ERR x yz".to_owned())));
    assert!(accepts("~a*c", Reply::Bulk(b"abbc".to_vec())));
    assert!(accepts(
        "[\"a\" [nil _]]",
        Reply::Array(vec![Reply::Bulk(b"a".to_vec()), Reply::Array(vec![Reply::Nil, Reply::Int(9)]),])
    ));
}

#[test]
fn conditions_compare_versions_by_number() {
    let holds = |text: &str, version: &str| {
        Condition::parse(text).expect(text).holds(Kind::Redis, &parse_version(version))
    };
    assert!(holds("redis<7.2", "7.0.15") && !holds("redis<7.2", "7.2.0") && !holds("redis<7.2", "10.0.1"));
    assert!(holds("redis>=8", "8.2.3") && holds("redis=7.0", "7.0.15") && !holds("valkey<9", "7.0.15"));
}
