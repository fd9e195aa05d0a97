//! The file `vital`: the few small records that a node keeps whatever its durability.
//!
//! ```text
//! header   magic "IONVITAL", u16 format, u32 length of the stamp, u32 its crc32c, stamp
//! group    u32 length of the body, u32 crc32c of the length, u32 crc32c of the body, body
//! body     records: u8 kind, u8 index, u32 length, bytes
//! ```
//!
//! A group is what one burst of the event loop persisted. It is written at once and synced before the
//! next one is, so a crash can only damage the last. The length has a checksum of its own: otherwise a
//! damaged length in the middle would look like a last group that was cut off, and the node would
//! silently forget every promise behind it.

use crate::directory::DataDirectory;
use crate::log::{LogError, io_error};
use bytes::Bytes;
use ionian_kernel::layout::Address;
use ionian_kernel::wire::{Reader, WIRE_VERSION, Wire, WireError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"IONVITAL";
const FORMAT: u16 = 1;
const GROUP_HEADER: usize = 12;

/// Whose file it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) cluster: String,
    pub(crate) protocol: String,
    pub(crate) node: String,
}

impl fmt::Display for Stamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stamp { cluster, protocol, node } = self;
        write!(formatter, "node '{node}' of cluster '{cluster}' under protocol '{protocol}'")
    }
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VitalRecord {
    pub(crate) from: Address,
    pub(crate) record: Bytes,
}

/// The open file, at its end.
#[derive(Debug)]
pub(crate) struct VitalFile {
    path: PathBuf,
    file: File,
}

/// Appends a record to the body of a group.
pub(crate) fn encode_record(body: &mut Vec<u8>, from: Address, record: &[u8]) {
    body.extend_from_slice(&[from.kind, from.index]);
    (record.len() as u32).encode(body);
    body.extend_from_slice(record);
}

impl VitalFile {
    /// Opens the file, or makes it where the node is new.
    pub(crate) fn open(
        directory: &DataDirectory,
        path: PathBuf,
        stamp: &Stamp,
    ) -> Result<(Self, Vec<VitalRecord>), LogError> {
        if !fs::exists(&path).map_err(io_error("look for", &path))? {
            create(directory, &path, stamp)?;
            return Ok((Self::at_end(path, None)?, Vec::new()));
        }
        let content = Bytes::from(fs::read(&path).map_err(io_error("read", &path))?);
        let start = check_header(&path, &content, stamp)?;
        let (records, end) = read_groups(&path, &content, start)?;
        let torn = (end < content.len()).then_some(end as u64);
        if torn.is_some() {
            let lost = content.len() - end;
            tracing::warn!("{}: cut off {lost} bytes of a write that a crash interrupted", path.display());
        }
        let file = Self::at_end(path, torn)?;
        // What was found is relied on from now on. An earlier process may have been killed before it had synced
        // what it wrote, or the name of the file: a power failure could still take that away.
        file.file.sync_all().map_err(io_error("sync", &file.path))?;
        directory.sync()?;
        Ok((file, records))
    }

    /// Opens an existing file for appending, cut to `length` if one is given.
    fn at_end(path: PathBuf, length: Option<u64>) -> Result<Self, LogError> {
        let mut file = File::options().write(true).open(&path).map_err(io_error("open", &path))?;
        if let Some(length) = length {
            file.set_len(length).map_err(io_error("cut off the torn end of", &path))?;
        }
        file.seek(SeekFrom::End(0)).map_err(io_error("find the end of", &path))?;
        Ok(VitalFile { path, file })
    }

    /// Appends a group of records; on return they are on disk.
    pub(crate) fn append_group(&mut self, body: &[u8]) -> Result<(), LogError> {
        let length = (body.len() as u32).to_le_bytes();
        let mut group = Vec::with_capacity(GROUP_HEADER + body.len());
        group.extend_from_slice(&length);
        group.extend_from_slice(&crc32c::crc32c(&length).to_le_bytes());
        group.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
        group.extend_from_slice(body);
        self.file.write_all(&group).map_err(io_error("write to", &self.path))?;
        self.file.sync_data().map_err(io_error("sync", &self.path))
    }
}

/// Makes the file with its header in one step: it exists whole or not at all.
fn create(directory: &DataDirectory, path: &Path, stamp: &Stamp) -> Result<(), LogError> {
    let mut body = Vec::new();
    WIRE_VERSION.encode(&mut body);
    for text in [&stamp.cluster, &stamp.protocol, &stamp.node] {
        (text.len() as u32).encode(&mut body);
        body.extend_from_slice(text.as_bytes());
    }
    let mut header = MAGIC.to_vec();
    (FORMAT, (body.len() as u32, crc32c::crc32c(&body))).encode(&mut header);
    header.extend_from_slice(&body);
    let draft = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&draft)?;
        file.write_all(&header)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(io_error("create", path))?;
    directory.sync()
}

