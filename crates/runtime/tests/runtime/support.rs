//! What all tests need: a time limit, and a directory for files.
use ionian_kernel::client::Refusal;
use ionian_kernel::wire::{Reader, Wire, WireError};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for an event. Only a failing test waits so long.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Bytes that are their own encoding.
pub struct Raw(pub Vec<u8>);

impl Wire for Raw {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn decode(_: &mut Reader<'_>) -> Result<Self, WireError> {
        unreachable!("only written")
    }
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Tries until the cluster answers.
pub fn at_last<T>(mut attempt: impl FnMut() -> Result<T, Refusal>) -> T {
    let began = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(refusal) => assert!(began.elapsed() < DEADLINE, "timed out: {refusal}"),
        }
    }
}

/// A directory for one test, deleted with it.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "ionian-runtime-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
