//! Parser and commands together: any bytes, as a client may send them. `0xff` hands over to another client and
//! lets a second pass.

#![no_main]

use std::time::Duration;

use bigkeys_fuzz::Target;
use libfuzzer_sys::fuzz_target;

/// Three would write files or make keys by the million, and that is what they are for. Settings and users
/// could undo the limits of this target; `tests/server/fuzz.rs` has them.
const SPARED: &str = "ACL SETUSER default -save -bgsave -debug -config|set -acl|setuser";

fuzz_target!(|data: &[u8]| {
    let mut target = Target::start();
    assert_eq!(target.run(SPARED), b"+OK\r\n");
    for bytes in data.split(|byte| *byte == 0xff) {
        target.reconnect();
        target.feed(bytes);
        target.pass(Duration::from_secs(1));
    }
});
