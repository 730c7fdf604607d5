//! Values with their units: `10M`, `64KiB`, `5ms`, `10k/s`, `<1h`. Pure text in, plain data out.
//!
//! Sizes use the words of redis.conf, so that a number copied from there means the same here:
//! `k m g t` are powers of 1000, `kb mb gb tb` (and `KiB MiB GiB TiB`) powers of 1024, in any case.
//! It is Redis's habit and not the SI's, and the help of each flag that takes a size says so.

use std::fmt;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use regex::bytes::{Regex, RegexBuilder};

use crate::engine::delete::Method;
use crate::engine::key::{Encoding, KeyName, Kind};
use crate::engine::report::Format;
use crate::engine::risk::{Level, Thresholds};
use crate::engine::scan::{Count, TtlFilter};
use crate::engine::tally::SortBy;

/// Why a text is no such value. Says what would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError(String);

impl ValueError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

/// A pattern on the bytes of a key's name, typed plain or quoted Redis style (`'"\x00*"'`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(pub Vec<u8>);

/// `--rate`: commands per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// At most so many.
    PerSecond(f64),
    /// As fast as the server answers.
    Max,
}

/// The highest `--rate`. Above it `max` is meant: no server answers more.
const RATE_MAX: u64 = 10_000_000;

/// Reads a size in bytes.
///
/// # Errors
/// When the text is no size, or one that does not fit.
pub(super) fn parse_bytes(text: &str) -> Result<u64, ValueError> {
    let wrong = "expected a size such as 512, 10M (10 x 1000 x 1000, as in redis.conf) or 64KiB (64 x 1024)";
    let (number, unit) = split_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "m" => 1000_u64.pow(2),
        "g" => 1000_u64.pow(3),
        "t" => 1000_u64.pow(4),
        "kb" | "kib" => 1024,
        "mb" | "mib" => 1024_u64.pow(2),
        "gb" | "gib" => 1024_u64.pow(3),
        "tb" | "tib" => 1024_u64.pow(4),
        _ => return Err(ValueError::new(wrong)),
    };
    scaled(number, factor, wrong)
}

/// Reads a number of things.
///
/// # Errors
/// When the text is no number, or one that does not fit.
pub(super) fn parse_count(text: &str) -> Result<u64, ValueError> {
    let wrong = "expected a number such as 500, 10k or 1M";
    let (number, unit) = split_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1000,
        "m" => 1000_u64.pow(2),
        "g" => 1000_u64.pow(3),
        _ => return Err(ValueError::new(wrong)),
    };
    scaled(number, factor, wrong)
}

/// Reads a number of things that cannot be 0.
///
/// # Errors
/// When the text is no number, or 0.
pub(super) fn parse_count_from_one(text: &str) -> Result<u64, ValueError> {
    match parse_count(text)? {
        0 => Err(ValueError::new("expected a number from 1 on")),
        count => Ok(count),
    }
}

/// Reads a number of things that fits 32 bits.
///
/// # Errors
/// When the text is no such number.
pub(super) fn parse_count_u32(text: &str) -> Result<u32, ValueError> {
    u32::try_from(parse_count(text)?).map_err(|_| ValueError::new("the number is too large"))
}

/// Reads the number of a database.
///
/// # Errors
/// When the text is no such number.
pub(super) fn parse_db(text: &str) -> Result<u32, ValueError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.ok_or_else(|| ValueError::new("expected the number of a database, such as 0 or 3"))
}

/// The most keys that `--top` keeps: each takes about a kilobyte, and its name on top.
pub(super) const TOP_MAX: u64 = 10_000;

/// Reads the length of the top list.
///
/// # Errors
/// When the text is no number, or one above [`TOP_MAX`].
pub(super) fn parse_top(text: &str) -> Result<usize, ValueError> {
    match parse_count(text)? {
        top if top <= TOP_MAX => usize::try_from(top).map_err(|_| ValueError::new("the number is too large")),
        _ => Err(ValueError::new(format!(
            "expected at most {TOP_MAX}: for more, write every finding to a file with `-o keys.csv`"
        ))),
    }
}

/// Reads a time: `5ms`, `30s`, `1h 30m`, `30d`.
///
/// # Errors
/// When the text is no time, or has no unit.
pub(super) fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    humantime::parse_duration(text.trim())
        .map_err(|_| ValueError::new("expected a time with its unit, such as 5ms, 30s, 2h or 30d"))
}

/// Reads a time that cannot be 0.
///
/// # Errors
/// When the text is no time, or 0.
pub(super) fn parse_duration_not_zero(text: &str) -> Result<Duration, ValueError> {
    match parse_duration(text)? {
        Duration::ZERO => Err(ValueError::new("expected a time above 0")),
        duration => Ok(duration),
    }
}

