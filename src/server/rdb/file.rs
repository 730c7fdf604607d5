//! The whole keyspace as a file.
//!
//! ```text
//! REDIS0011 | aux ... | (SELECTDB n | RESIZEDB keys expires | [EXPIRETIME_MS t] type key value ...) ... | EOF | crc
//! ```

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use super::crc64::crc64;
use super::error::{RdbError, RdbErrorKind};
use super::load::{self, Home};
use super::read::Reader;
use super::write::Writer;
use super::{VERSION, VERSION_FIELD_TTL, VERSION_MAX, kind, save};
use crate::server::keyspace::{Db, Keyspace};
use crate::server::value::limits::Limits;

mod opcode {
    pub(super) const FUNCTION2: u8 = 245;
    pub(super) const SLOT_INFO: u8 = 244;
    pub(super) const IDLE: u8 = 248;
    pub(super) const FREQ: u8 = 249;
    pub(super) const AUX: u8 = 250;
    pub(super) const RESIZEDB: u8 = 251;
    pub(super) const EXPIRETIME_MS: u8 = 252;
    pub(super) const EXPIRETIME: u8 = 253;
    pub(super) const SELECTDB: u8 = 254;
    pub(super) const EOF: u8 = 255;
}

/// How a file is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SaveOptions {
    /// What the file says wrote it.
    pub(crate) redis_version: &'static str,
    /// `rdbcompression`
    pub(crate) compress: bool,
}

/// Writes all databases to `path`. The file appears whole or not at all.
///
/// # Errors
/// Fails when the file cannot be written.
pub(crate) fn save_file(keyspace: &Keyspace, path: &Path, options: SaveOptions) -> Result<(), RdbError> {
    let temporary = path.with_extension(format!("rdb.{}.tmp", std::process::id()));
    let written = File::create(&temporary).and_then(|file| {
        let mut file = Checksummed { file: BufWriter::new(file), crc: 0 };
        write_all(keyspace, &mut file, options)?;
        let crc = file.crc;
        file.file.write_all(&crc.to_le_bytes())?;
        file.file.into_inner()?.sync_all()?;
        fs::rename(&temporary, path)
    });
    written.map_err(|error| {
        // What is left of it is of no use to anybody.
        let _ = fs::remove_file(&temporary);
        RdbError::from(error)
    })
}

struct Checksummed {
    file: BufWriter<File>,
    crc: u64,
}

impl Checksummed {
    fn put(&mut self, out: &mut Writer) -> io::Result<()> {
        self.crc = crc64(self.crc, out.bytes());
        self.file.write_all(out.bytes())?;
        out.clear();
        Ok(())
    }
}

fn write_all(keyspace: &Keyspace, file: &mut Checksummed, options: SaveOptions) -> io::Result<()> {
    let mut out = Writer::new(options.compress);
    let mortal = |kind| matches!(kind, kind::HASH_TTL | kind::HASH_LISTPACK_TTL);
    let any_mortal =
        keyspace.dbs().iter().flat_map(Db::entries).any(|(_, value, _)| mortal(save::kind_of(value)));
    let version = if any_mortal { VERSION_FIELD_TTL } else { VERSION };
    out.raw(format!("REDIS{version:04}").as_bytes());
    for (name, value) in [
        ("redis-ver", options.redis_version.to_owned()),
        ("redis-bits", "64".to_owned()),
        ("ctime", (keyspace.now_ms / 1000).to_string()),
        ("used-mem", keyspace.memory_bytes().to_string()),
        ("aof-base", "0".to_owned()),
    ] {
        out.u8(opcode::AUX);
        out.string(name.as_bytes());
        out.string(value.as_bytes());
    }
    for (index, db) in keyspace.dbs().iter().enumerate().filter(|(_, db)| db.len() > 0) {
        out.u8(opcode::SELECTDB);
        out.count(index);
        out.u8(opcode::RESIZEDB);
        out.count(db.len());
        out.count(db.volatile_len());
        for (key, value, deadline) in db.entries() {
            if let Some(at_ms) = deadline {
                out.u8(opcode::EXPIRETIME_MS);
                out.u64_le(at_ms);
            }
            out.u8(save::kind_of(value));
            out.string(key);
            save::value(&mut out, value);
            file.put(&mut out)?;
        }
    }
    out.u8(opcode::EOF);
    file.put(&mut out)
}

/// Loads a file into the keyspace, over what is there; keys that are due are left out. Returns how
/// many keys were loaded. `go_on` is asked after each key, and told how far in the file that is.
///
/// # Errors
/// Fails on a file that cannot be read to its end, and when it should not go on; what came before has
/// been loaded.
pub(crate) fn load(
    keyspace: &mut Keyspace,
    source: impl Read,
    limits: &Limits,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<usize, RdbError> {
    let mut input = Reader::new(source);
    let version = header(&mut input)?;
    let home = Home { seed: keyspace.seed(), limits };
    let (mut db, mut deadline, mut loaded) = (0, None, 0);
    loop {
        match input.u8()? {
            opcode::EOF => break,
            opcode::SELECTDB => {
                db = input.count()?;
                if db >= keyspace.dbs().len() {
                    return Err(input.corrupt("database number"));
                }
            }
            opcode::RESIZEDB => {
                let (keys, _) = (input.count()?, input.len()?);
                keyspace.select(db).reserve(keys);
            }
            opcode::AUX => {
                input.string()?;
                input.string()?;
            }
            opcode::FUNCTION2 => {
                // A library of functions: read over, there is no FUNCTION here.
                input.string()?;
            }
            opcode::SLOT_INFO => {
                for _ in 0..3 {
                    input.len()?;
                }
            }
            opcode::EXPIRETIME => deadline = Some(u64::from(input.u32_le()?) * 1000),
            opcode::EXPIRETIME_MS => deadline = Some(input.u64_le()?),
            opcode::IDLE => {
                input.len()?;
            }
            opcode::FREQ => {
                input.u8()?;
            }
            kind => {
                let key = input.string()?;
                let value = load::value(&mut input, kind, home)?;
                let at_ms = deadline.take();
                if !go_on(input.offset()) {
                    return Err(input.error(RdbErrorKind::Stopped));
                }
                if at_ms.is_some_and(|at_ms| at_ms < keyspace.now_ms) {
                    continue;
                }
                let mut db = keyspace.select(db);
                db.set(&key, value);
                if let Some(at_ms) = at_ms {
                    db.set_deadline(&key, at_ms);
                }
                loaded += 1;
            }
        }
    }
    let crc = input.crc();
    if version >= 5 {
        let stored = input.u64_le()?;
        if stored != 0 && stored != crc {
            return Err(input.error(RdbErrorKind::Checksum));
        }
    }
    Ok(loaded)
}

fn header<R: Read>(input: &mut Reader<R>) -> Result<u16, RdbError> {
    let magic: [u8; 9] = input.array()?;
    let version =
        magic.strip_prefix(b"REDIS").and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let version: u16 = version.ok_or_else(|| input.error(RdbErrorKind::NotRdb))?;
    if (1..=VERSION_MAX).contains(&version) {
        Ok(version)
    } else {
        Err(input.error(RdbErrorKind::Version(version)))
    }
}
