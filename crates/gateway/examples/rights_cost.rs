//! What the check of a right costs a user who may use all keys, counted by callgrind: the
//! instructions of [`is_allowed`], with the call, divided by the number of commands.
//!
//! ```sh
//! cargo build --release -p ionian-gateway --example rights_cost
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*is_allowed*' \
//!     target/release/examples/rights_cost
//! ```

use bytes::Bytes;
use ionian_machines::acl::{CommandId, DEFAULT, User, Users};
use ionian_machines::kv::command_info;
use std::hint::black_box;

const COMMANDS: usize = 1_000_000;

#[inline(never)]
fn is_allowed(user: &User, command: CommandId, words: &[Bytes]) -> bool {
    let keys = || command_info(words).map_or(Vec::new(), |info| info.keys(words));
    user.check(command, words, keys).is_ok()
}

fn main() {
    let users = Users::default();
    let user = users.get(DEFAULT).expect("it is there from the beginning");
    let words = ["SET", "key", "value"].map(Bytes::from);
    let command = CommandId::of("set");
    let allowed = (0..COMMANDS).filter(|_| is_allowed(black_box(user), command, black_box(&words)));
    println!("{} of {COMMANDS} commands are allowed", allowed.count());
}
