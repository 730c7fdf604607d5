//! Users and what they may do: commands, categories, keys. Enough of Redis' ACL to deny things;
//! no selectors and no rules on a command's first argument.

use std::collections::BTreeMap;

use super::digest::sha256_hex;
use super::glob;
use super::table::{Entry, Table, category, flag, need};
use crate::server::resp::Args;

/// All users. `default` is always there.
#[derive(Debug, Clone)]
pub(crate) struct Acl {
    users: BTreeMap<String, User>,
}

/// One user.
#[derive(Debug, Clone)]
pub(crate) struct User {
    enabled: bool,
    nopass: bool,
    /// SHA-256, in hex.
    passwords: Vec<String>,
    /// The rules that shaped `allowed`, as ACL LIST shows them.
    command_rules: Vec<String>,
    /// By command id.
    allowed: Vec<bool>,
    keys: Vec<KeyRule>,
    channels: Vec<String>,
}

/// A pattern, and what it opens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyRule {
    pattern: Vec<u8>,
    read: bool,
    write: bool,
}

impl KeyRule {
    fn allows(&self, need: u8) -> bool {
        (self.read || need & need::READ == 0) && (self.write || need & need::WRITE == 0)
    }
}

/// Why a user may not do something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    Command,
    Key(Vec<u8>),
}

impl Default for Acl {
    fn default() -> Acl {
        let mut default = User::new();
        for rule in ["on", "nopass", "allkeys", "allchannels", "allcommands"] {
            default.apply(rule).expect("these rules are spelled right");
        }
        Acl { users: BTreeMap::from([(Acl::DEFAULT.to_owned(), default)]) }
    }
}

impl Acl {
    /// The user that clients are until they say otherwise.
    pub(crate) const DEFAULT: &str = "default";

    pub(crate) fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    pub(crate) fn users(&self) -> impl Iterator<Item = (&str, &User)> {
        self.users.iter().map(|(name, user)| (name.as_str(), user))
    }

    /// Applies rules to a user, new or known: all of them or none.
    ///
    /// # Errors
    /// Says which rule is wrong and why.
    pub(crate) fn set_user(&mut self, name: &str, rules: &[String]) -> Result<(), String> {
        let mut user = self.users.get(name).cloned().unwrap_or_else(User::new);
        for rule in rules {
            user.apply(rule).map_err(|why| format!("Error in ACL SETUSER modifier '{rule}': {why}"))?;
        }
        self.users.insert(name.to_owned(), user);
        Ok(())
    }

    pub(crate) fn remove_user(&mut self, name: &str) -> bool {
        self.users.remove(name).is_some()
    }

    /// Sets the default user's password, as `requirepass` does; an empty one takes it away.
    pub(crate) fn require_password(&mut self, password: &str) {
        let default = self.users.get_mut(Acl::DEFAULT).expect("the default user cannot be removed");
        default.passwords.clear();
        default.nopass = password.is_empty();
        if !password.is_empty() {
            default.passwords.push(sha256_hex(password.as_bytes()));
        }
    }

    /// Says whether a new connection is the default user without asking.
    pub(crate) fn is_open(&self) -> bool {
        self.users.get(Acl::DEFAULT).is_some_and(|user| user.enabled && user.nopass)
    }

    pub(crate) fn authenticate(&self, name: &str, password: &[u8]) -> bool {
        self.users.get(name).is_some_and(|user| {
            user.enabled && (user.nopass || user.passwords.contains(&sha256_hex(password)))
        })
    }

    /// Checks a command with its arguments.
    ///
    /// # Errors
    /// Says what is denied.
    pub(crate) fn check(&self, name: &str, entry: &Entry, args: Args<'_>) -> Result<(), Denial> {
        let user = self.users.get(name).ok_or(Denial::Command)?;
        user.check(entry, args)
    }
}

impl User {
    fn new() -> User {
        User {
            enabled: false,
            nopass: false,
            passwords: Vec::new(),
            command_rules: vec!["-@all".to_owned()],
            allowed: vec![false; Table::get().entries().len()],
            keys: Vec::new(),
            channels: Vec::new(),
        }
    }

