//! Which commands arrive.

use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel};
use ionian_machines::kv;

/// Which commands arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// SETs of 16 bytes, durability "memory".
    Writes,
    /// The same, durability "disk".
    WritesOnDisk,
    /// Linearizable GETs.
    Reads,
}

impl Load {
    pub(crate) const ALL: [Load; 3] = [Load::Writes, Load::WritesOnDisk, Load::Reads];

    /// Its name in `docs/costs.toml`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Load::Writes => "writes",
            Load::WritesOnDisk => "writes on disk",
            Load::Reads => "reads",
        }
    }

    /// What a client asks for.
    pub(crate) fn operation(self) -> Operation {
        match self {
            Load::Writes | Load::WritesOnDisk => Operation::Write,
            Load::Reads => Operation::Read(ReadLevel::Linearizable),
        }
    }

    /// The command of this key, as a gateway hands it to its client lane.
    pub(crate) fn payload(self, key: usize) -> Bytes {
        let key = Bytes::from(format!("key:{key:012}"));
        let words = match self {
            Load::Writes | Load::WritesOnDisk => {
                let value = Bytes::from_static(b"a 16-byte value!");
                vec![Bytes::from_static(b"SET"), key, value]
            }
            Load::Reads => vec![Bytes::from_static(b"GET"), key],
        };
        let command = kv::Command::parse(&words).expect("a command of the store");
        Bytes::from(kv::Compound::Pipeline(vec![command]).encode())
    }
}
