//! Deletes keys so that nobody notices.
//!
//! ```text
//! plan     Selection -> look -> verdict -> Method -> PlannedKey          reads only
//! execute  PlannedKey -> intent -> check and act -> outcome -> audit     under quota and guard
//! ```
//!
//! In reading order: [`select`](plan) names the keys, `protect` leaves some alone, `method` chooses how,
//! [`PlannedKey`] is what was decided. `execute` carries it out within the pace of `session`, which knows
//! when to `hold`; `recheck` is the look right before the first write, in a `script` where the server allows
//! them; `chunked` takes collections apart. `audit` writes all of it down, and `resume` reads it back.

mod acl;
mod audit;
mod chunked;
mod config;
mod event;
mod execute;
mod expect;
mod hold;
mod lazy_expire;
mod lines;
mod lots;
mod method;
mod output;
mod plan;
mod protect;
mod recheck;
mod report;
mod resume;
mod run;
mod script;
mod select;
mod servers;
mod session;
mod sizer;
mod tombstone;

pub use acl::{Named, acl_remarks, acl_rule};
pub use audit::{Audit, AuditError, AuditReader, AuditRecord, KeyResult, PlanFile, RecordKind, RunSettings};
pub use config::{DeleteConfig, Limits, Operator};
pub use event::{DeleteEvent, DeleteProgress, KeyOutcome};
pub use execute::{ExecuteError, Place, Todo, execute};
pub use expect::{Change, EncodingClass, Expected, Size};
pub use lazy_expire::LazyExpire;
pub use lines::RowForm;
pub use method::{Choice, Method, MethodOptions, choose};
pub use output::{DELETE_COLUMNS, Excerpt, Row, RowWriter, SHOWN_MAX, write_plan, write_report};
pub use plan::{Amount, LeftAlone, PlannedKey, Totals, WhyLeftAlone};
pub use protect::{PROTECTED_BY_DEFAULT, Protection};
pub use report::{DeleteReport, MemoryBack, Seen};
pub use resume::{Begun, PLAN_KEYS_MAX, Unfinished, planned};
pub use select::{OnLine, PlanLine, Planned, SelectError, Selection, plan};
pub use session::Halt;
pub use tombstone::TOMBSTONE_PREFIX;

/// Returns a name for a run that no other has.
pub fn new_run_id() -> String {
    format!("{:016x}", crate::engine::live::random())
}
