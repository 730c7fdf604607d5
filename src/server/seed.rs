//! A believable keyspace for `demo`: what a shop's Redis looks like after three years, with one of each
//! thing that stalls a server, and some that only look as if they would.
//!
//! Everything goes over the wire as from any client, so the values get the encodings that clients get.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A debug build is many times slower, and fills a tenth: it is what the tests run.
const PART: u64 = if cfg!(debug_assertions) { 10 } else { 1 };

/// Commands go out when this many bytes are waiting.
const BATCH_BYTES: usize = 256 << 10;

/// Fills the server at an address with the sample keyspace.
///
/// # Errors
/// When the connection breaks, or the server refuses a command.
pub fn fill(address: SocketAddr) -> io::Result<()> {
    let mut client = Client::connect(address)?;
    giants(&mut client)?;
    decoys(&mut client)?;
    streams(&mut client)?;
    small_keys(&mut client)?;
    storm(&mut client)?;
    client.flush()
}

/// The set that everybody would notice.
pub const VISITORS: &str = "visitors:2026";
/// Makes the key anew that the demo deletes more than once.
///
/// As it was made at first: a COPY lies in memory in the order in which it is freed, and goes ten times as
/// fast.
///
/// # Errors
/// As [`fill`]; and when it is another key.
pub fn fill_again(address: SocketAddr, key: &str) -> io::Result<()> {
    let mut client = Client::connect(address)?;
    match key {
        VISITORS => visitors(&mut client)?,
        _ => return Err(io::Error::other(format!("`{key}` is not made anew"))),
    }
    client.flush()
}

fn visitors(client: &mut Client) -> io::Result<()> {
    client.many("SADD", VISITORS, 3_000_000, |n, args| args.push(format!("visitor:{n:07}")))
}

/// Keys that stall a server when they are deleted.
fn giants(client: &mut Client) -> io::Result<()> {
    visitors(client)?;
    client.many("HSET", "cart:index", 250_000, |n, args| {
        args.extend([format!("cart:{n}"), format!("user:{};items:{}", n * 7 % 250_000, n % 9)]);
    })?;
    client.many("ZADD", "leaderboard:global", 120_000, |n, args| {
        args.extend([(n * 7919 % 1_000_003).to_string(), format!("player:{n}")]);
    })?;
    // One block: UNLINK frees it on the command thread all the same.
    client.send(&[b"SET", b"export:catalogue.json", &vec![b'{'; 64 << 20]])?;
    // A time bomb: it goes off by itself, where lazyfree-lazy-expire is no.
    client.many("SADD", "campaign:spring:seen", 400_000, |n, args| args.push(format!("user:{n}")))?;
    client.send(&[b"EXPIRE", b"campaign:spring:seen", b"7200"])
}

/// Keys that look large and are not.
fn decoys(client: &mut Client) -> io::Result<()> {
    client.many("RPUSH", "events:recent", 1_000_000, |n, args| args.push(n.to_string()))?;
    client.many("HSET", "session:limits", 400, |n, args| {
        args.extend([format!("user:{n}"), (n % 60).to_string()]);
    })?;
    client.send(&[b"HEXPIRE", b"session:limits", b"3600", b"FIELDS", b"2", b"user:1", b"user:2"])?;
    client.send(&[b"SET", b"\x00binary\xff\n=1+1", b"any bytes are a name"])
}

/// A short stream with a heavy consumer group: the server's effort looks at the first group only.
fn streams(client: &mut Client) -> io::Result<()> {
    const ENTRIES: u64 = 60_000 / PART;
    for n in 1..=ENTRIES {
        client.send(&[
            b"XADD",
            b"orders",
            format!("{n}-1").as_bytes(),
            b"order",
            n.to_string().as_bytes(),
        ])?;
    }
    client.send(&[b"XGROUP", b"CREATE", b"orders", b"audit", b"$"])?;
    client.send(&[b"XGROUP", b"CREATE", b"orders", b"billing", b"0"])?;
    for _ in 0..ENTRIES.div_ceil(10_000) {
        let read: [&[u8]; 9] = [
            b"XREADGROUP",
            b"GROUP",
            b"billing",
            b"worker-1",
            b"COUNT",
            b"10000",
            b"STREAMS",
            b"orders",
            b">",
        ];
        client.send(&read)?;
    }
    client.send(&[b"XTRIM", b"orders", b"MAXLEN", b"100"])
}