    fn check(&self, entry: &Entry, args: Args<'_>) -> Result<(), Denial> {
        // Whoever may talk at all may say who they are.
        if !self.allowed[entry.id] && !entry.command.has(flag::NO_AUTH) {
            return Err(Denial::Command);
        }
        if self.sees_all_keys() {
            return Ok(());
        }
        for (at, need) in entry.command.keys_and_needs(args) {
            let key = args.at(at);
            let open = self.keys.iter().any(|rule| rule.allows(need) && glob::matches(&rule.pattern, key));
            if !open {
                return Err(Denial::Key(key.to_vec()));
            }
        }
        Ok(())
    }

    fn sees_all_keys(&self) -> bool {
        self.keys.iter().any(|rule| rule.read && rule.write && rule.pattern == b"*")
    }

    fn apply(&mut self, rule: &str) -> Result<(), &'static str> {
        const SYNTAX: &str = "Syntax error";
        match rule.to_ascii_lowercase().as_str() {
            "on" => self.enabled = true,
            "off" => self.enabled = false,
            "nopass" => {
                self.nopass = true;
                self.passwords.clear();
            }
            "resetpass" => {
                self.nopass = false;
                self.passwords.clear();
            }
            "allkeys" => {
                self.keys = vec![KeyRule { pattern: b"*".to_vec(), read: true, write: true }];
            }
            "resetkeys" => self.keys.clear(),
            "allchannels" => self.channels = vec!["*".to_owned()],
            "resetchannels" => self.channels.clear(),
            "allcommands" | "+@all" => self.all_commands(true),
            "nocommands" | "-@all" => self.all_commands(false),
            "reset" => *self = User::new(),
            "sanitize-payload" | "skip-sanitize-payload" | "clearselectors" => {}
            _ => match rule.split_at_checked(1) {
                Some((">", password)) => self.add_password(sha256_hex(password.as_bytes())),
                Some(("#", hash)) if is_sha256(hash) => self.add_password(hash.to_owned()),
                Some(("#", _)) => {
                    return Err(
                        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters",
                    );
                }
                Some(("<", password)) => self.remove_password(&sha256_hex(password.as_bytes()))?,
                Some(("!", hash)) => self.remove_password(hash)?,
                Some(("~", pattern)) => self.add_key(pattern, true, true),
                Some(("%", rest)) => {
                    let (access, pattern) = rest.split_once('~').ok_or(SYNTAX)?;
                    let access = access.to_ascii_uppercase();
                    if access.is_empty() || access.contains(|letter| letter != 'R' && letter != 'W') {
                        return Err(SYNTAX);
                    }
                    self.add_key(pattern, access.contains('R'), access.contains('W'));
                }
                Some(("&", channel)) => self.channels.push(channel.to_owned()),
                Some(("+", what)) => self.permit(what, true)?,
                Some(("-", what)) => self.permit(what, false)?,
                _ => return Err(SYNTAX),
            },
        }
        Ok(())
    }

    fn add_password(&mut self, hash: String) {
        self.nopass = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), &'static str> {
        let at = self.passwords.iter().position(|known| known == hash);
        let at = at.ok_or("The password you are trying to remove from the user does not exist")?;
        self.passwords.remove(at);
        Ok(())
    }

    fn add_key(&mut self, pattern: &str, read: bool, write: bool) {
        let rule = KeyRule { pattern: pattern.as_bytes().to_vec(), read, write };
        if !self.keys.contains(&rule) {
            self.keys.push(rule);
        }
    }

    fn all_commands(&mut self, allow: bool) {
        self.allowed.fill(allow);
        self.command_rules = vec![if allow { "+@all" } else { "-@all" }.to_owned()];
    }

    /// Allows or denies a command with its subcommands, one subcommand, or a category.
    fn permit(&mut self, what: &str, allow: bool) -> Result<(), &'static str> {
        const UNKNOWN: &str = "Unknown command or category name in ACL";
        let table = Table::get();
        let what = what.to_ascii_lowercase();
        if let Some(name) = what.strip_prefix('@') {
            let wanted = category::by_name(name).ok_or(UNKNOWN)?;
            for entry in table.entries().iter().filter(|entry| entry.categories & wanted != 0) {
                self.allowed[entry.id] = allow;
            }
        } else {
            let entry = table.find(what.as_bytes()).ok_or(UNKNOWN)?;
            self.allowed[entry.id] = allow;
            for sub in &entry.subcommands {
                self.allowed[*sub] = allow;
            }
        }
        self.command_rules.retain(|rule| rule[1..] != what);
        self.command_rules.push(format!("{}{what}", if allow { '+' } else { '-' }));
        Ok(())
    }

    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        if self.nopass {
            flags.push("nopass");
        }
        flags
    }

    pub(crate) fn passwords(&self) -> &[String] {
        &self.passwords
    }

    pub(crate) fn command_text(&self) -> String {
        self.command_rules.join(" ")
    }

    pub(crate) fn key_text(&self) -> String {
        let rules = self.keys.iter().map(|rule| {
            let pattern = String::from_utf8_lossy(&rule.pattern);
            match (rule.read, rule.write) {
                (true, true) => format!("~{pattern}"),
                (true, false) => format!("%R~{pattern}"),
                _ => format!("%W~{pattern}"),
            }
        });
        rules.collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn channel_text(&self) -> String {
        self.channels.iter().map(|channel| format!("&{channel}")).collect::<Vec<_>>().join(" ")
    }

    /// Writes the user as a line of rules, as ACL LIST does.
    pub(crate) fn describe(&self, name: &str) -> String {
        let mut words = vec!["user".to_owned(), name.to_owned()];
        words.extend(self.flags().into_iter().map(str::to_owned));
        words.extend(self.passwords.iter().map(|hash| format!("#{hash}")));
        words.push(self.key_text());
        words.push(if self.channels.is_empty() { "resetchannels".to_owned() } else { self.channel_text() });
        words.push(self.command_text());
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }
}