/// Checks that the file is this node's; returns where its groups begin.
fn check_header(path: &Path, content: &Bytes, stamp: &Stamp) -> Result<usize, LogError> {
    let foreign = |text: String| LogError::Foreign { path: path.to_owned(), text };
    let damaged = |text: &str| LogError::Corrupt { path: path.to_owned(), offset: 0, text: text.to_owned() };
    let mut reader = Reader::new(content);
    if reader.take(MAGIC.len()).is_ok_and(|magic| magic != MAGIC) {
        return Err(foreign("it does not begin as one".into()));
    }
    let truncated = |_: WireError| damaged("its header is cut off");
    let format = u16::decode(&mut reader).map_err(truncated)?;
    if format != FORMAT {
        return Err(foreign(format!("it has format {format}, this program knows format {FORMAT}")));
    }
    let (length, sum) = <(u32, u32)>::decode(&mut reader).map_err(truncated)?;
    let body = reader.slice(length as usize).map_err(truncated)?;
    if crc32c::crc32c(&body) != sum {
        return Err(damaged("the checksum of its header is wrong"));
    }
    let (version, found) = decode_stamp(&body).map_err(truncated)?;
    if version != WIRE_VERSION {
        let text = format!("its records have version {version}, this program knows version {WIRE_VERSION}");
        return Err(foreign(text));
    }
    if found != *stamp {
        return Err(foreign(format!("it belongs to {found}, this is {stamp}")));
    }
    Ok(content.len() - reader.remaining())
}

fn decode_stamp(body: &Bytes) -> Result<(u16, Stamp), WireError> {
    let mut reader = Reader::new(body);
    let version = u16::decode(&mut reader)?;
    let mut text = || Bytes::decode(&mut reader).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((version, Stamp { cluster: text()?, protocol: text()?, node: text()? }))
}

/// Reads all groups; returns their records and where the last whole group ends.
fn read_groups(path: &Path, content: &Bytes, start: usize) -> Result<(Vec<VitalRecord>, usize), LogError> {
    let corrupt = |offset: usize, text: &str| LogError::Corrupt {
        path: path.to_owned(),
        offset: offset as u64,
        text: text.to_owned(),
    };
    let mut records = Vec::new();
    let mut at = start;
    while at < content.len() {
        match read_group(content, at) {
            Group::Whole(body) => {
                read_records(&body, &mut records).map_err(|error| corrupt(at, &error.to_string()))?;
                at += GROUP_HEADER + body.len();
            }
            Group::Torn => break,
            Group::Corrupt(text) => return Err(corrupt(at, text)),
        }
    }
    Ok((records, at))
}

enum Group {
    Whole(Bytes),
    /// Nothing was written behind it: a crash can have done this.
    Torn,
    /// Something was written behind it, and that only happens after it was on disk.
    Corrupt(&'static str),
}

fn read_group(content: &Bytes, at: usize) -> Group {
    let Some(length) = group_length(content, at) else {
        // Nobody knows where this group ends. A crash leaves nothing whole behind a torn group.
        let behind = (at + 1..content.len()).any(|later| {
            group_length(content, later).is_some() && matches!(read_group(content, later), Group::Whole(_))
        });
        return if behind { Group::Corrupt("the checksum of a length is wrong") } else { Group::Torn };
    };
    let start = at + GROUP_HEADER;
    let end = start + length;
    if end > content.len() {
        return Group::Torn;
    }
    let body = content.slice(start..end);
    let sum = u32::from_le_bytes(content[at + 8..start].try_into().expect("four bytes"));
    match (crc32c::crc32c(&body) == sum, end == content.len()) {
        (true, _) => Group::Whole(body),
        (false, true) => Group::Torn,
        (false, false) => Group::Corrupt("the checksum of a group of records is wrong"),
    }
}

/// The length of the group at `at`, if its own checksum holds. No group is empty: the checksum of a
/// zero length must not make one out of a stretch of nothing.
fn group_length(content: &Bytes, at: usize) -> Option<usize> {
    let length: [u8; 4] = content.get(at..at + 4)?.try_into().ok()?;
    let sum: [u8; 4] = content.get(at + 4..at + 8)?.try_into().ok()?;
    content.get(at + 8..at + GROUP_HEADER)?;
    let sound = crc32c::crc32c(&length) == u32::from_le_bytes(sum) && length != [0; 4];
    sound.then_some(u32::from_le_bytes(length) as usize)
}

fn read_records(body: &Bytes, records: &mut Vec<VitalRecord>) -> Result<(), WireError> {
    let mut reader = Reader::new(body);
    while reader.remaining() > 0 {
        let from = Address { kind: u8::decode(&mut reader)?, index: u8::decode(&mut reader)? };
        records.push(VitalRecord { from, record: Bytes::decode(&mut reader)? });
    }
    Ok(())
}
