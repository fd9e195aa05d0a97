//! What the unreplicated server finds again after a crash.

use crate::stage::{batch, birth};
use ionian_kernel::id::Slot;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::{Instance, Protocol};
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Reader, WireError, encode_all};
use ionian_protocols::unreplicated::server::Record;
use ionian_protocols::unreplicated::{Unreplicated, kind};
use ionian_replication::batch::Value;

/// Acknowledged writes are in the batches that are missing.
#[test]
fn a_server_whose_log_has_a_gap_does_not_start_and_names_the_gap() {
    let node = || vec![NodeId(0)];
    let layout = Layout {
        f: 0,
        instances: numbered(vec![node(), Vec::new(), node(), Vec::new()]),
        ..Layout::default()
    };
    let config = Unreplicated::configure(layout).expect("a deployment");
    let mut server = Unreplicated::instantiate(&config, birth(kind::Server, 0, NodeId(0)));
    let mut recover = |slot| {
        let record = encode_all(&Record {
            slot: Slot(slot),
            value: Value {
                stamp: Timestamp(1),
                batch: batch("a"),
            },
        });
        server.recover(&mut Reader::new(&record.into()))
    };
    assert_eq!(recover(0), Ok(Some(0)));
    assert_eq!(recover(1), Ok(Some(1)));
    let gap = WireError::Gap {
        what: "batch",
        missing: 2,
        found: 5,
    };
    assert_eq!(
        gap.to_string(),
        "it is of batch 5, and the records from batch 2 on are missing"
    );
    assert_eq!(recover(5), Err(gap));
    assert_eq!(recover(1), Ok(Some(1)), "a record that a snapshot has");
    assert_eq!(recover(2), Ok(Some(2)));
}
