//! The engine against real servers.

mod bench;
mod candidates;
mod cases;
mod changes;
mod delete_breaks;
mod facts;
mod faults;
mod filters;
mod manners;
mod observe;
mod oracle;
mod permissions;
