//! `bigkeys delete` on real servers: what it takes, what it leaves, and what it says of both.

mod access;
pub(crate) mod ground;
mod limits;
mod methods;
mod preview;
mod property;
mod races;
mod selection;
