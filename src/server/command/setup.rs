//! Everything in a `Config` that can be wrong, checked and put into the form in which it acts.

use super::acl::Acl;
use super::names::Names;
use crate::server::config::{Config, ConfigError, Settings};

/// What a server starts with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    pub(crate) acl: Acl,
    pub(crate) names: Names,
}

impl Setup {
    /// Checks a configuration.
    ///
    /// # Errors
    /// Says what is wrong.
    pub(crate) fn of(config: &Config) -> Result<Setup, String> {
        let mut setup = Setup::default();
        for (name, value) in &config.parameters {
            setup.set(name, value.as_bytes()).map_err(|why| format!("parameter `{name}`: {why}"))?;
        }
        for (name, rules) in &config.users {
            setup.user(name, rules).map_err(|why| format!("user `{name}`: {why}"))?;
        }
        for (from, to) in &config.renamed_commands {
            setup.names.rename(from, to).map_err(|why| format!("rename-command `{from}`: {why}"))?;
        }
        Ok(setup)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// Says what is wrong with its name or value.
    pub(crate) fn set(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        self.settings.set(name, value, true).map_err(|error| match error {
            ConfigError::Unknown => "the bundled server has no such parameter".to_owned(),
            ConfigError::Invalid(why) => why,
        })?;
        if name.eq_ignore_ascii_case("requirepass") {
            self.acl.require_password(&self.settings.requirepass);
        }
        Ok(())
    }

    /// Makes a user. The default user loses what it had, `requirepass` included, as in Redis.
    ///
    /// # Errors
    /// Says which rule is wrong, or that there is such a user.
    pub(crate) fn user(&mut self, name: &str, rules: &[String]) -> Result<(), String> {
        if name != Acl::DEFAULT && self.acl.user(name).is_some() {
            return Err("there is another line about this user".to_owned());
        }
        let reset = ["reset".to_owned()];
        self.acl.set_user(name, &[&reset, rules].concat())
    }
}
