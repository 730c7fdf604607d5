//! Asks before anything is deleted.

use std::io::{self, BufRead, Write};

/// More keys than this, and their number has to be typed.
const KEYS_WITHOUT_COUNT: u64 = 100;

/// Asks on a terminal; returns whether the answer is yes.
///
/// Up to a hundred keys `y` will do. For more, the number of keys has to be typed: whoever reads it that
/// closely has read it.
///
/// # Errors
/// When there is no reading from the terminal.
pub(super) fn ask(keys: u64, input: &mut impl BufRead, output: &mut impl Write) -> io::Result<bool> {
    let noun = if keys == 1 { "key" } else { "keys" };
    if keys > KEYS_WITHOUT_COUNT {
        write!(output, "Delete {keys} {noun}? Type the number of keys to go on: ")?;
    } else {
        write!(output, "Delete {keys} {noun}? [y/N] ")?;
    }
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    let answer = answer.trim();
    Ok(if keys > KEYS_WITHOUT_COUNT {
        answer == keys.to_string()
    } else {
        answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(keys: u64, typed: &str) -> bool {
        ask(keys, &mut typed.as_bytes(), &mut Vec::new()).unwrap()
    }

    #[test]
    fn nothing_but_a_clear_yes_is_a_yes() {
        assert!(answers(3, "y\n") && answers(3, "YES\n"));
        for typed in ["", "\n", "n\n", "yep\n", "3\n"] {
            assert!(!answers(3, typed), "{typed:?}");
        }
    }

    #[test]
    fn many_keys_want_their_number() {
        assert!(answers(101, "101\n"));
        for typed in ["y\n", "100\n", "101 keys\n", ""] {
            assert!(!answers(101, typed), "{typed:?}");
        }
    }
}
