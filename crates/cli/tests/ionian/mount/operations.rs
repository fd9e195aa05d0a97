//! Random operations on a directory, and what can be seen of their effects. What two file systems
//! may do differently (sizes and links of directories, times, the order of a list) is left out.

use ionian_kernel::random::Random;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const PATHS: &[&str] = &[
    "a",
    "b",
    "c",
    "a/x",
    "a/y",
    "b/x",
    "b/../a/x",
    "a//y",
    "b/x/z",
    "./c",
    "c/",
    "missing/x",
];

/// Descriptors that stay open.
const SLOTS: u64 = 4;

#[derive(Debug)]
pub(crate) enum Operation {
    Create(&'static str),
    Write(&'static str, u64, Vec<u8>),
    Append(&'static str, Vec<u8>),
    Read(&'static str),
    Truncate(&'static str, u64),
    Mkdir(&'static str),
    Rmdir(&'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    Symlink(&'static str, &'static str),
    Readlink(&'static str),
    Chmod(&'static str, u32),
    Stat(&'static str),
    List(&'static str),
    Open(u64, &'static str),
    Close(u64),
    WriteOpen(u64, u64, Vec<u8>),
    ReadOpen(u64),
    Sync(u64),
}

impl Operation {
    pub(crate) fn random(random: &mut Random) -> Operation {
        let one = PATHS[random.below(PATHS.len() as u64) as usize];
        let other = PATHS[random.below(PATHS.len() as u64) as usize];
        let slot = random.below(SLOTS);
        let length = match random.below(8) {
            0 => random.below(300_000),
            _ => random.below(3000),
        };
        let bytes = vec![random.any() as u8; length as usize];
        let offset = random.below(20_000);
        match random.below(28) {
            0..3 => Operation::Create(one),
            3..6 => Operation::Write(one, offset, bytes),
            6 => Operation::Append(one, bytes),
            7..9 => Operation::Read(one),
            9 => Operation::Truncate(one, offset),
            10..13 => Operation::Mkdir(one),
            13 => Operation::Rmdir(one),
            14 => Operation::Unlink(one),
            15..18 => Operation::Rename(one, other),
            18 => Operation::Link(one, other),
            19 => Operation::Symlink(one, other),
            20 => Operation::Readlink(one),
            21 => Operation::Chmod(one, 0o600 | random.below(0o200) as u32),
            22 => Operation::Stat(one),
            23 => Operation::List(one),
            24 => Operation::Open(slot, one),
            25 => Operation::WriteOpen(slot, offset, bytes),
            26 => Operation::ReadOpen(slot),
            _ if random.once_in(2) => Operation::Sync(slot),
            _ => Operation::Close(slot),
        }
    }
}

/// What a program sees of an operation: an answer, or the number of the error.
type Seen = Result<String, i32>;

/// A directory that the operations are done to.
pub(crate) struct Side {
    root: PathBuf,
    open: BTreeMap<u64, File>,
}

fn look(path: &Path) -> io::Result<String> {
    let found = path.symlink_metadata()?;
    let (mode, links, size) = (found.mode(), found.nlink(), found.size());
    Ok(match found.is_dir() {
        true => format!("{mode:o}"),
        false => format!("{mode:o}, {links} links, {size} bytes"),
    })
}

fn digest(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(7u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add((*byte).into())
    });
    format!("{} bytes, {sum:x}", bytes.len())
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        names.push(format!("{:?} {:?}", entry.file_name(), kind));
    }
    names.sort();
    Ok(names)
}

impl Side {
    pub(crate) fn new(root: &Path) -> Side {
        Side {
            root: root.to_owned(),
            open: BTreeMap::new(),
        }
    }

    pub(crate) fn execute(&mut self, operation: &Operation) -> Seen {
        self.attempt(operation)
            .map_err(|error| error.raw_os_error().unwrap_or(-1))
    }

    fn attempt(&mut self, operation: &Operation) -> io::Result<String> {
        let at = |path: &str| self.root.join(path);
        let done = |()| String::new();
        match operation {
            Operation::Create(path) => File::create_new(at(path)).map(|_| String::new()),
            Operation::Write(path, offset, bytes) => {
                let file = OpenOptions::new().write(true).open(at(path))?;
                file.write_all_at(bytes, *offset).map(done)
            }
            Operation::Append(path, bytes) => {
                let mut file = OpenOptions::new().append(true).open(at(path))?;
                io::Write::write_all(&mut file, bytes).map(done)
            }
            Operation::Read(path) => fs::read(at(path)).map(|bytes| digest(&bytes)),
            Operation::Truncate(path, size) => OpenOptions::new()
                .write(true)
                .open(at(path))?
                .set_len(*size)
                .map(done),
            Operation::Mkdir(path) => fs::create_dir(at(path)).map(done),
            Operation::Rmdir(path) => fs::remove_dir(at(path)).map(done),
            Operation::Unlink(path) => fs::remove_file(at(path)).map(done),
            Operation::Rename(from, to) => fs::rename(at(from), at(to)).map(done),
            Operation::Link(from, to) => fs::hard_link(at(from), at(to)).map(done),
            Operation::Symlink(target, path) => symlink(target, at(path)).map(done),
            Operation::Readlink(path) => fs::read_link(at(path)).map(|path| format!("{path:?}")),
            Operation::Chmod(path, mode) => {
                fs::set_permissions(at(path), Permissions::from_mode(*mode)).map(done)
            }
            Operation::Stat(path) => look(&at(path)),
            Operation::List(path) => names(&at(path)).map(|names| format!("{names:?}")),
            Operation::Open(slot, path) => {
                let file = OpenOptions::new().read(true).write(true).open(at(path))?;
                self.open.insert(*slot, file);
                Ok(String::new())
            }
            Operation::Close(slot) => Ok(format!("{}", self.open.remove(slot).is_some())),
            Operation::WriteOpen(slot, offset, bytes) => match self.open.get(slot) {
                Some(file) => file.write_all_at(bytes, *offset).map(done),
                None => Ok("not open".to_owned()),
            },
            Operation::ReadOpen(slot) => match self.open.get(slot) {
                Some(file) => {
                    let mut bytes = vec![0; 400_000];
                    let read = file.read_at(&mut bytes, 0)?;
                    let links = file.metadata()?.nlink();
                    Ok(format!("{}, {links} links", digest(&bytes[..read])))
                }
                None => Ok("not open".to_owned()),
            },
            Operation::Sync(slot) => match self.open.get(slot) {
                Some(file) => file.sync_all().map(done),
                None => Ok("not open".to_owned()),
            },
        }
    }
}

/// Everything in a directory, with its content.
pub(crate) fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let mut paths: Vec<PathBuf> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        for path in paths {
            let name = path.strip_prefix(root).unwrap().display();
            let kind = path.symlink_metadata().unwrap().file_type();
            let content = match (kind.is_file(), kind.is_symlink()) {
                (true, _) => digest(&fs::read(&path).unwrap()),
                (_, true) => format!("{:?}", fs::read_link(&path).unwrap()),
                _ => String::new(),
            };
            lines.push(format!("{name}: {}; {content}", look(&path).unwrap()));
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    lines
}
