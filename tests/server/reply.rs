//! Replies, decoded. Written for the tests alone: neither the server's writer nor a client library
//! may hide the other's mistakes.

use std::fmt;

/// One reply, in either protocol.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    /// Keys and values, alternating.
    Map(Vec<Reply>),
    Double(String),
    Bool(bool),
    Verbatim(Vec<u8>),
}

/// Decodes one reply from the front of `bytes`; returns what is left, or `None` if there is not
/// enough yet.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Reply, &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (&bytes[1..end], &bytes[end + 2..]);
    let text = String::from_utf8_lossy(line).into_owned();
    let number = || text.parse::<i64>().unwrap_or_else(|_| panic!("not a number in a reply: {text}"));
    Some(match bytes[0] {
        b'+' => (Reply::Simple(text), rest),
        b'-' => (Reply::Error(text), rest),
        b':' => (Reply::Int(number()), rest),
        b',' => (Reply::Double(text), rest),
        b'#' => (Reply::Bool(text == "t"), rest),
        b'_' => (Reply::Nil, rest),
        b'$' | b'=' => {
            let Ok(len) = usize::try_from(number()) else {
                return Some((Reply::Nil, rest));
            };
            let body = rest.get(..len)?.to_vec();
            let rest = rest.get(len + 2..)?;
            if bytes[0] == b'$' { (Reply::Bulk(body), rest) } else { (Reply::Verbatim(body), rest) }
        }
        b'*' | b'~' | b'%' | b'>' => {
            let Ok(len) = usize::try_from(number()) else {
                return Some((Reply::Nil, rest));
            };
            let len = if bytes[0] == b'%' { len * 2 } else { len };
            let (mut items, mut rest) = (Vec::new(), rest);
            for _ in 0..len {
                let (item, left) = decode(rest)?;
                items.push(item);
                rest = left;
            }
            let reply = match bytes[0] {
                b'%' => Reply::Map(items),
                b'~' => Reply::Set(items),
                _ => Reply::Array(items),
            };
            (reply, rest)
        }
        other => panic!("a reply starts with {:?}", char::from(other)),
    })
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, open: &str, items: &[Reply], close: &str| {
            let items: Vec<String> = items.iter().map(Reply::to_string).collect();
            write!(f, "{open}{}{close}", items.join(" "))
        };
        match self {
            Reply::Simple(text) => f.write_str(text),
            Reply::Error(text) => write!(f, "!{text}"),
            Reply::Int(value) => write!(f, "{value}"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::Verbatim(bytes) => write!(f, "=\"{}\"", bytes.escape_ascii()),
            Reply::Nil => f.write_str("nil"),
            Reply::Double(text) => write!(f, ",{text}"),
            Reply::Bool(value) => write!(f, "#{}", if *value { 't' } else { 'f' }),
            Reply::Array(items) => list(f, "[", items, "]"),
            Reply::Set(items) => list(f, "~[", items, "]"),
            Reply::Map(items) => list(f, "%[", items, "]"),
        }
    }
}
