//! The engine against real servers.

mod bench;
mod cases;
mod changes;
mod facts;
mod observe;
mod oracle;
