//! The engine against real servers.

mod bench;
mod candidates;
pub(crate) mod cases;
mod changes;
mod delete_breaks;
mod delete_faults;
mod delete_guard;
mod facts;
mod faults;
mod filters;
mod manners;
pub(crate) mod observe;
mod oracle;
mod permissions;
mod services;