/// What most keys are.
fn small_keys(client: &mut Client) -> io::Result<()> {
    for n in 0..20_000_u64 / PART {
        let value = "v".repeat(20 + usize::try_from(n % 80).unwrap_or(0));
        client.send(&[b"SET", format!("session:{n}").as_bytes(), value.as_bytes(), b"EX", b"86400"])?;
    }
    for n in 0..10_000_u64 / PART {
        let (key, name) = (format!("user:{n}"), format!("name-{n}"));
        client.send(&[b"HSET", key.as_bytes(), b"name", name.as_bytes(), b"plan", b"basic"])?;
    }
    for n in 0..5_000_u64 / PART {
        client.send(&[b"INCRBY", format!("page:{n}:views").as_bytes(), n.to_string().as_bytes()])?;
    }
    Ok(())
}

/// Twenty thousand keys that are due in the same second.
fn storm(client: &mut Client) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let due = (now + Duration::from_hours(1)).as_secs().to_string();
    for n in 0..20_000_u64 / PART {
        client.send(&[b"SET", format!("coupon:{n}").as_bytes(), b"10%", b"EXAT", due.as_bytes()])?;
    }
    Ok(())
}

/// A client that sends in batches and reads only to see that nothing was refused.
struct Client {
    stream: BufReader<TcpStream>,
    batch: Vec<u8>,
    unanswered: usize,
}

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), batch: Vec::new(), unanswered: 0 })
    }

    /// Sends a command for every 500 elements that `element` makes.
    fn many(
        &mut self,
        command: &str,
        key: &str,
        elements: u64,
        element: impl Fn(u64, &mut Vec<String>),
    ) -> io::Result<()> {
        let elements = elements / PART;
        for start in (0..elements).step_by(500) {
            let mut args = vec![command.to_owned(), key.to_owned()];
            (start..elements.min(start + 500)).for_each(|n| element(n, &mut args));
            let args: Vec<&[u8]> = args.iter().map(String::as_bytes).collect();
            self.send(&args)?;
        }
        Ok(())
    }

    fn send(&mut self, args: &[&[u8]]) -> io::Result<()> {
        write!(self.batch, "*{}\r\n", args.len())?;
        for arg in args {
            write!(self.batch, "${}\r\n", arg.len())?;
            self.batch.extend_from_slice(arg);
            self.batch.extend_from_slice(b"\r\n");
        }
        self.unanswered += 1;
        if self.batch.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.batch)?;
        self.batch.clear();
        for _ in 0..std::mem::take(&mut self.unanswered) {
            self.skip_reply()?;
        }
        Ok(())
    }

    fn skip_reply(&mut self) -> io::Result<()> {
        let mut to_skip = 1_u64;
        while to_skip > 0 {
            to_skip -= 1;
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let length = line.get(1..).unwrap_or_default().trim_end().parse::<i64>();
            match (line.as_bytes().first(), length) {
                (Some(b'+' | b':'), _) => {}
                (Some(b'$'), Ok(length)) => {
                    let bytes = u64::try_from(length).map_or(0, |length| length + 2);
                    io::copy(&mut self.stream.by_ref().take(bytes), &mut io::sink())?;
                }
                (Some(b'*'), Ok(length)) => to_skip += u64::try_from(length).unwrap_or(0),
                _ => {
                    return Err(io::Error::other(format!(
                        "the bundled server answered {:?}",
                        line.trim_end()
                    )));
                }
            }
        }
        Ok(())
    }
}
