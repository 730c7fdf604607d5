//! Redis' glob patterns: `*`, `?`, `[a-z]`, `[^a]`, and `\` for the character itself.
//!
//! After a mismatch only the last `*` is tried again, one byte further on. That is enough for
//! globs, and it keeps the time at pattern times text: `a*a*a*a*b` cannot hold the thread.

/// Says whether all of `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: behind the last star, and the text it has not swallowed yet.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        if let (Some(byte), true) = (text.get(t), p < pattern.len()) {
            let (hit, next) = match_one(pattern, p, *byte);
            if hit {
                (p, t) = (next, t + 1);
                continue;
            }
        }
        match retry {
            Some((after_star, swallowed)) if swallowed < text.len() => {
                retry = Some((after_star, swallowed + 1));
                (p, t) = (after_star, swallowed + 1);
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the element at `p`; returns where the next element starts.
fn match_one(pattern: &[u8], p: usize, byte: u8) -> (bool, usize) {
    match pattern[p] {
        b'?' => (true, p + 1),
        b'[' => match_class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte, p + 2),
        literal => (literal == byte, p + 1),
    }
}

/// Matches a class; one that is never closed ends with the pattern.
fn match_class(pattern: &[u8], mut p: usize, byte: u8) -> (bool, usize) {
    let negated = pattern.get(p) == Some(&b'^');
    p += usize::from(negated);
    let mut hit = false;
    loop {
        match pattern.get(p..).unwrap_or_default() {
            [] => return (hit != negated, pattern.len()),
            [b']', ..] => return (hit != negated, p + 1),
            [b'\\', escaped, ..] => {
                hit |= *escaped == byte;
                p += 2;
            }
            [from, b'-', to, ..] => {
                hit |= (*from.min(to)..=*from.max(to)).contains(&byte);
                p += 3;
            }
            [literal, ..] => {
                hit |= *literal == byte;
                p += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            (r"h\?llo", "h?llo", true),
            (r"h\?llo", "hello", false),
            ("user:*:name", "user:1:2:name", true),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbXbX", false),
            ("**", "x", true),
            ("[abc", "a", true),
            (r"\", r"\", true),
            (r"[\]]", "]", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn stars_cannot_hold_the_thread() {
        let pattern = [b"*a".repeat(50), b"*b".to_vec()].concat();
        assert!(!matches(&pattern, &b"a".repeat(2000)));
    }
}
