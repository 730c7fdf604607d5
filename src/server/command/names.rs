//! What commands are called here: by the names of the table, but for `rename-command`.

use std::collections::HashMap;

use super::error::CommandError;
use super::table::{Entry, Table};
use crate::server::resp::Args;

/// The names that differ from the table's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    /// By name in lower case. `None`: it was taken away.
    renamed: HashMap<Vec<u8>, Option<&'static Entry>>,
}

impl Names {
    /// Gives a command another name; an empty one takes it away.
    ///
    /// # Errors
    /// Says what Redis would: there is no such command, or the name is taken.
    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Result<(), &'static str> {
        let entry = self.find(from.as_bytes()).filter(|entry| !entry.command.name.contains('|'));
        let entry = entry.ok_or("No such command in rename-command")?;
        if !to.is_empty() && self.find(to.as_bytes()).is_some() {
            return Err("Target command name already exists");
        }
        self.renamed.insert(from.to_ascii_lowercase().into(), None);
        if !to.is_empty() {
            self.renamed.insert(to.to_ascii_lowercase().into(), Some(entry));
        }
        Ok(())
    }

    /// Finds a command, or a subcommand by its full name, in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static Entry> {
        // Nearly every server: nothing is renamed, and nothing needs to be copied.
        if self.renamed.is_empty() {
            return Table::get().find(name);
        }
        let whole = name.to_ascii_lowercase();
        let container = whole.split(|byte| *byte == b'|').next().unwrap_or(&whole);
        match self.renamed.get(container) {
            None => Table::get().find(name),
            Some(entry) => entry.filter(|_| container.len() == whole.len()),
        }
    }

    /// Finds the command that `args` call: the subcommand where there are any.
    pub(crate) fn resolve(&self, args: Args<'_>) -> Result<&'static Entry, CommandError> {
        Table::get().resolve(self.find(args.at(0)), args)
    }

    /// Returns the names in the table that nothing answers to.
    pub(crate) fn gone(&self) -> Vec<&'static str> {
        let still = |entry: &Entry| self.renamed.values().flatten().any(|other| other.id == entry.id);
        let gone = self.renamed.iter().filter(|(_, entry)| entry.is_none());
        let gone = gone.filter_map(|(name, _)| Table::get().find(name));
        gone.filter(|entry| !still(entry)).map(|entry| entry.command.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_command_has_one_name_and_one_taken_away_has_none() {
        let mut names = Names::default();
        names.rename("Config", "hidden").expect("a known command");
        names.rename("DEBUG", "").expect("a known command");
        assert!(names.find(b"CONFIG").is_none() && names.find(b"config|get").is_none());
        assert_eq!(names.find(b"HIDDEN").map(|entry| entry.command.name), Some("config"));
        assert!(names.find(b"debug").is_none() && names.find(b"get").is_some());
        assert_eq!(names.gone(), ["debug"]);
        assert_eq!(names.rename("config", "x"), Err("No such command in rename-command"));
        assert_eq!(names.rename("set", "get"), Err("Target command name already exists"));
        // What was renamed can be renamed again, and a name that became free can be taken.
        names.rename("hidden", "config").expect("both are as they should be");
        assert_eq!(names.find(b"config").map(|entry| entry.command.name), Some("config"));
    }
}