/// Reads a rate: `10k/s`, `500`, `max`.
///
/// # Errors
/// When the text is no rate, or 0.
pub(super) fn parse_rate(text: &str) -> Result<Rate, ValueError> {
    let wrong = "expected commands per second such as 500/s or 10k/s, or `max` for no limit";
    let text = text.trim();
    if text.eq_ignore_ascii_case("max") {
        return Ok(Rate::Max);
    }
    let number = text.strip_suffix("/s").or_else(|| text.strip_suffix("/S")).unwrap_or(text);
    match parse_count(number).map_err(|_| ValueError::new(wrong))? {
        0 => Err(ValueError::new("a rate of 0 would never end: the lowest is 1/s")),
        rate if rate > RATE_MAX => Err(ValueError::new(format!(
            "the highest rate is {}M/s: `max` takes the limit away",
            RATE_MAX / 1_000_000
        ))),
        rate => Ok(Rate::PerSecond(rate as f64)),
    }
}

/// Reads `--count`: `auto` or a number.
///
/// # Errors
/// When the text is neither.
pub(super) fn parse_scan_count(text: &str) -> Result<Count, ValueError> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Count::Auto);
    }
    match parse_count_u32(text) {
        Ok(count) if count > 0 => Ok(Count::Fixed(count)),
        _ => Err(ValueError::new("expected `auto` or a number of keys per SCAN call, such as 500")),
    }
}

/// Reads `--ttl`: `none`, `<1h`, `>7d`.
///
/// # Errors
/// When the text is none of these.
pub(super) fn parse_ttl(text: &str) -> Result<TtlFilter, ValueError> {
    let wrong =
        || ValueError::new("expected `none`, or a bound such as '<1h' or '>7d' (quoted for the shell)");
    let text = text.trim();
    if text.eq_ignore_ascii_case("none") {
        return Ok(TtlFilter::Never);
    }
    let (bound, make): (_, fn(Duration) -> TtlFilter) = match (text.strip_prefix('<'), text.strip_prefix('>'))
    {
        (Some(bound), _) => (bound, TtlFilter::Under),
        (_, Some(bound)) => (bound, TtlFilter::Over),
        _ => return Err(wrong()),
    };
    parse_duration(bound).map(make).map_err(|_| wrong())
}

/// Reads a glob, plain or quoted.
///
/// # Errors
/// When a quoted glob is not whole, or the glob is empty.
pub(super) fn parse_glob(text: &str) -> Result<Glob, ValueError> {
    let name = KeyName::parse(text).map_err(|error| ValueError::new(error.to_string()))?;
    Ok(Glob(name.as_bytes().to_vec()))
}

/// A key's name, typed plain or quoted Redis style (`'"\x00"'`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(pub KeyName);

/// Reads the name of a key, plain or quoted.
///
/// # Errors
/// When a quoted name is not whole.
pub(super) fn parse_key(text: &str) -> Result<Key, ValueError> {
    KeyName::parse(text).map(Key).map_err(|error| ValueError::new(error.to_string()))
}

/// Reads a part of something: `10%`, `0%`.
///
/// # Errors
/// When the text is no percentage from 0 to 1000.
pub(super) fn parse_percentage(text: &str) -> Result<f64, ValueError> {
    let wrong = || ValueError::new("expected a percentage such as 10% or 0%");
    let number: f64 = text.trim().strip_suffix('%').ok_or_else(wrong)?.trim().parse().map_err(|_| wrong())?;
    if (0.0..=1000.0).contains(&number) { Ok(number / 100.0) } else { Err(wrong()) }
}

/// Parses `--method`.
pub(super) fn method_parser() -> ValueParser {
    PossibleValuesParser::new(Method::ALL.map(Method::as_str))
        .map(|word| Method::from_word(&word).expect("clap has seen to it that it is one of these"))
        .into()
}

/// Reads a regular expression on bytes.
///
/// # Errors
/// When it does not compile, or would take more than a few megabytes.
pub(super) fn parse_regex(text: &str) -> Result<Regex, ValueError> {
    RegexBuilder::new(text).build().map_err(|error| {
        // The crate draws the pattern over several lines; the last one says what is wrong.
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim();
        ValueError::new(last.strip_prefix("error: ").unwrap_or(last).to_owned())
    })
}

/// Reads a type by the word that `TYPE` answers.
///
/// Words that no server answers are refused, so that a typo is not a filter that matches nothing. The
/// name of a module's type has nine characters always (the module API insists), and so is known.
///
/// # Errors
/// When no server has such a type.
pub(super) fn parse_kind(text: &str) -> Result<Kind, ValueError> {
    let native = Kind::from_type_reply(&text.to_ascii_lowercase());
    match native {
        Some(kind) if !matches!(kind, Kind::Other(_)) => Ok(kind),
        _ if text.len() == 9
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) =>
        {
            Ok(Kind::Other(text.into()))
        }
        _ => Err(ValueError::new(
            "expected string, list, set, zset, hash, stream, vectorset, array, or a module's type such as ReJSON-RL",
        )),
    }
}

