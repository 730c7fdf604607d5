//! When to leave a server in peace for a while. Pure: reads what INFO said.

use crate::engine::live::ServerState;

/// Values that may wait for the background thread. It frees one after the other, so that a queue of giants
/// is memory that is not back for long.
const PENDING_OBJECTS_MAX: u64 = 64;
/// Seconds since a replica acknowledged anything; 0 and 1 are healthy.
const REPLICA_LAG_S_MAX: u64 = 10;
/// Bytes that a replica may be behind: what a second of a full gigabit link carries.
const REPLICA_LAG_BYTES_MAX: u64 = 128 << 20;
/// Part of `maxmemory` from which on what we make others buffer could evict keys.
const MEMORY_NEARLY_FULL: f64 = 0.95;
/// Bytes in the buffers of clients and replicas that are more than the usual noise.
const BUFFERS_MAX: u64 = 32 << 20;

/// Returns why nothing should be deleted now, in words.
pub(super) fn hold(state: &ServerState) -> Option<String> {
    let is_on = |field: &str| state.number(field).is_some_and(|value| value != 0);
    if is_on("loading") || is_on("async_loading") {
        return Some("the server is loading its data".to_owned());
    }
    for (field, what) in [
        ("rdb_bgsave_in_progress", "a background save"),
        ("aof_rewrite_in_progress", "an AOF rewrite"),
        ("module_fork_in_progress", "a module's fork"),
        ("slot_migration_fork_in_progress", "a slot migration's fork"),
    ] {
        if is_on(field) {
            return Some(format!("{what} is running: each deletion would copy pages of memory"));
        }
    }
    if let Some(pending) = state.number("lazyfree_pending_objects")
        && pending > PENDING_OBJECTS_MAX
    {
        return Some(format!("{pending} values wait for the background thread to free them"));
    }
    let offset = state.number("master_repl_offset");
    for replica in state.replicas() {
        let name = format!(
            "{}:{}",
            replica.get("ip").copied().unwrap_or("?"),
            replica.get("port").copied().unwrap_or("?")
        );
        if let Some(lag) = replica.get("lag").and_then(|lag| lag.parse::<u64>().ok())
            && lag > REPLICA_LAG_S_MAX
        {
            return Some(format!("the replica {name} has not answered for {lag} s"));
        }
        let at = replica.get("offset").and_then(|offset| offset.parse::<u64>().ok());
        if let (Some(offset), Some(at)) = (offset, at)
            && replica.get("state").is_some_and(|state| *state == "online")
            && offset.saturating_sub(at) > REPLICA_LAG_BYTES_MAX
        {
            return Some(format!("the replica {name} is {} MiB behind", offset.saturating_sub(at) >> 20));
        }
    }
    let max = state.number("maxmemory").filter(|max| *max > 0)?;
    let used = state.number("used_memory")?;
    let buffers: u64 = ["mem_clients_normal", "mem_clients_slaves", "mem_total_replication_buffers"]
        .into_iter()
        .filter_map(|field| state.number(field))
        .sum();
    (used as f64 >= max as f64 * MEMORY_NEARLY_FULL && buffers > BUFFERS_MAX).then(|| {
        format!("memory is nearly at maxmemory, and clients and replicas buffer {} MiB", buffers >> 20)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(info: &str) -> Option<String> {
        hold(&ServerState::from_info(info))
    }

    #[test]
    fn a_server_at_rest_is_not_left_in_peace() {
        assert_eq!(
            held(
                "loading:0\r\nrdb_bgsave_in_progress:0\r\nlazyfree_pending_objects:64\r\nmaxmemory:0\r\n\
                 master_repl_offset:100\r\nslave0:ip=h,port=1,state=online,offset=90,lag=1\r\n"
            ),
            None
        );
    }

    #[test]
    fn each_reason_is_told() {
        let cases = [
            ("loading:1\r\n", "loading"),
            ("rdb_bgsave_in_progress:1\r\n", "background save"),
            ("aof_rewrite_in_progress:1\r\n", "AOF rewrite"),
            ("lazyfree_pending_objects:65\r\n", "65 values"),
            ("slave0:ip=h,port=1,state=online,offset=90,lag=11\r\n", "h:1 has not answered for 11 s"),
            (
                "master_repl_offset:268435456\r\nslave0:ip=h,port=1,state=online,offset=0,lag=0\r\n",
                "256 MiB behind",
            ),
            ("maxmemory:100\r\nused_memory:95\r\nmem_clients_slaves:67108864\r\n", "buffer 64 MiB"),
        ];
        for (info, words) in cases {
            assert!(held(info).is_some_and(|why| why.contains(words)), "{info}");
        }
    }

    #[test]
    fn a_replica_that_is_still_being_filled_is_behind_by_nature() {
        assert_eq!(
            held("master_repl_offset:999999999\r\nslave0:ip=h,port=1,state=wait_bgsave,offset=0,lag=0\r\n"),
            None
        );
    }
}
