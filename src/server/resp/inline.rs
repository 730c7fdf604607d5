//! Inline commands: what a person types into `nc`, with the quoting rules of redis-cli.

/// Splits a line into words. `"..."` takes `\n \r \t \b \a \\ \" \xHH`, `'...'` takes only `\'`.
/// Returns `None` when a quote stays open or something follows a closing quote.
pub(crate) fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let (word, tail) = take_word(rest)?;
        words.push(word);
        rest = tail;
    }
}

fn take_word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Some((word, rest)),
            [space, ..] if space.is_ascii_whitespace() || *space == 0 => {
                return Some((word, &rest[1..]));
            }
            [b'"', tail @ ..] => return close(word, tail, take_double_quoted),
            [b'\'', tail @ ..] => return close(word, tail, take_single_quoted),
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

type Quoted = for<'a> fn(&mut Vec<u8>, &'a [u8]) -> Option<&'a [u8]>;

/// Reads a quoted part; only white space or the end may follow it.
fn close(mut word: Vec<u8>, rest: &[u8], take: Quoted) -> Option<(Vec<u8>, &[u8])> {
    let tail = take(&mut word, rest)?;
    match tail {
        [] => Some((word, tail)),
        [next, ..] if next.is_ascii_whitespace() => Some((word, tail)),
        _ => None,
    }
}

fn take_double_quoted<'a>(word: &mut Vec<u8>, mut rest: &'a [u8]) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'"', tail @ ..] => return Some(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) * 16 + hex(*low));
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = tail;
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn take_single_quoted<'a>(word: &mut Vec<u8>, mut rest: &'a [u8]) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\'', tail @ ..] => return Some(tail),
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                rest = tail;
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split_words(line.as_bytes())?;
        Some(words.iter().map(|word| word.escape_ascii().to_string()).collect())
    }

    #[test]
    fn words_and_quotes() {
        for (line, expected) in [
            ("", vec![]),
            ("  PING  ", vec!["PING"]),
            (r#"SET a "b c""#, vec!["SET", "a", "b c"]),
            (r#"x "\x41\n\"" '\'\n'"#, vec!["x", r#"A\n\""#, r"\'\\n"]),
            (r#"a"b" c"#, vec!["ab", "c"]),
            (r#""""#, vec![""]),
        ] {
            assert_eq!(words(line), Some(expected.into_iter().map(String::from).collect()), "{line}");
        }
    }

    #[test]
    fn open_or_glued_quotes_are_refused() {
        for line in [r#"""#, "'", r#"a "b"#, r#""a"b"#, "'a'b", r#""\"#] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