/// Encodings that have a name and no rules of their own yet.
const OTHER_ENCODINGS: [&str; 2] = ["template-listpack", "template-array"];

/// Reads an encoding by the word that `OBJECT ENCODING` answers.
///
/// # Errors
/// When no server has such an encoding.
pub(super) fn parse_encoding(text: &str) -> Result<Encoding, ValueError> {
    match Encoding::from_reply(&text.to_ascii_lowercase()) {
        Encoding::Other(word) if !OTHER_ENCODINGS.contains(&&*word) => Err(ValueError::new(
            "expected int, embstr, raw, ziplist, listpack, listpackex, intset, quicklist, hashtable, \
             skiplist, stream or sliced-array",
        )),
        encoding => Ok(encoding),
    }
}

/// Reads `--levels`: four numbers of allocations that rise.
///
/// # Errors
/// When there are not four, or they do not rise.
pub(super) fn parse_levels(text: &str) -> Result<Thresholds, ValueError> {
    let wrong = || ValueError::new("expected four numbers that rise, such as 64,10k,100k,1M");
    let numbers: Vec<u64> = text
        .split(',')
        .map(|part| parse_count(part.trim()))
        .collect::<Result<_, _>>()
        .map_err(|_| wrong())?;
    match numbers[..] {
        [low, medium, high, critical] if low < medium && medium < high && high < critical => {
            Ok(Thresholds { low, medium, high, critical })
        }
        _ => Err(wrong()),
    }
}

/// Takes a level by its word; `lowest` and all above it can be chosen.
pub(super) fn level_parser(lowest: Level) -> ValueParser {
    let words = Level::ALL.into_iter().filter(move |level| *level >= lowest).map(Level::as_str);
    PossibleValuesParser::new(words)
        .map(|word| {
            Level::ALL.into_iter().find(|level| level.as_str() == word).expect("clap checked the word")
        })
        .into()
}

/// Takes a form of the result by its word.
pub(super) fn format_parser() -> ValueParser {
    let words = Format::ALL.map(|format| {
        let word = PossibleValue::new(format.as_str());
        match format {
            Format::Table => word.help("For people: top keys, census, summary"),
            Format::Csv => word.help("A row for each finding"),
            Format::Json => word.help("One document: findings and summary"),
            Format::Ndjson => word.alias("jsonl").help("A line for each finding, and one for the summary"),
        }
    });
    PossibleValuesParser::new(words)
        .map(|word| match word.as_str() {
            "jsonl" => Format::Ndjson,
            word => {
                Format::ALL.into_iter().find(|format| format.as_str() == word).expect("clap checked the word")
            }
        })
        .into()
}

/// Takes the order of the top list by its word.
pub(super) fn sort_parser() -> ValueParser {
    PossibleValuesParser::new([
        PossibleValue::new("allocs").alias("allocations"),
        PossibleValue::new("bytes"),
        PossibleValue::new("elements"),
        PossibleValue::new("stall"),
    ])
    .map(|word| match word.as_str() {
        "bytes" => SortBy::Bytes,
        "elements" => SortBy::Elements,
        "stall" => SortBy::Stall,
        _ => SortBy::Allocations,
    })
    .into()
}

