//! Finds out which writing commands this user may send, without sending one.
//!
//! As in `capability`: inside MULTI the server refuses at once what the user may not call, and DISCARD throws
//! the rest away. Where MULTI is not to be had (proxies), the commands are sent without arguments instead. Only commands that could do nothing to a key that does not exist are tried, so that a
//! proxy that forgets the MULTI still has nothing to do.

use redis::Value;

use super::link::{Link, LinkError};
use super::random::random;
use super::reply::{RefusalKind, Reply, text};

/// What may be sent. What could not be found out counts as allowed: the server will say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a command of its own")]
pub struct WriteAccess {
    /// UNLINK.
    pub unlink: bool,
    /// DEL.
    pub del: bool,
    /// EVAL.
    pub eval: bool,
    /// RENAMENX.
    pub rename: bool,
    /// MULTI, WATCH and EXEC.
    pub transactions: bool,
}

impl WriteAccess {
    /// Everything.
    pub const ALL: Self = Self { unlink: true, del: true, eval: true, rename: true, transactions: true };
}

/// Probes a server. The connection may be in the middle of a transaction afterwards, where DISCARD is refused:
/// it is not to be used for anything else.
///
/// # Errors
/// When the connection breaks.
pub async fn probe_writes(link: &Link) -> Result<WriteAccess, LinkError> {
    let key = format!("bigkeys:probe:{:016x}{:016x}", random(), random());
    let access = |replies: &[Reply]| {
        let allowed = |index: usize| match replies.get(index) {
            Some(Ok(value)) => text(value).is_some_and(|word| word == "QUEUED"),
            // A key pattern that forbids our key says nothing of the command, and nor does an ACL that
            // the server looks at only after the number of arguments.
            Some(Err(refusal)) => {
                !matches!(refusal.kind, RefusalKind::CommandDenied | RefusalKind::UnknownCommand)
            }
            None => false,
        };
        WriteAccess {
            unlink: allowed(0),
            del: allowed(1),
            eval: allowed(2),
            rename: allowed(3),
            transactions: true,
        }
    };
    if !matches!(link.command(redis::cmd("WATCH").arg(&key)).await?, Ok(Value::Okay))
        || !matches!(link.command(&redis::cmd("MULTI")).await?, Ok(Value::Okay))
    {
        // What is not granted cannot be used to ask, either. A command without arguments does nothing
        // wherever it exists, and says where it does not.
        let mut pipeline = redis::pipe();
        for command in ["UNLINK", "DEL", "EVAL", "RENAMENX"] {
            pipeline.cmd(command);
        }
        let replies = link.pipeline(&pipeline).await?;
        return Ok(WriteAccess { transactions: false, ..access(&replies) });
    }
    let mut pipeline = redis::pipe();
    pipeline.cmd("UNLINK").arg(&key);
    pipeline.cmd("DEL").arg(&key);
    pipeline.cmd("EVAL").arg("return 0").arg(0);
    pipeline.cmd("RENAMENX").arg(&key).arg(format!("{key}:2"));
    pipeline.cmd("DISCARD");
    let replies = link.pipeline(&pipeline).await?;
    Ok(access(&replies))
}
