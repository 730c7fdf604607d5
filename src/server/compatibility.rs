//! Keeps docs/compatibility.md true: what the command table, the parameters and the recorded measurement say
//! stands in sections of the page that are written from them. The rest of it is written by hand.

use std::fmt::Write as _;

use super::command::Table;
use super::config::parameters;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/compatibility.md");
const MEASURED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/docs/benchmarks/2026-11-30-xeon-2vcpu/server_memory.csv");

/// The families in the order in which a reader looks for them.
const FAMILIES: [&str; 12] = [
    "connection",
    "server",
    "generic",
    "string",
    "bitmap",
    "list",
    "set",
    "hash",
    "sorted-set",
    "stream",
    "hyperloglog",
    "scripting",
];

fn commands() -> String {
    let entries = Table::get().entries();
    let mut families: Vec<&str> = FAMILIES.to_vec();
    for entry in entries {
        if !families.contains(&entry.group) {
            families.push(entry.group);
        }
    }
    let mut text = String::new();
    for family in families {
        let _ = write!(text, "\n### {family}\n\n| command | since | arity | flags |\n|---|---|---|---|\n");
        let mut family: Vec<_> = entries
            .iter()
            // A container says nothing that its subcommands do not.
            .filter(|entry| {
                entry.group == family && (entry.subcommands.is_empty() || entry.command.accepts(1))
            })
            .map(|entry| entry.command)
            .collect();
        family.sort_by_key(|command| command.name);
        for command in family {
            let name = command.name.to_ascii_uppercase().replace('|', " ");
            let flags = command.flag_names().join(" ");
            let _ = writeln!(text, "| {name} | {} | {} | {flags} |", command.since, command.arity);
        }
    }
    text
}

fn settings() -> String {
    let mut text = String::from("\n| parameter | default | can be set |\n|---|---|---|\n");
    for parameter in parameters() {
        let alias = parameter.alias.map(|alias| format!(" (`{alias}`)")).unwrap_or_default();
        let default =
            if parameter.default.is_empty() { String::new() } else { format!("`{}`", parameter.default) };
        let _ = writeln!(text, "| `{}`{alias} | {default} | {} |", parameter.name, parameter.settable);
    }
    text
}

/// One row for each kind of value; how many percent more than Redis each size of it takes.
fn memory() -> String {
    const SIZES: [&str; 6] = ["10", "100", "1000", "10000", "100000", "1000000"];
    let csv = std::fs::read_to_string(MEASURED).expect("the recorded measurement is there");
    let mut kinds: Vec<(&str, &str, [Option<f64>; SIZES.len()])> = Vec::new();
    for line in csv.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [kind, encoding, elements, redis, ours, ..] = cells[..] else {
            panic!("not a row of the measurement: {line}");
        };
        let number = |text: &str| text.parse::<f64>().expect("bytes");
        let at = SIZES.iter().position(|size| *size == elements).expect("a size of the table");
        if kinds.last().is_none_or(|last| (last.0, last.1) != (kind, encoding)) {
            kinds.push((kind, encoding, [None; SIZES.len()]));
        }
        let row = kinds.last_mut().expect("just pushed");
        row.2[at] = Some((number(ours) / number(redis) - 1.0) * 100.0);
    }
    let mut text = String::from(
        "\n| value | encoding | 10 | 100 | 1 000 | 10 000 | 100 000 | 1 000 000 |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (kind, encoding, differences) in kinds {
        let cells =
            differences.map(|percent| percent.map(|percent| format!("{percent:+.1} %")).unwrap_or_default());
        let _ = writeln!(text, "| {kind} | {encoding} | {} |", cells.join(" | "));
    }
    text
}

/// Replaces what stands between `<!-- NAME: generated -->` and `<!-- end -->`.
fn replace_section(page: &str, name: &str, content: &str) -> String {
    let open = format!("<!-- {name}: generated -->\n");
    let (before, rest) = page.split_once(&open).unwrap_or_else(|| panic!("the page has no section {name}"));
    let (_, after) = rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("section {name} has no end"));
    format!("{before}{open}{content}\n<!-- end -->{after}")
}

#[test]
fn compatibility_page_says_what_the_tables_say() {
    let page = std::fs::read_to_string(PAGE).expect("docs/compatibility.md is there");
    let mut right = page.clone();
    for (name, content) in [("commands", commands()), ("parameters", settings()), ("memory", memory())] {
        right = replace_section(&right, name, &content);
    }
    if std::env::var_os("BIGKEYS_BLESS").is_some() {
        std::fs::write(PAGE, &right).expect("docs can be written");
    } else {
        assert!(
            page == right,
            "docs/compatibility.md is out of date: BIGKEYS_BLESS=1 cargo test --lib compatibility"
        );
    }
}
