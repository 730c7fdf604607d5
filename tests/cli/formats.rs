//! Keys that are not nice, through every format and back.

use std::collections::BTreeSet;
use std::fs;

use bigkeys::engine::key::KeyName;
use bigkeys::engine::report::FindingReader;
use serde_json::Value;

use crate::support::{CALM, Client, Exit, Lab, key_of, on_each_server};

/// Names that somebody somewhere has.
fn odd_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = [
        &b""[..],
        b" ",
        b"\0",
        b"nul\0inside",
        b"new\nline",
        b"carriage\rreturn",
        b"\r\n",
        b"tab\tbed",
        b"comma,separated,name",
        b"semicolon;name",
        b"quote\"inside",
        b"\"quoted\"",
        b"\"",
        b"\"\"\"",
        b"back\\slash",
        b"\\x00",
        b"\\",
        b"\xff",
        b"\xff\xfe\xfd",
        b"half a char \xc3",
        b"overlong \xc0\x80",
        b"surrogate \xed\xa0\x80",
        "snowman \u{2603} \u{1f600}".as_bytes(),
        "right-to-left \u{202e} override".as_bytes(),
        "zero\u{200b}width".as_bytes(),
        "\u{feff}byte order mark".as_bytes(),
        "line\u{2028}separator".as_bytes(),
        b"=1+1",
        b"=cmd|' /C calc'!A0",
        b"+1",
        b"-1",
        b"-",
        b"@SUM(A1)",
        "\u{ff1d}1+1".as_bytes(),
        b"\t=1+1",
        b" =1+1",
        b"'=1+1",
        b"007",
        b"1e5",
        b"1.50",
        b"0x10",
        b"MAR1",
        b"1-2",
        b"true",
        b"NULL",
        b"null",
        b"none",
        b"\x1b[31mred\x1b[0m",
        b"\x1b]0;title\x07",
        b"bell\x07",
        b"backspace\x08",
        b"\x7f",
        b"<script>alert(1)</script>",
        b"a&b",
        b"{tag}:1",
        b"#summary",
        b"# comment",
        b"key",
        b"{}",
        b"[]",
        b"%s%n%d",
        b"$(touch gone)",
        b"*",
        b"[a-z]?",
    ]
    .iter()
    .map(|key| key.to_vec())
    .collect();
    // A name of a megabyte, with something at its end that a cut would lose.
    let mut long = vec![b'k'; 1 << 20];
    long.extend_from_slice(b"\xffend");
    keys.push(long);
    keys
}

fn fill(redis: &Client) -> BTreeSet<Vec<u8>> {
    let keys = odd_keys();
    for key in &keys {
        redis.call(&[b"RPUSH", &key[..], b"a", b"b"]);
    }
    let set: BTreeSet<_> = keys.iter().cloned().collect();
    assert_eq!(set.len(), keys.len(), "no odd key is listed twice");
    assert_eq!(redis.run("DBSIZE").int(), i64::try_from(keys.len()).expect("few"));
    set
}

fn difference(found: &BTreeSet<Vec<u8>>, expected: &BTreeSet<Vec<u8>>) -> String {
    let show = |keys: Vec<&Vec<u8>>| -> Vec<String> {
        keys.into_iter().map(|key| key[..key.len().min(60)].escape_ascii().to_string()).collect()
    };
    format!(
        "missing: {:?}\nmade up: {:?}",
        show(expected.difference(found).collect()),
        show(found.difference(expected).collect())
    )
}

/// Reads the keys of an output.
type ReadKeys = fn(&[u8]) -> BTreeSet<Vec<u8>>;

/// Reads the keys of a CSV text by what its columns say.
fn csv_keys(text: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).comment(None).from_reader(text);
    let columns = reader.headers().expect("a header").clone();
    let at =
        |name: &str| columns.iter().position(|column| column == name).unwrap_or_else(|| panic!("no {name}"));
    let (key, encoding) = (at("key"), at("key_encoding"));
    reader
        .records()
        .map(|record| record.expect("a row"))
        .filter(|record| matches!(&record[encoding], "plain" | "quoted"))
        .map(|record| match &record[encoding] {
            "plain" => record[key].as_bytes().to_vec(),
            _ => KeyName::parse_quoted(&record[key])
                .expect("a quoted key can be read back")
                .as_bytes()
                .to_vec(),
        })
        .collect()
}

