//! How fast the log is on this disk: closed loops of n clients with one record in flight each,
//! served by one thread that plays an event loop, with some work a record. Latencies are from a
//! record's arrival until it is durable.
//!
//! ```text
//! cargo run --release -p ionian-wal --example wal_bench -- DIRECTORY [SECONDS] [WORK_US] [SLOWER_US]
//! ```
//!
//! SLOWER_US is added to every sync, to play a slower disk.

use ionian_wal::storage::{Disk, Storage, StorageFile};
use ionian_wal::{Flush, HandOff, Options, Wal};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

struct Setting {
    bytes: usize,
    in_flight: usize,
    /// How many records are taken in before the log is flushed. A loop that syncs itself does best
    /// to take in all that is there; one that always hands off, to give the thread something to do
    /// soon.
    burst: usize,
    hand_off: HandOff,
    work: Duration,
    slower: Duration,
    time: Duration,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments
        .next()
        .expect("usage: wal_bench DIRECTORY [SECONDS] [WORK_US] [SLOWER_US]");
    let mut number = |default| {
        arguments
            .next()
            .map_or(default, |text| text.parse::<f64>().expect("a number"))
    };
    let (seconds, work_us, slower_us) = (number(2.0), number(2.0), number(0.0));
    println!("{seconds} s each, {work_us} us of work a record, syncs {slower_us} us slower");
    println!(
        "{:>6} {:>9} {:>9} {:>10} {:>12} {:>8} {:>8}",
        "bytes", "in flight", "sync", "records/s", "records/sync", "p50 us", "p99 us"
    );
    for bytes in [128, 6500] {
        for in_flight in [1, 16, 128, 1024] {
            for hand_off in [
                HandOff::Never,
                HandOff::From(1),
                Options::default().hand_off,
            ] {
                let work = Duration::from_nanos((work_us * 1e3) as u64);
                let slower = Duration::from_nanos((slower_us * 1e3) as u64);
                let burst = if hand_off == HandOff::From(1) {
                    256
                } else {
                    usize::MAX
                };
                let time = Duration::from_secs_f64(seconds);
                let setting = Setting {
                    bytes,
                    in_flight,
                    burst,
                    hand_off,
                    work,
                    slower,
                    time,
                };
                run(Path::new(&directory), &setting);
            }
        }
    }
}

fn run(parent: &Path, setting: &Setting) {
    let path = parent.join("wal_bench");
    // What an interrupted run has left.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("can make the directory");
    let (notify, completed) = channel();
    let on_complete = Box::new(move || notify.send(()).unwrap_or(()));
    let options = Options {
        hand_off: setting.hand_off,
        spares: 4,
        on_complete,
        ..Options::default()
    };
    let (mut wal, _) =
        Wal::open_in(SlowDisk(setting.slower), &path, options, b"bench").expect("can open the log");
    warm_up(&mut wal);
    let (mut latencies, syncs) = measure(&mut wal, &completed, setting);
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_micros();
    let rate = latencies.len() as f64 / setting.time.as_secs_f64();
    let mode = match setting.hand_off {
        HandOff::From(least) => format!("from {least}"),
        HandOff::Never => "inline".to_owned(),
    };
    let group = latencies.len() as f64 / syncs as f64;
    let (bytes, in_flight) = (setting.bytes, setting.in_flight);
    println!(
        "{bytes:>6} {in_flight:>9} {mode:>9} {rate:>10.0} {group:>12.1} {:>8} {:>8}",
        at(0.5),
        at(0.99)
    );
    drop(wal);
    std::fs::remove_dir_all(&path).expect("can remove the directory");
}

/// Fills segments and truncates them, so that what is measured is a log that has run for a while.
fn warm_up(wal: &mut Wal<SlowDisk>) {
    for _ in 0..6 * 16 {
        let lsn = wal.append(0, 0, &vec![1; 1 << 20]);
        wal.sync().expect("can sync");
        wal.truncate_below(lsn).expect("can truncate");
    }
}

/// Clients come back 50 to 300 us after they were answered, as over a network.
fn measure(
    wal: &mut Wal<SlowDisk>,
    completed: &Receiver<()>,
    setting: &Setting,
) -> (Vec<Duration>, u64) {
    let record = vec![7; setting.bytes];
    let mut latencies = Vec::new();
    let mut under_way: VecDeque<(u64, Instant)> = VecDeque::new();
    let (began, syncs) = (Instant::now(), wal.syncs());
    let mut arrivals: BinaryHeap<Reverse<Instant>> = vec![Reverse(began); setting.in_flight].into();
    let mut random = 1u64;
    while began.elapsed() < setting.time {
        let mut burst = 0;
        while let Some(&Reverse(arrived)) = arrivals
            .peek()
            .filter(|arrival| arrival.0 <= Instant::now())
        {
            arrivals.pop();
            let now = Instant::now();
            while now.elapsed() < setting.work {}
            under_way.push_back((wal.append(0, 0, &record), arrived));
            burst += 1;
            if burst == setting.burst {
                break;
            }
        }
        wal.poll_completed().expect("can sync");
        if burst > 0 {
            let _: Flush = wal.flush().expect("can flush");
        }
        while let Some(&(lsn, since)) = under_way.front().filter(|(lsn, _)| *lsn <= wal.durable()) {
            latencies.push(since.elapsed());
            under_way.pop_front();
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            arrivals.push(Reverse(
                Instant::now() + Duration::from_micros(50 + (random >> 33) % 250),
            ));
            if lsn % 4096 == 0 {
                wal.truncate_below(lsn).expect("can truncate");
            }
        }
        let next = arrivals.peek().map_or(Duration::from_secs(1), |arrival| {
            arrival.0.saturating_duration_since(Instant::now())
        });
        if !next.is_zero() && completed.recv_timeout(next).is_ok() {
            while completed.try_recv().is_ok() {}
        }
    }
    (latencies, wal.syncs() - syncs)
}

/// The disk, but slower.
#[derive(Clone)]
struct SlowDisk(Duration);

struct SlowFile(File, Duration);

impl Storage for SlowDisk {
    type File = SlowFile;

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        Disk.list(directory)
    }
    fn create(&self, path: &Path) -> io::Result<SlowFile> {
        Ok(SlowFile(Disk.create(path)?, self.0))
    }
    fn open(&self, path: &Path) -> io::Result<SlowFile> {
        Ok(SlowFile(Disk.open(path)?, self.0))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        Disk.remove(path)
    }
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        Disk.sync_directory(directory)
    }
    fn nonce(&self) -> u64 {
        Disk.nonce()
    }
}

impl StorageFile for SlowFile {
    fn len(&self) -> io::Result<u64> {
        StorageFile::len(&self.0)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        StorageFile::read_at(&self.0, offset, buffer)
    }
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        StorageFile::write_at(&mut self.0, offset, bytes)
    }
    fn sync_data(&mut self) -> io::Result<()> {
        if !self.1.is_zero() {
            std::thread::sleep(self.1);
        }
        StorageFile::sync_data(&mut self.0)
    }
    fn sync_all(&mut self) -> io::Result<()> {
        StorageFile::sync_all(&mut self.0)
    }
}
