//! What is left of a run that was cut off, read from its audit.

use std::collections::BTreeMap;
use std::path::Path;

use super::audit::{AuditError, AuditReader, AuditRecord, KeyResult, RecordKind, RunSettings};
use super::execute::Todo;

/// How far an earlier run came with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// It was to get the name of its tombstone first; else it was to go in place, or in one step.
    pub is_renamed: bool,
}

/// Keys of a plan, at the most: a bit for each is kept. 268 million are 32 MiB.
pub const PLAN_KEYS_MAX: u64 = 1 << 28;

/// A run that was cut off.
#[derive(Debug, Clone, PartialEq)]
pub struct Unfinished {
    /// The run, under which it goes on: its tombstones bear that name.
    pub run_id: String,
    /// The server that it ran on.
    pub node: Option<String>,
    /// What it was told. `None`: an older version wrote the audit.
    pub settings: Option<RunSettings>,
    /// What `lazyfree-lazy-expire` was on each server where the run switched it on and did not put it back.
    pub lazy_expire_before: BTreeMap<String, String>,
    done: Bits,
    begun: BTreeMap<u64, Begun>,
}

impl Unfinished {
    /// Reads an audit.
    ///
    /// # Errors
    /// When it cannot be read, or holds no plan.
    pub fn read(path: &Path) -> Result<Self, AuditError> {
        let mut records = AuditReader::open(path)?;
        let first = match records.next() {
            Some(Ok(record)) if record.record == RecordKind::Run => record,
            Some(Err(error)) => return Err(error),
            _ => return Err(AuditError::NoPlan),
        };
        let mut unfinished = Self {
            run_id: first.run_id,
            node: first.node,
            settings: first.settings.and_then(|settings| serde_json::from_str(&settings).ok()),
            lazy_expire_before: BTreeMap::new(),
            done: Bits::default(),
            begun: BTreeMap::new(),
        };
        for record in records {
            unfinished.take(&record?);
        }
        Ok(unfinished)
    }

    fn take(&mut self, record: &AuditRecord) {
        match (record.record, record.seq) {
            // A batch of small keys is nothing to go on with: each is as it was, or gone.
            (RecordKind::Intent, Some(seq)) if record.seq_to.is_none() => {
                self.begun.insert(seq, Begun { is_renamed: record.tombstone.is_some() });
            }
            (RecordKind::Outcome, Some(seq)) if record.result.is_some_and(KeyResult::is_final) => {
                self.begun.remove(&seq);
                self.done.set(seq);
            }
            // Without a value: it was put back.
            (RecordKind::Setting, _) => {
                let node = record.node.clone().or_else(|| self.node.clone()).unwrap_or_default();
                match &record.detail {
                    Some(before) => self.lazy_expire_before.insert(node, before.clone()),
                    None => self.lazy_expire_before.remove(&node),
                };
            }
            _ => {}
        }
    }

    /// Goes through what is still to be deleted, in the order of the plan.
    ///
    /// # Errors
    /// When the audit cannot be read.
    pub fn todos(
        &self,
        path: &Path,
    ) -> Result<impl Iterator<Item = Result<Todo, AuditError>> + use<>, AuditError> {
        let (done, begun) = (self.done.clone(), self.begun.clone());
        Ok(planned(path)?.filter_map(move |todo| match todo {
            Ok(todo) if done.has(todo.planned.seq) => None,
            Ok(todo) => {
                let begun = begun.get(&todo.planned.seq).cloned();
                Some(Ok(Todo { begun, ..todo }))
            }
            Err(error) => Some(Err(error)),
        }))
    }
}

/// Goes through the plan in an audit.
///
/// # Errors
/// When the audit cannot be read.
pub fn planned(path: &Path) -> Result<impl Iterator<Item = Result<Todo, AuditError>> + use<>, AuditError> {
    let mut records = AuditReader::open(path)?;
    let numbered = std::iter::from_fn(move || {
        let record = records.next()?;
        Some((records.line(), record))
    });
    Ok(numbered
        .map_while(|(line, record)| match record {
            Ok(record) => match record.record {
                RecordKind::Plan => Some(Some(match record.planned() {
                    Some(planned) => Ok(Todo { planned, begun: None }),
                    None => Err(AuditError::BadLine {
                        line,
                        what: "the line of the plan does not name a key and a method".to_owned(),
                    }),
                })),
                RecordKind::Run | RecordKind::Skip => Some(None),
                // The plan comes before anything happens.
                _ => None,
            },
            Err(error) => Some(Some(Err(error))),
        })
        .flatten())
}

/// A bit for each key of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn set(&mut self, index: u64) {
        if index >= PLAN_KEYS_MAX {
            return;
        }
        let (word, bit) = place(index);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    pub(super) fn has(&self, index: u64) -> bool {
        let (word, bit) = place(index);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

fn place(index: u64) -> (usize, u64) {
    (usize::try_from(index / 64).unwrap_or(usize::MAX), 1 << (index % 64))
}
