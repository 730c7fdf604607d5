//! Redis' own glob, on bytes: `*`, `?`, `[a-z]`, `[^a]`, and `\` to take a byte as it is.
//!
//! One pattern goes to the server as MATCH; this is for the rest (several patterns, `--exclude`). It
//! has to say the same as `stringmatchlen` does, down to an unclosed class, which ends at the end of
//! the pattern. `*` backtracks to the last star only, so that no pattern takes exponential time.

use crate::engine::key::KeyName;

/// Returns whether a name matches a pattern, as MATCH would.
pub fn glob_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on after the last star, and how much of the name it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        let step = match (pattern.get(p), name.get(n)) {
            (None, None) => return true,
            (Some(_), Some(&byte)) => one(&pattern[p..], byte),
            (None, Some(_)) | (Some(_), None) => None,
        };
        if let Some(length) = step {
            p += length;
            n += 1;
        } else if let Some((after_star, taken)) = star.filter(|(_, taken)| *taken < name.len()) {
            star = Some((after_star, taken + 1));
            p = after_star;
            n = taken + 1;
        } else {
            return false;
        }
    }
}

/// Returns the only slot whose keys can match: that of the hash tag, where the pattern fixes it (`{user1}:*`).
///
/// As `patternHashSlot` of Redis >= 7.4 and Valkey >= 8.0, whose SCAN then walks that slot alone: no special
/// character may come before the tag ends.
pub(super) fn glob_slot(pattern: &[u8]) -> Option<u16> {
    let special = pattern.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    let literal = &pattern[..special.unwrap_or(pattern.len())];
    let open = literal.iter().position(|byte| *byte == b'{')?;
    let length = literal[open + 1..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| KeyName::new(literal.to_vec()).slot())
}

/// Matches one byte against the first element of a pattern and returns the length of that element.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern[0] {
        b'?' => Some(1),
        b'[' => class(pattern, byte),
        b'\\' if pattern.len() >= 2 => (pattern[1] == byte).then_some(2),
        literal => (literal == byte).then_some(1),
    }
}

fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match pattern[at..] {
            // Unclosed: the class ends with the pattern.
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                found |= literal == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= literal == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_redis_matches_them() {
        let cases: &[(&str, &str, bool)] = &[
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("cart:*", "cart:42", true),
            ("cart:*", "card:42", false),
            ("*:42", "cart:42", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "aXb", false),
            ("[abc", "b", true),
            ("[\\]]", "]", true),
            ("a\\", "a\\", true),
            ("**", "x", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(glob_matches(pattern.as_bytes(), name.as_bytes()), *expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn no_pattern_takes_exponential_time() {
        let pattern = "a*".repeat(64) + "b";
        assert!(!glob_matches(pattern.as_bytes(), "a".repeat(4096).as_bytes()));
    }
}
