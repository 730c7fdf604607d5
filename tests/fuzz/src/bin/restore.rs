//! RESTORE, and then everything that can be done with what it took. The input is a dump without its footer:
//! a fuzzer does not guess checksums.

#![no_main]

use bigkeys_fuzz::{Target, try_key};
use crc::{CRC_64_REDIS, Crc};
use libfuzzer_sys::fuzz_target;

const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_REDIS);
/// The newest version that the server reads.
const RDB_VERSION: u16 = 12;

fuzz_target!(|data: &[u8]| {
    let mut dump = [data, &RDB_VERSION.to_le_bytes()].concat();
    dump.extend(CRC.checksum(&dump).to_le_bytes());
    let mut target = Target::start();
    let reply = target.call(&[&b"RESTORE"[..], b"key", b"0", &dump]);
    assert_ne!(reply, b"-ERR DUMP payload version or checksum are wrong\r\n");
    if reply == b"+OK\r\n" {
        try_key(&mut target, b"key");
    }
});
