//! `INFO keysizes` (Redis >= 8.0): histograms of key sizes that the server keeps, so that one O(1) call
//! says how many big keys there must be.

use serde::{Deserialize, Serialize};

use redis::Value;

use super::link::{Link, LinkError};
use super::reply::text;

/// One type's histogram in one database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysizesRow {
    /// Database.
    pub db: u32,
    /// The type as the server names it here: `strings`, `lists`, `sets`, `zsets`, `hashes`.
    pub kind: String,
    /// Lower bound of a bin (a power of two, or 0) and the number of keys in it. Bytes for strings,
    /// elements for the rest.
    pub bins: Vec<(u64, u64)>,
}

impl KeysizesRow {
    /// Returns how many keys are at least this large. Exact when `at_least` is a power of two.
    pub fn keys_at_least(&self, at_least: u64) -> u64 {
        let bins = self.bins.iter().filter(|(label, _)| *label >= at_least);
        bins.fold(0, |sum: u64, (_, keys)| sum.saturating_add(*keys))
    }
}

/// All histograms of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Keysizes {
    /// One row a database and type.
    pub rows: Vec<KeysizesRow>,
}

impl Keysizes {
    /// Asks for the histograms. `None`: this server has none, or refuses.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn read(link: &Link) -> Result<Option<Self>, LinkError> {
        let reply = link.command(redis::cmd("INFO").arg("keysizes")).await?;
        Ok(reply.ok().and_then(|value: Value| text(&value)).and_then(|body| Self::parse(&body)))
    }

    /// Reads the section. `None`: there is no such section in it.
    fn parse(body: &str) -> Option<Self> {
        if !body.lines().any(|line| line.trim_end().eq_ignore_ascii_case("# Keysizes")) {
            return None;
        }
        Some(Self { rows: body.lines().filter_map(row).collect() })
    }
}

/// Reads `db0_distrib_sets_items:1=2,512=1,1K=1`.
fn row(line: &str) -> Option<KeysizesRow> {
    let (name, bins) = line.trim_end().split_once(':')?;
    let (db, rest) = name.strip_prefix("db")?.split_once("_distrib_")?;
    // With `key-memory-histograms` (8.6) collections have a `_sizes` row in bytes too.
    let kind = match rest.strip_suffix("_items") {
        Some(kind) => kind,
        None => rest.strip_suffix("_sizes").filter(|kind| *kind == "strings")?,
    };
    let bins = bins
        .split(',')
        .filter_map(|bin| {
            let (label, keys) = bin.split_once('=')?;
            Some((parse_label(label)?, keys.parse().ok()?))
        })
        .collect();
    Some(KeysizesRow { db: db.parse().ok()?, kind: kind.to_owned(), bins })
}

/// Reads `512`, `1K`, `4M`: powers of two with binary suffixes.
fn parse_label(label: &str) -> Option<u64> {
    let digits = label.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = label[..digits].parse().ok()?;
    let shift = match &label[digits..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_reads_as_the_server_writes_it() {
        let body = "# Keysizes\r\ndb0_distrib_strings_sizes:1=3,8M=1\r\ndb0_distrib_sets_items:512=1,1K=2,2M=1\r\n\
                    db0_distrib_sets_sizes:64K=9\r\n";
        let keysizes = Keysizes::parse(body).expect("a section");
        assert_eq!(keysizes.rows.len(), 2, "sizes of collections are another thing");
        assert_eq!(keysizes.rows[0].keys_at_least(1 << 20), 1);
        assert_eq!(keysizes.rows[1].keys_at_least(1024), 3);
        assert_eq!(keysizes.rows[1].keys_at_least(1 << 22), 0);
    }

    #[test]
    fn a_server_without_the_section_has_none() {
        assert_eq!(Keysizes::parse(""), None);
        assert_eq!(Keysizes::parse("# Keysizes\r\n"), Some(Keysizes::default()));
    }
}
