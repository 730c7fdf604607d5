//! The parser of requests: what the server answers must not depend on how the bytes were cut.

#![no_main]

use bigkeys_fuzz::Target;
use libfuzzer_sys::fuzz_target;

/// What shows its arguments and changes nothing; the name of any other command comes back in an error.
const HARMLESS: &str =
    "ACL SETUSER default reset on nopass ~* -@all +echo +ping +quit +reset +select +multi +exec +discard";

fuzz_target!(|data: &[u8]| {
    let [piece, stranger, bytes @ ..] = data else { return };
    let [whole, pieces] = [bytes.len(), usize::from(*piece)].map(|piece| {
        let mut target = Target::start();
        target.run(HARMLESS);
        if stranger % 2 == 1 {
            // Whoever has not said who he is may send little.
            target.run("ACL SETUSER default resetpass >secret");
        }
        target.reconnect();
        let pieces = bytes.chunks(piece.max(1));
        pieces.flat_map(|piece| target.feed(piece)).collect::<Vec<u8>>()
    });
    assert_eq!(whole, pieces, "{}\nor\n{}", whole.escape_ascii(), pieces.escape_ascii());
});
