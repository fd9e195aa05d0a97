//! Canaries that the tests of messages find: those of `crates/protocols/tests/wire`, compiled for
//! the mutated protocols, pass without a canary and fail with it.

extern crate ionian_canaries as ionian_protocols;

mod caught;
#[path = "../../protocols/tests/wire/main.rs"]
mod wire;

use caught::caught;
use wire::{epochs, stored};

caught! {
    "multipaxos/any-epoch": epochs::forged_epochs_change_nothing_in_multipaxos,
    "multipaxos/any-epoch": epochs::forged_epochs_change_nothing_in_mencius,
    "multipaxos/any-epoch": epochs::forged_epochs_change_nothing_in_spaxos,
    "multipaxos/any-epoch": epochs::a_promise_of_an_unknown_epoch_on_disk_stops_one_acceptor_only,
    "multipaxos/other-form": stored::golden_records_of_released_programs_are_read_and_written_as_before,
    "multipaxos/any-epoch": epochs::one_forged_message_does_not_end_a_cluster,
}
