//! Which keys are wanted. All conditions must hold.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap::builder::TypedValueParser;
use regex::bytes::Regex;

use crate::engine::key::{Encoding, Kind};
use crate::engine::risk::Level;
use crate::engine::scan::TtlFilter;

use super::value::{
    Glob, level_parser, parse_bytes, parse_count, parse_duration, parse_encoding, parse_glob, parse_kind,
    parse_regex, parse_ttl,
};

/// Which keys are wanted.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters (all must hold)")]
pub struct FilterArgs {
    /// Keys whose name matches, repeatable
    ///
    /// Globs follow Redis's own rules: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before a special character.
    /// Of several, one must match. A single one is matched by the server.
    ///
    /// A name with bytes that a shell cannot type is quoted as redis-cli quotes: `--match '"\x00\xff*"'`.
    #[arg(long = "match", value_name = "GLOB", value_parser = NonEmptyStringValueParser::new().try_map(|text| parse_glob(&text)))]
    pub matches: Vec<Glob>,

    /// Keys whose name does not match, repeatable
    ///
    /// Of several, none may match.
    #[arg(long, value_name = "GLOB", value_parser = NonEmptyStringValueParser::new().try_map(|text| parse_glob(&text)))]
    pub exclude: Vec<Glob>,

    /// Keys whose name matches the regular expression
    ///
    /// The syntax is Rust's, without look-around. It is matched anywhere in the name unless anchored with `^` and `$`. `(?-u:\xff)` matches a byte that is no UTF-8.
    #[arg(long, value_name = "REGEX", value_parser = parse_regex)]
    pub regex: Option<Regex>,

    /// Keys of these types
    ///
    /// By the words that TYPE answers: string, list, set, zset, hash, stream,
    /// vectorset, array, or a module's type such as ReJSON-RL. Repeatable, or several with commas.
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = parse_kind)]
    pub kinds: Vec<Kind>,

    /// Keys with these encodings
    ///
    /// By the words that OBJECT ENCODING answers: hashtable, skiplist,
    /// quicklist, listpack and so on. Repeatable, or several with commas.
    #[arg(long = "encoding", value_name = "ENCODING", value_delimiter = ',', value_parser = parse_encoding)]
    pub encodings: Vec<Encoding>,

    /// Keys of at least this size: 10M, 64KiB
    ///
    /// It is the memory they take. Units are those of redis.conf: `k m g t` are powers of
    /// 1000 (10M is 10 000 000), `kb mb gb tb` and KiB MiB GiB TiB are powers of 1024.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_bytes)]
    pub min_bytes: Option<u64>,

    /// Keys with at least so many elements
    ///
    /// For a string, its bytes. `k` and `M` are thousands and millions.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = parse_count)]
    pub min_elements: Option<u64>,

    /// Keys with at least so many allocations
    ///
    /// That is what has to be freed one by one, and what a stall is made of. `k` and `M` are thousands and millions.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = parse_count)]
    pub min_allocs: Option<u64>,

    /// Keys of at least this level
    ///
    /// Levels begin where --levels says. A key whose level is not known passes: what is not known is shown.
    #[arg(long, value_name = "LEVEL", value_parser = level_parser(Level::Low))]
    pub risk: Option<Level>,

    /// Keys by time to live: none, '<1h', '>7d'
    ///
    /// `none` are keys without a TTL; `<` and `>` say how long the others have to live: less than, more than.
    /// Quote it: to a shell these are redirections.
    #[arg(long, value_name = "BOUND", value_parser = parse_ttl)]
    pub ttl: Option<TtlFilter>,

    /// Keys not accessed for longer than this: 30d
    ///
    /// The server knows it under any maxmemory policy but an LFU one.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub idle_over: Option<Duration>,
}
