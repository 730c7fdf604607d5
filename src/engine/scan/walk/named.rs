//! Looks at keys that somebody named, instead of those that SCAN finds.

use std::ops::ControlFlow;

use super::{Ended, Interruption, RESTARTS_MAX, Walk};
use crate::engine::event::{Event, Stop};
use crate::engine::key::KeyName;
use crate::engine::scan::KeySource;

impl<F> Walk<'_, F>
where
    F: FnMut(Event<'_>) -> ControlFlow<Stop>,
{
    /// Looks at the named keys of one database, to their end.
    ///
    /// Page after page, each to its end: the names of a page are with their source until the next is
    /// asked for. A server that restarts costs a page, whose keys may so be found twice.
    pub(in crate::engine::scan) async fn named(
        &mut self,
        db: u32,
        source: &mut dyn KeySource,
    ) -> Result<(), Ended> {
        self.db = db;
        let mut page = Vec::new();
        let mut is_selected = false;
        loop {
            if page.is_empty() {
                let Some(next) = source.next_page(db) else { return Ok(()) };
                page = next;
            }
            match self.look_at(page.clone(), is_selected).await {
                Ok(()) => {
                    is_selected = true;
                    page.clear();
                }
                Err(Interruption::Ended(ended)) => return Err(ended),
                Err(Interruption::Restarted) => {
                    self.restarts += 1;
                    if self.restarts > RESTARTS_MAX {
                        return Err(Ended::RestartedTooOften);
                    }
                    self.probe_again().await;
                }
            }
        }
    }

    /// Looks at keys of a cluster, and returns those that are another server's by now.
    pub(in crate::engine::scan) async fn page(
        &mut self,
        db: u32,
        keys: Vec<KeyName>,
    ) -> Result<Vec<KeyName>, Ended> {
        self.is_named = true;
        let is_selected = std::mem::replace(&mut self.db, db) == db && self.keys_seen() > 0;
        let mut attempt = 0;
        loop {
            match self.look_at(keys.clone(), is_selected && attempt == 0).await {
                Ok(()) => return Ok(std::mem::take(&mut self.moved_keys)),
                Err(Interruption::Ended(ended)) => return Err(ended),
                Err(Interruption::Restarted) if attempt < RESTARTS_MAX => self.probe_again().await,
                Err(Interruption::Restarted) => return Err(Ended::RestartedTooOften),
            }
            self.moved_keys.clear();
            attempt += 1;
        }
    }

    async fn look_at(&mut self, keys: Vec<KeyName>, is_selected: bool) -> Result<(), Interruption> {
        if !is_selected {
            self.select_database().await?;
        }
        let filter = &self.config.filter;
        let mut keys: Vec<KeyName> = keys.into_iter().filter(|key| filter.named_passes(key)).collect();
        while !keys.is_empty() {
            if let Some(census) = self.ask_census(std::mem::take(&mut keys)).await?
                && let Some(details) = self.take_census(census).await?
                && let Some(extras) = self.take_details(details).await?
            {
                self.take_extras(extras).await?;
            }
            keys = std::mem::take(&mut self.again);
            self.tick()?;
        }
        Ok(())
    }
}
