//! The blobs that older servers wrote: ziplists and zipmaps. Read once, into today's encodings.

/// Returns the elements of a ziplist, or `None` if it is not one.
///
/// `u32 bytes | u32 tail | u16 count | entries | 0xFF`. An entry is the length of the one before it (1
/// byte, or FE and 4), then a head as in the match below, then data.
pub(super) fn ziplist(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let total = u32::from_le_bytes(*bytes.first_chunk()?);
    if usize::try_from(total) != Ok(bytes.len()) {
        return None;
    }
    let mut rest = bytes.get(10..)?;
    let mut elements = Vec::new();
    loop {
        match take(&mut rest, 1)? {
            [0xff] => return rest.is_empty().then_some(elements),
            [0xfe] => {
                take(&mut rest, 4)?;
            }
            _ => {}
        }
        let head = take(&mut rest, 1)?[0];
        elements.push(match head {
            0x00..=0x3f => take(&mut rest, usize::from(head))?.to_vec(),
            0x40..=0x7f => {
                let low = take(&mut rest, 1)?[0];
                take(&mut rest, usize::from(head & 0x3f) << 8 | usize::from(low))?.to_vec()
            }
            0x80 => {
                let len = u32::from_be_bytes(*take(&mut rest, 4)?.first_chunk()?);
                take(&mut rest, usize::try_from(len).ok()?)?.to_vec()
            }
            0xc0 => integer(take(&mut rest, 2)?),
            0xd0 => integer(take(&mut rest, 4)?),
            0xe0 => integer(take(&mut rest, 8)?),
            0xf0 => integer(take(&mut rest, 3)?),
            0xfe => integer(take(&mut rest, 1)?),
            0xf1..=0xfd => (head - 0xf1).to_string().into_bytes(),
            _ => return None,
        });
    }
}

/// Returns fields and values of a zipmap in turn, or `None` if it is not one.
///
/// `count | (len field | len free value padding) ... | 0xFF`; a length is 1 byte, or FE and 4.
pub(super) fn zipmap(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = bytes.get(1..)?;
    let mut elements = Vec::new();
    loop {
        let Some(len) = zipmap_len(&mut rest)? else {
            return rest.is_empty().then_some(elements);
        };
        elements.push(take(&mut rest, len)?.to_vec());
        let len = zipmap_len(&mut rest)??;
        let free = take(&mut rest, 1)?[0];
        elements.push(take(&mut rest, len)?.to_vec());
        take(&mut rest, usize::from(free))?;
    }
}

/// Reads a length; `Some(None)` is the end mark.
#[allow(clippy::option_option, reason = "broken, the end, and a length are three answers")]
fn zipmap_len(rest: &mut &[u8]) -> Option<Option<usize>> {
    match take(rest, 1)?[0] {
        0xff => Some(None),
        0xfe => {
            let len = u32::from_le_bytes(*take(rest, 4)?.first_chunk()?);
            usize::try_from(len).ok().map(Some)
        }
        len => Some(Some(usize::from(len))),
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn integer(bytes: &[u8]) -> Vec<u8> {
    let negative = bytes.last().is_some_and(|top| *top >= 0x80);
    let mut word = if negative { [0xff; 8] } else { [0; 8] };
    word[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(word).to_string().into_bytes()
}
