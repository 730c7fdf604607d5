//! The loader of RDB files, and then everything that can be done with the keys that came before the error.
//! The checksum comes last in a file, so a wrong one hides nothing.

#![no_main]

use bigkeys_fuzz::{Target, try_keys};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut target = Target::start();
    // Whether it could be read to its end is no matter here.
    let _ = target.server().load(data);
    for db in 0..16 {
        target.run(&format!("SELECT {db}"));
        try_keys(&mut target);
    }
});
