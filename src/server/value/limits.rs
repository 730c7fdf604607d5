//! The thresholds at which an encoding gives way to the next one, under their Redis names.

/// Thresholds of the encodings; the defaults are those of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `list-max-listpack-size`: elements per node, or -1 to -5 for 4, 8, 16, 32 or 64 KB per node.
    pub list_max_listpack_size: i32,
    /// `set-max-intset-entries`
    pub set_max_intset_entries: usize,
    /// `set-max-listpack-entries`
    pub set_max_listpack_entries: usize,
    /// `set-max-listpack-value`
    pub set_max_listpack_value: usize,
    /// `hash-max-listpack-entries`
    pub hash_max_listpack_entries: usize,
    /// `hash-max-listpack-value`
    pub hash_max_listpack_value: usize,
    /// `zset-max-listpack-entries`
    pub zset_max_listpack_entries: usize,
    /// `zset-max-listpack-value`
    pub zset_max_listpack_value: usize,
    /// `stream-node-max-bytes`; 0 is no limit.
    pub stream_node_max_bytes: usize,
    /// `stream-node-max-entries`; 0 is no limit.
    pub stream_node_max_entries: usize,
    /// `hll-sparse-max-bytes`
    pub hll_sparse_max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            list_max_listpack_size: -2,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
            stream_node_max_bytes: 4096,
            stream_node_max_entries: 100,
            hll_sparse_max_bytes: 3000,
        }
    }
}
