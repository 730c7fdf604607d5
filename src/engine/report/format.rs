//! Which format, by word or by file name.

use std::path::Path;

/// Version of the columns and fields, written into every output. It goes up when one of them is
/// renamed, removed, moved or changes its meaning, and stays when one is added at the end.
pub const SCHEMA_VERSION: u32 = 1;

/// A format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// For people.
    Table,
    /// One row for each key.
    Csv,
    /// One document.
    Json,
    /// One JSON object a line.
    Ndjson,
}

impl Format {
    /// All formats, in the order in which help shows them.
    pub const ALL: [Self; 4] = [Self::Table, Self::Csv, Self::Json, Self::Ndjson];

    /// Returns the word used in flags.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
        }
    }

    /// Returns the format that a file's suffix asks for: `.csv`, `.json`, `.ndjson` or `.jsonl`,
    /// `.txt`; in any case.
    pub fn of_path(path: &Path) -> Option<Self> {
        let suffix = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match suffix.as_str() {
            "txt" => Self::Table,
            "csv" => Self::Csv,
            "json" => Self::Json,
            "ndjson" | "jsonl" => Self::Ndjson,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_name_formats() {
        assert_eq!(Format::of_path(Path::new("a/b.csv")), Some(Format::Csv));
        assert_eq!(Format::of_path(Path::new("b.JSONL")), Some(Format::Ndjson));
        assert_eq!(Format::of_path(Path::new("b.csv.gz")), None);
        assert_eq!(Format::of_path(Path::new("csv")), None);
    }
}
