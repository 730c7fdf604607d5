//! `--lazy-expire-while-running`: the setting that decides whether expiry blocks, switched on for a run and put
//! back after it.
//!
//! What it was is in the audit before it is changed, so that `--resume` puts it back after a run that was
//! killed.

use std::cell::RefCell;

use crate::engine::live::{Command, Endpoint, Link, LinkError, Reply, Value, reply_field, reply_text};

use super::audit::{Audit, AuditRecord, RecordKind};

const SETTING: &str = "lazyfree-lazy-expire";

/// The setting as it was before the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LazyExpire {
    before: String,
}

impl LazyExpire {
    /// Returns what an audit says that the setting was.
    pub fn as_it_was(before: &str) -> Self {
        Self { before: before.to_owned() }
    }

    /// Returns the value that it had.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// Switches it on. `None`: it was on.
    ///
    /// # Errors
    /// In words, when that fails; then nothing was changed.
    pub(super) async fn switch_on(
        link: &Link,
        audit: &RefCell<&mut Audit>,
        run_id: &str,
        node: &str,
    ) -> Result<Option<Self>, String> {
        let value = accepted(link.run(&Command::new(&["CONFIG", "GET", SETTING])).await)?;
        let before = reply_field(&value, SETTING).and_then(reply_text);
        let before = before.ok_or_else(|| "this server has no such setting".to_owned())?;
        if before == "yes" {
            return Ok(None);
        }
        let record = AuditRecord { detail: Some(before.clone()), ..Self::is_back(run_id, node) };
        let written = {
            let mut audit = audit.borrow_mut();
            audit.write(&record).and_then(|()| audit.sync())
        };
        written.map_err(|error| format!("the audit cannot be written: {error}"))?;
        accepted(link.run(&Command::new(&["CONFIG", "SET", SETTING, "yes"])).await)?;
        Ok(Some(Self { before }))
    }

    /// Puts it back.
    ///
    /// # Errors
    /// In words, when that fails.
    pub(super) async fn put_back(&self, link: &Link) -> Result<(), String> {
        accepted(link.run(&Command::new(&["CONFIG", "SET", SETTING, &self.before])).await).map(|_| ())
    }

    /// Puts it back over a connection of its own.
    ///
    /// # Errors
    /// In words, when that fails.
    pub async fn put_back_at(&self, endpoint: &Endpoint) -> Result<(), String> {
        let link = Link::open(endpoint, "bigkeys").await.map_err(|error| error.to_string())?;
        self.put_back(&link).await
    }

    /// Returns the line of the audit that says that the setting is as it was: there is nothing for `--resume`
    /// to put back.
    pub fn is_back(run_id: &str, node: &str) -> AuditRecord {
        let mut record = AuditRecord::new(RecordKind::Setting, run_id);
        record.node = Some(node.to_owned());
        record.reason = Some(SETTING.to_owned());
        record
    }
}

fn accepted(reply: Result<Reply, LinkError>) -> Result<Value, String> {
    reply.map_err(|error| error.to_string())?.map_err(|refusal| refusal.message)
}
