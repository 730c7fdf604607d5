//! The command table against that of a real server, and docs/compatibility.md against both.

use std::collections::{BTreeMap, BTreeSet};

use super::reply::Reply;
use super::target::{Client, Running};
use crate::support::{Lab, on_servers};

/// What `COMMAND` says of one command: arity, flags, first key, last key, step, ACL categories.
type Row = (i64, BTreeSet<String>, [i64; 3], BTreeSet<String>);

fn word(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).to_ascii_lowercase(),
        Reply::Simple(text) => text.to_ascii_lowercase(),
        other => panic!("a word was expected, not {other}"),
    }
}

fn items(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Array(items) | Reply::Set(items) => items,
        other => panic!("a list was expected, not {other}"),
    }
}

fn int(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(value) => *value,
        other => panic!("a number was expected, not {other}"),
    }
}

/// Reads `COMMAND`, subcommands included.
fn commands(client: &mut Client) -> BTreeMap<String, Row> {
    fn add(table: &mut BTreeMap<String, Row>, command: &Reply) {
        let cells = items(command);
        let words = |at: usize| items(&cells[at]).iter().map(word).collect();
        let keys = [int(&cells[3]), int(&cells[4]), int(&cells[5])];
        table.insert(word(&cells[0]), (int(&cells[1]), words(2), keys, words(6)));
        for sub in items(&cells[9]) {
            add(table, sub);
        }
    }
    let reply = client.run("COMMAND").expect("COMMAND is answered");
    let mut table = BTreeMap::new();
    for command in items(&reply) {
        add(&mut table, command);
    }
    table
}

/// Returns the names in the section of the page on commands that are not there.
fn absent_by_the_page() -> BTreeSet<String> {
    let page = include_str!("../../docs/compatibility.md");
    let (_, section) = page.split_once("<!-- absent: compared -->").expect("the page has the section");
    let (section, _) = section.split_once("<!-- end -->").expect("the section ends");
    let quoted = section.split('`').skip(1).step_by(2);
    quoted.map(|name| name.to_ascii_lowercase().replace(' ', "|")).collect()
}

on_servers! {
    [redis_8_2 Redis82]
    fn command_table_is_that_of_redis(kind) {
        let lab = Lab::start(kind);
        let real = commands(&mut Client::connect(&lab.address().to_string()));
        let ours = commands(&mut Running::start().client());

        let differences: Vec<String> = ours
            .iter()
            .filter(|(name, row)| real.get(*name).is_none_or(|other| other != *row))
            .map(|(name, row)| format!("{name}: {row:?}, not {:?}", real.get(name)))
            .collect();
        assert!(differences.is_empty(), "{}", differences.join("\n"));

        // A container that is absent says so for what it would hold.
        let absent: BTreeSet<String> = real
            .keys()
            .filter(|name| !ours.contains_key(*name))
            .filter(|name| name.split_once('|').is_none_or(|(parent, _)| ours.contains_key(parent)))
            .cloned()
            .collect();
        assert_eq!(absent, absent_by_the_page(), "docs/compatibility.md, commands that are not there");
    }
}
