//! Keys that are left alone unless somebody names them exactly.
//!
//! Frameworks keep queues, locks and schedules under well-known names; a pattern that takes them too is
//! nearly always a mistake that no backup of the application mends.

use crate::engine::key::KeyName;
use crate::engine::scan::glob_matches;

/// Patterns that are protected by default, and whose they are. docs/deletion-safety.md lists them.
pub const PROTECTED_BY_DEFAULT: [(&str, &str); 22] = [
    ("queue:*", "Sidekiq, Resque"),
    ("queues", "Sidekiq, Resque"),
    ("schedule", "Sidekiq"),
    ("retry", "Sidekiq"),
    ("dead", "Sidekiq"),
    ("resque:*", "Resque"),
    ("bull:*", "Bull, BullMQ"),
    ("celery", "Celery"),
    ("_kombu.binding.*", "Celery (kombu)"),
    ("unacked*", "Celery (kombu)"),
    ("rq:*", "RQ"),
    ("arq:*", "arq"),
    ("horizon:*", "Laravel Horizon"),
    ("queues:*", "Laravel queues"),
    ("laravel_*", "Laravel"),
    ("spring:session:*", "Spring Session"),
    ("redlock:*", "Redlock"),
    ("redisson*", "Redisson"),
    ("lock:*", "locks"),
    ("flipper_features", "Flipper"),
    ("asynq:*", "Asynq"),
    ("bigkeys:tombstone:*", "an unfinished `bigkeys delete`: finish it with --resume"),
];

/// What is protected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protection {
    /// The patterns of [`PROTECTED_BY_DEFAULT`] do not hold.
    pub defaults_off: bool,
    /// Patterns (Redis's own globs) of the operator. These always hold.
    pub globs: Vec<Vec<u8>>,
}

impl Protection {
    /// Returns why a key is left alone. `is_named`: it was named exactly, which lifts the defaults.
    pub fn covers(&self, key: &KeyName, is_named: bool) -> Option<String> {
        let name = key.as_bytes();
        if let Some(glob) = self.globs.iter().find(|glob| glob_matches(glob, name)) {
            return Some(format!("--protect {}", KeyName::from(glob.as_slice())));
        }
        if self.defaults_off || is_named {
            return None;
        }
        let (glob, whose) =
            PROTECTED_BY_DEFAULT.iter().find(|(glob, _)| glob_matches(glob.as_bytes(), name))?;
        Some(format!("`{glob}` is protected by default ({whose}); name the key, or --unprotect"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framework_keys_are_left_alone_unless_named_or_unprotected() {
        let protection = Protection::default();
        let key = KeyName::from("bull:mail:wait");
        assert!(protection.covers(&key, false).is_some_and(|why| why.contains("BullMQ")));
        assert_eq!(protection.covers(&key, true), None);
        assert_eq!(Protection { defaults_off: true, ..Protection::default() }.covers(&key, false), None);
        assert_eq!(protection.covers(&KeyName::from("session:1"), false), None);
    }

    #[test]
    fn what_the_operator_protects_is_protected_even_from_a_name() {
        let protection = Protection { defaults_off: true, globs: vec![b"cart:[0-9]*".to_vec()] };
        assert!(protection.covers(&KeyName::from("cart:7"), true).is_some());
        assert_eq!(protection.covers(&KeyName::from("cart:x"), true), None);
    }
}

#[cfg(test)]
mod page {
    use std::fmt::Write;

    use super::PROTECTED_BY_DEFAULT;

    /// `BIGKEYS_BLESS=1` writes the list anew.
    #[test]
    fn the_page_lists_what_is_protected() {
        const BEGIN: &str = "<!-- protected: generated -->\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/deletion-safety.md");
        let page = std::fs::read_to_string(path).expect("the page is there");
        let mut list = "\n| pattern | whose |\n|---|---|\n".to_owned();
        for (glob, whose) in PROTECTED_BY_DEFAULT {
            writeln!(list, "| `{glob}` | {whose} |").expect("writing to a String never fails");
        }
        list.push('\n');
        let (head, rest) = page.split_once(BEGIN).expect("the page has a list");
        let (old, tail) = rest.split_once("<!-- end -->").expect("the list has an end");
        if std::env::var_os("BIGKEYS_BLESS").is_some() {
            std::fs::write(path, format!("{head}{BEGIN}{list}<!-- end -->{tail}"))
                .expect("the page is writable");
            return;
        }
        assert_eq!(old, list, "BIGKEYS_BLESS=1 cargo test --lib protected writes it anew");
    }
}
