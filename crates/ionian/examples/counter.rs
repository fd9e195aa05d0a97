//! A replicated counter: three nodes in one process, nothing written to disk.
//!
//! Run it with `cargo run --release --package ionian --example counter`.

use ionian::{Context, Machine, ReadLevel, Typed, TypedClient};
use serde::{Deserialize, Serialize};

#[derive(Default, Serialize, Deserialize)]
struct Counter(u64);

/// The command: to increment the counter.
#[derive(Serialize, Deserialize)]
struct Increment;

impl Machine for Counter {
    type Command = Increment;
    type Reply = u64;
    type Query = ();
    type Answer = u64;

    fn apply(&mut self, _: &Context, Increment: Increment) -> u64 {
        self.0 += 1;
        self.0
    }

    fn read(&self, _: &Context, (): ()) -> u64 {
        self.0
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = ionian::start::<Typed<Counter>>("colocated")?;
    let client = TypedClient::<Counter>::new(cluster.client());
    let count = || -> Result<(), ionian::TypedError> {
        // Each command executes exactly once, however often the cluster retries it.
        (0..250).try_for_each(|_| client.write_blocking(&Increment).map(drop))
    };
    std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(count));
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let count = client.read_blocking(&(), ReadLevel::Linearizable)?;
    println!("four threads have counted to {count}");
    assert_eq!(count, 1000);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn four_threads_count_to_a_thousand() {
        super::main().expect("the example runs");
    }
}