fn ndjson_keys(text: &[u8]) -> BTreeSet<Vec<u8>> {
    String::from_utf8(text.to_vec())
        .expect("NDJSON is UTF-8")
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line:.200}"))
        })
        .filter(|row| row["key_encoding"].is_string())
        .map(|row| key_of(&row))
        .collect()
}

fn json_keys(text: &[u8]) -> BTreeSet<Vec<u8>> {
    let document: Value = serde_json::from_slice(text).expect("a JSON document");
    document["findings"].as_array().expect("findings").iter().map(key_of).collect()
}

on_each_server! {
    fn odd_keys_survive_csv_json_and_ndjson(kind) {
        let lab = Lab::start(kind);
        let expected = fill(&lab.redis());
        let command = |format: &str| lab.bigkeys(["scan", "--all-keys", "--rate", "max", "--format", format]).args(CALM);
        let outputs = ["-o", "out.csv", "-o", "out.ndjson", "-o", "out.json", "-o", "out.txt"];
        let csv = command("csv").args(outputs).exits(Exit::Done);

        let readers: [(&str, ReadKeys); 3] = [("csv", csv_keys), ("ndjson", ndjson_keys), ("json", json_keys)];
        for (format, read) in readers {
            let outcome = command(format).exits(Exit::Done);
            let found = read(outcome.stdout_bytes());
            assert_eq!(found.len(), expected.len(), "{format}: {}", difference(&found, &expected));
            assert!(found == expected, "{format}: {}", difference(&found, &expected));
            let file = fs::read(lab.path(&format!("out.{format}"))).expect("the file is there");
            assert!(read(&file) == expected, "out.{format}: {}", difference(&read(&file), &expected));
        }

        // In a spreadsheet no cell is a formula, and there is no control character in any format.
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(csv.stdout_bytes());
        for record in reader.records() {
            for cell in &record.expect("a row") {
                assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}']), "{cell:.80}");
            }
        }
        let table = fs::read_to_string(lab.path("out.txt")).expect("the table is text");
        for (name, text) in [("csv", csv.stdout()), ("table", table)] {
            let control = text.chars().find(|c| c.is_control() && *c != '\n' && *c != '\r');
            assert_eq!(control, None, "{name} holds a control character");
            for hidden in ['\u{202e}', '\u{200b}', '\u{feff}', '\u{2028}'] {
                assert!(!text.contains(hidden), "{name} holds {hidden:?}");
            }
        }
    }

    fn a_table_for_people_stays_in_its_width_whatever_the_keys(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        // All of them are worth a line.
        for key in odd_keys() {
            redis.pipeline((0..100).map(|n| [b"HSET".to_vec(), key.clone(), format!("f{n}").into_bytes(), vec![b'v'; 80]]));
        }
        let text = lab.bigkeys(["scan", "--format", "table", "--rate", "max", "--top", "100"]).args(CALM).env("COLUMNS", "80").stdout();
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(120), "a line of {longest:?} characters");
        assert!(!text.contains('\u{1b}'), "no colour and no escape where nobody looks");
    }

    fn a_csv_that_was_edited_is_read_back_as_the_same_keys(kind) {
        let lab = Lab::start(kind);
        let expected = fill(&lab.redis());
        let text = lab.bigkeys(["scan", "--all-keys", "--rate", "max", "--format", "csv"]).args(CALM).stdout();
        // What a spreadsheet does to it when it saves: a byte order mark, and CRLF.
        let saved = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        let listed = FindingReader::new(saved.as_bytes()).expect("a header");
        let found: BTreeSet<_> =
            listed.map(|row| row.expect("a row").key.as_bytes().to_vec()).collect();
        assert!(found == expected, "{}", difference(&found, &expected));
    }
}
