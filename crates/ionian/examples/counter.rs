//! A replicated counter: three nodes in one process, nothing written to disk.
//!
//! Run it with `cargo run --example counter`.

use ionian::{NotARead, ReadLevel, RestoreError, StateMachine, Timestamp};

/// The service: `+` increments, `?` reads.
#[derive(Default)]
struct Counter(u64);

impl StateMachine for Counter {
    fn apply(&mut self, _now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        if command == b"+" {
            self.0 += 1;
        }
        reply.extend_from_slice(self.0.to_string().as_bytes());
    }

    fn read(&self, _now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        if query != b"?" {
            return Err(NotARead);
        }
        reply.extend_from_slice(self.0.to_string().as_bytes());
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let bytes = snapshot
            .try_into()
            .map_err(|_| RestoreError("a counter has 8 bytes".into()))?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = ionian::start::<Counter>("colocated")?;
    let workers: Vec<_> = (0..4).map(|_| (cluster.client(), 250)).collect();
    std::thread::scope(|scope| {
        for (client, times) in workers {
            // Each command executes exactly once, however often the lane retries it.
            scope.spawn(move || {
                (0..times)
                    .for_each(|_| drop(client.write_blocking("+").expect("a cluster that serves")))
            });
        }
    });
    let count = cluster
        .client()
        .read_blocking("?", ReadLevel::Linearizable)?;
    println!(
        "four threads have counted to {}",
        String::from_utf8_lossy(&count)
    );
    assert_eq!(count, "1000");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn four_threads_count_to_a_thousand() {
        super::main().expect("the example runs");
    }
}
