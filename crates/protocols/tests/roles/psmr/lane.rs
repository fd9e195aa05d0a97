//! Which group a client lane sends a request to.

use super::*;
use ionian_kernel::client::{Operation, ReadLevel, Request};
use ionian_protocols::multipaxos::leader;

/// The groups, purposes and payloads of what the lane has proposed or asked.
fn requests(sent: &Sent) -> Vec<(u8, Purpose, String)> {
    let mut found = Vec::new();
    for (group, message) in in_groups(sent) {
        if let multipaxos::Message::Leader(leader::In::Propose { batch, .. }) = message {
            for command in batch.commands() {
                let payload = String::from_utf8(command.payload.to_vec()).expect("a text");
                found.push((group, command.purpose, payload));
            }
        }
    }
    found
}

fn ask(
    lane: &mut Stage,
    operation: Operation,
    payload: &'static str,
) -> Vec<(u8, Purpose, String)> {
    let request = Request {
        token: 1,
        operation,
        payload: Bytes::from(payload),
    };
    let sent = lane.tell(Message::Submit { request });
    requests(&sent)
}

/// m18: half of what another command does is seen by no client.
#[test]
fn a_read_of_several_parts_is_a_command_of_all_groups() {
    let mut lane = Stage::new((2, Options::default()), (kind::Client, 0), true);
    let read = |level| Operation::Read(level);
    for level in [ReadLevel::Linearizable, ReadLevel::Sequential] {
        let asked = ask(&mut lane, read(level), "ab?");
        assert_eq!(asked, [(2, Purpose::Read, "ab?".to_owned())], "{level:?}");
    }
    let asked = ask(&mut lane, read(ReadLevel::Linearizable), "ca?");
    assert_eq!(asked, [], "both are in part 0: acceptors are asked");
}

/// Gateways ask such questions each second. In the log they would be decisions on the disks of all
/// nodes, with a marker in each group, as long as a client is connected.
#[test]
fn what_each_part_answers_is_asked_of_one_group_and_is_in_no_log() {
    let mut lane = Stage::new((2, Options::default()), (kind::Client, 0), true);
    for level in [ReadLevel::Linearizable, ReadLevel::Sequential] {
        assert_eq!(ask(&mut lane, Operation::Read(level), "!?"), []);
    }
    let asked = ask(&mut lane, Operation::Read(ReadLevel::Linearizable), "*?");
    assert_eq!(asked, [(2, Purpose::Read, "*?".to_owned())]);
}
