//! RDB: values as bytes, for DUMP and RESTORE and for the file that SAVE writes. Owns the format;
//! writes version 11 (12 when a field has a TTL) and reads every type that Redis writes up to 7.4,
//! modules excepted. Nothing read is trusted: what does not add up is an error.

mod crc64;
mod dump;
mod error;
mod file;
mod legacy;
mod load;
mod lzf;
mod read;
mod save;
mod write;

pub(crate) use dump::{dump, restore};
pub(crate) use error::{RdbError, RdbErrorKind};
pub(crate) use file::{SaveOptions, load, save_file};
pub(crate) use load::Home;

/// The version of a file or a dump without fields that expire.
const VERSION: u16 = 11;
/// The version that brought field TTLs.
const VERSION_FIELD_TTL: u16 = 12;
/// The newest version that is read.
const VERSION_MAX: u16 = 12;

/// Value types, under the numbers they have in the file.
mod kind {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const ZSET: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const ZSET_2: u8 = 5;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const ZSET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_QUICKLIST: u8 = 14;
    pub(super) const STREAM: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const ZSET_LISTPACK: u8 = 17;
    pub(super) const LIST_QUICKLIST_2: u8 = 18;
    pub(super) const STREAM_2: u8 = 19;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM_3: u8 = 21;
    pub(super) const HASH_TTL: u8 = 24;
    pub(super) const HASH_LISTPACK_TTL: u8 = 25;
}