fn is_sha256(hash: &str) -> bool {
    hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::command::names::Names;
    use crate::server::resp::OwnedArgs;

    fn check(acl: &Acl, user: &str, command: &str) -> Result<(), Denial> {
        let args: OwnedArgs = command.split(' ').collect();
        let entry = Names::default().resolve(args.as_args()).expect("a known command");
        acl.check(user, entry, args.as_args())
    }

    fn rules(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_user_may_do_what_the_rules_say_and_nothing_else() {
        let mut acl = Acl::default();
        acl.set_user("x", &rules("on >pw ~a* %R~b* +@read +eval +eval_ro -get +config|get +set"))
            .expect("good rules");
        assert_eq!(check(&acl, "x", "strlen apple"), Ok(()));
        assert_eq!(check(&acl, "x", "strlen berry"), Ok(()));
        assert_eq!(check(&acl, "x", "strlen cherry"), Err(Denial::Key(b"cherry".to_vec())));
        assert_eq!(check(&acl, "x", "set apple 1"), Ok(()));
        assert_eq!(check(&acl, "x", "set berry 1"), Err(Denial::Key(b"berry".to_vec())));
        assert_eq!(check(&acl, "x", "get apple"), Err(Denial::Command));
        assert_eq!(check(&acl, "x", "eval 0 1 apple"), Ok(()));
        assert_eq!(check(&acl, "x", "eval 0 2 apple berry"), Err(Denial::Key(b"berry".to_vec())));
        assert_eq!(check(&acl, "x", "eval_ro 0 1 berry"), Ok(()));
        assert_eq!(check(&acl, "x", "config get x"), Ok(()));
        assert_eq!(check(&acl, "x", "config set x y"), Err(Denial::Command));
        assert_eq!(check(&acl, "default", "flushall"), Ok(()));
        assert!(acl.authenticate("x", b"pw") && !acl.authenticate("x", b"no"));
    }

    #[test]
    fn a_bad_rule_changes_nothing() {
        let mut acl = Acl::default();
        let refusal = acl.set_user("x", &rules("on +foo"));
        let why = "Error in ACL SETUSER modifier '+foo': Unknown command or category name in ACL";
        assert_eq!(refusal, Err(why.to_owned()));
        assert!(acl.user("x").is_none());
    }

    #[test]
    fn users_read_back_as_redis_writes_them() {
        let mut acl = Acl::default();
        assert_eq!(
            acl.user("default").expect("always there").describe("default"),
            "user default on nopass ~* &* +@all"
        );
        acl.set_user("x", &rules("on >pw ~a* %R~b* +@read +eval +eval_ro -get")).expect("good rules");
        assert_eq!(
            acl.user("x").expect("just made").describe("x"),
            "user x on #30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4 \
             ~a* %R~b* resetchannels -@all +@read +eval +eval_ro -get"
        );
    }
}