/// Splits `10.5kb` into `10.5` and `kb`. A blank between them is allowed.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// Returns `number x factor`, rounded down, without a detour through floating point: `0.1g` is
/// 100 000 000 exactly.
fn scaled(number: &str, factor: u64, wrong: &str) -> Result<u64, ValueError> {
    /// Digits after the point: enough for a byte of a terabyte.
    const FRACTION_DIGITS_MAX: usize = 12;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || !digits(whole)
        || !digits(fraction)
        || fraction.len() > FRACTION_DIGITS_MAX
        || number.ends_with('.')
    {
        return Err(ValueError::new(wrong));
    }
    let too_large = || ValueError::new("the number is too large");
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let parts: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| too_large())? };
    let denominator = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| too_large())?);
    let value = u128::from(whole) * u128::from(factor) + parts * u128::from(factor) / denominator;
    u64::try_from(value).map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_use_the_words_of_redis_conf() {
        let cases = [
            ("0", 0),
            ("512", 512),
            ("1k", 1000),
            ("1kb", 1024),
            ("1KiB", 1024),
            ("10M", 10_000_000),
            ("10mb", 10_485_760),
            ("2g", 2_000_000_000),
            ("1GB", 1_073_741_824),
            ("1GiB", 1_073_741_824),
            ("0.1g", 100_000_000),
            ("1.5 kb", 1536),
            ("7b", 7),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            " ",
            "k",
            "-1",
            "+1",
            "1e6",
            "1_000",
            "1,000",
            ".5",
            "5.",
            "1..2",
            "1.2.3",
            "10X",
            "10 M B",
            "0x10",
            "inf",
            "NaN",
            "18446744073709551616",
            "20000000t",
            "99999999999999999999999999999",
            "１",
            "1\0",
            "0.0000000000001",
        ] {
            assert!(parse_bytes(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn counts_take_k_and_m_but_no_bytes() {
        assert_eq!(parse_count("10k"), Ok(10_000));
        assert_eq!(parse_count("1M"), Ok(1_000_000));
        assert_eq!(parse_count("2.5k"), Ok(2500));
        for text in ["10kb", "1KiB", "-1", "", "many"] {
            assert!(parse_count(text).is_err(), "{text:?}");
        }
        assert!(parse_count_u32("5g").is_err());
        assert!(parse_count_from_one("0").is_err());
        assert_eq!((parse_db("0"), parse_db("15")), (Ok(0), Ok(15)));
        assert!(["", "-1", "+1", "1k", "4294967296"].iter().all(|text| parse_db(text).is_err()));
        assert_eq!(parse_top("20"), Ok(20));
        assert!(parse_top("10001").is_err());
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_duration("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(parse_duration(" 1h 30m "), Ok(Duration::from_mins(90)));
        assert_eq!(parse_duration("30d"), Ok(Duration::from_hours(30 * 24)));
        for text in ["", "5", "-5ms", "5 parsecs", "ms", "99999999999999999999s", "\u{661}s"] {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
        assert!(parse_duration_not_zero("0s").is_err());
    }

    #[test]
    fn rates_are_per_second_or_max() {
        assert_eq!(parse_rate("10k/s"), Ok(Rate::PerSecond(10_000.0)));
        assert_eq!(parse_rate("500"), Ok(Rate::PerSecond(500.0)));
        assert_eq!(parse_rate("max"), Ok(Rate::Max));
        for text in ["", "/s", "0", "0/s", "-5/s", "10/m", "1e3/s", "inf", "NaN", "11M/s", "10k/s/s", "fast"]
        {
            assert!(parse_rate(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn scan_counts_are_auto_or_a_number() {
        assert_eq!(parse_scan_count("AUTO"), Ok(Count::Auto));
        assert_eq!(parse_scan_count("1k"), Ok(Count::Fixed(1000)));
        for text in ["", "0", "-1", "5000000000", "automatic"] {
            assert!(parse_scan_count(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ttl_bounds_are_none_under_or_over() {
        assert_eq!(parse_ttl("none"), Ok(TtlFilter::Never));
        assert_eq!(parse_ttl("<1h"), Ok(TtlFilter::Under(Duration::from_hours(1))));
        assert_eq!(parse_ttl("> 7d"), Ok(TtlFilter::Over(Duration::from_hours(7 * 24))));
        for text in ["", "1h", "<", "><1h", "<=1h", "<5", "never"] {
            assert!(parse_ttl(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn globs_are_bytes() {
        assert_eq!(parse_glob("cart:*"), Ok(Glob(b"cart:*".to_vec())));
        assert_eq!(parse_glob(r#""\x00\xff*""#), Ok(Glob(b"\0\xff*".to_vec())));
        assert!(parse_glob("\"open").is_err());
    }

    #[test]
    fn types_and_encodings_that_no_server_has_are_refused() {
        assert_eq!(parse_kind("ZSET"), Ok(Kind::Zset));
        assert_eq!(parse_kind("vectorset"), Ok(Kind::VectorSet));
        assert_eq!(parse_kind("ReJSON-RL"), Ok(Kind::Other("ReJSON-RL".into())));
        for text in ["", "none", "sets", "sting", "a b c d e", "\u{e9}\u{e9}\u{e9}\u{e9}x"] {
            assert!(parse_kind(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_encoding("HashTable"), Ok(Encoding::Hashtable));
        assert_eq!(parse_encoding("template-array"), Ok(Encoding::Other("template-array".into())));
        assert!(parse_encoding("hastable").is_err());
    }

    #[test]
    fn levels_rise() {
        assert_eq!(parse_levels("64,10k,100k,1M"), Ok(Thresholds::default()));
        for text in ["", "1,2,3", "1,2,3,4,5", "4,3,2,1", "1,1,2,3", "a,b,c,d", "64,,100k,1M"] {
            assert!(parse_levels(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_regex_that_does_not_compile_says_why_on_one_line() {
        let error = parse_regex("(a").expect_err("the group is open").to_string();
        assert_eq!(error, "unclosed group");
        assert!(!parse_regex("a{1000}{1000}{1000}").expect_err("it is too large").to_string().contains('\n'));
        assert!(parse_regex(r"^\d+(?-u:\xff)$").is_ok());
    }
}
