//! The wire format: requests in, replies out, RESP2 and RESP3.
//! Knows bytes and never a command, a key or a socket.

mod inline;
mod reply;
mod request;

pub(crate) use inline::split_words;
pub(crate) use reply::{Proto, Reply};
pub(crate) use request::{Args, Limits, OwnedArgs, Progress, RequestParser};
