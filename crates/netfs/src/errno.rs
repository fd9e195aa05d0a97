//! Errors as POSIX names them, with the numbers of Linux: they are a part of the answers of the
//! state machine, so they must not depend on the system that a replica runs on.

use core::fmt;

macro_rules! errnos {
    ($($name:ident $number:literal $about:literal;)*) => {
        impl Errno {
            $(#[doc = $about] pub const $name: Errno = Errno($number);)*

            fn name(self) -> Option<&'static str> {
                match self {
                    $(Errno::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

/// Why a request has failed: a number of `errno` on Linux. Zero is no error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errno(pub u16);

errnos! {
    EPERM 1 "The operation is not allowed for this kind of file.";
    ENOENT 2 "There is no such name, or the directory is gone.";
    EIO 5 "The cluster did not answer in time: the operation may have been executed or not.";
    EEXIST 17 "The name exists.";
    ENOTDIR 20 "It is not a directory.";
    EISDIR 21 "It is a directory.";
    EINVAL 22 "The request is malformed, or cannot be meant.";
    EFBIG 27 "The file would exceed the largest size of a file.";
    ENOSPC 28 "The file system would exceed its limit.";
    EMLINK 31 "The file has the largest number of names.";
    ENAMETOOLONG 36 "The name has more than 255 bytes.";
    ENOSYS 38 "The state machine does not know the command.";
    ENOTEMPTY 39 "The directory has entries.";
    ENFILE 23 "The table of held files, or of mounts, is full.";
    ESTALE 116 "There is no such inode: the file is gone.";
    SETTLED 1001 "Not of POSIX: a late copy of a request, which was not executed.";
    UNKNOWN_MOUNT 1002 "Not of POSIX: the mount was not renewed in time, or has ended.";
    NO_ROOM 1003 "Not of POSIX: the write needs more room than is reserved for the file.";
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl core::error::Error for Errno {}
