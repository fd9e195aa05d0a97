//! A shared log of three nodes in one process: two writers append, two readers subscribe.
//!
//! Run it with `cargo run --release --package ionian --example shared_log`.

use ionian::{Kv, SharedLog};

const ENTRIES: u64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = ionian::start::<Kv>("colocated")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let log = || SharedLog::new(cluster.client(), "events");
        // Each appends half of the entries and gets their positions.
        let writers = ["ada", "bob"].map(|name| {
            let log = log();
            tokio::spawn(async move {
                let mut positions = Vec::new();
                for number in 1..=ENTRIES / 2 {
                    positions.push(log.append(format!("{name} {number}")).await?);
                }
                Ok::<_, ionian::SharedLogError>(positions)
            })
        });
        // Each sees all entries, from the first position on, while they are appended.
        let readers = [0, 1].map(|_| {
            let mut entries = log().subscribe(1);
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while seen.len() < ENTRIES as usize {
                    seen.push(entries.next().await?);
                }
                Ok::<_, ionian::SharedLogError>(seen)
            })
        });
        let mut positions = Vec::new();
        for writer in writers {
            positions.extend(writer.await??);
        }
        positions.sort_unstable();
        assert!(
            positions.into_iter().eq(1..=ENTRIES),
            "no position is missing or given twice"
        );
        let [one, other] = readers;
        let seen = one.await??;
        assert!(seen.iter().map(|(position, _)| *position).eq(1..=ENTRIES));
        assert_eq!(
            other.await??,
            seen,
            "both see the same entries in the same order"
        );

        // Several entries at once have positions that follow one another.
        let last = log().append_all(["the", "end"]).await?;
        assert_eq!(last, [ENTRIES + 1, ENTRIES + 2]);
        println!("removed {} entries", log().trim(last[0]).await?);
        for (position, entry) in log().read(1, 10).await? {
            println!("{position}: {}", String::from_utf8_lossy(&entry));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_readers_see_what_two_writers_append() {
        super::main().expect("the example runs");
    }
}
