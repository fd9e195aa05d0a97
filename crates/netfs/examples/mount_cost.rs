//! What a request through a mount costs: random reads and writes of 1 KiB (P-SMR VII-H), each
//! thread in a file of its own, by 1 and 8 threads.
//!
//! ```text
//! mount_cost          mounts a state machine in this process: the cost of FUSE and the machine
//! mount_cost DIR      uses a directory that `ionian mount` has mounted
//! ```
//!
//! Files are opened with `O_DIRECT`, so that each read is a request; and once without, where the
//! kernel may answer from its pages after it has asked for the attributes.

use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_netfs::{Answer, Mount, NetFs, Options, Transport, Unanswered};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 4 << 20;
const REQUEST_BYTES: usize = 1024;
const TIME: Duration = Duration::from_secs(3);

/// A state machine in this process.
struct Local {
    machine: Mutex<NetFs>,
    started: Instant,
}

impl Local {
    fn now(&self) -> Timestamp {
        Timestamp(self.started.elapsed().as_millis() as u64)
    }
}

impl Transport for Local {
    fn command(&self, payload: &[u8]) -> Result<Answer, Unanswered> {
        let mut bytes = Vec::new();
        let mut machine = self.machine.lock().map_err(|_| Unanswered)?;
        machine.apply(self.now(), payload, &mut bytes);
        Ok(Answer {
            bytes,
            is_first: true,
        })
    }

    fn query(&self, payload: &[u8]) -> Result<Answer, Unanswered> {
        let mut bytes = Vec::new();
        let machine = self.machine.lock().map_err(|_| Unanswered)?;
        let answered = machine.read(self.now(), payload, &mut bytes);
        answered.map_err(|_| Unanswered)?;
        Ok(Answer {
            bytes,
            is_first: true,
        })
    }

    fn payload_bytes(&self) -> usize {
        ionian_netfs::MAX_CONTENT + 1024
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(directory) = std::env::args_os().nth(1) {
        return measure(Path::new(&directory));
    }
    let directory = std::env::temp_dir().join(format!("mount-cost-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let local = Local {
        machine: Mutex::default(),
        started: Instant::now(),
    };
    let mount = Mount::new(&directory, Box::new(local), Options::default(), drop)?;
    let measured = measure(&directory);
    drop(mount);
    fs::remove_dir(&directory)?;
    measured
}

fn measure(directory: &Path) -> Result<(), Box<dyn Error>> {
    println!("request      threads  per second  mean us  99 % us");
    for (name, writes, flags) in [
        ("write", true, nix::libc::O_DIRECT),
        ("read", false, nix::libc::O_DIRECT),
        ("read, pages", false, 0),
    ] {
        for threads in [1, 8] {
            let mut times = load(directory, threads, writes, flags)?;
            times.sort_unstable();
            let total: Duration = times.iter().sum();
            let mean = total.as_micros() as f64 / times.len() as f64;
            let late = times[times.len() * 99 / 100].as_micros();
            let rate = times.len() as f64 / TIME.as_secs_f64();
            println!("{name:12} {threads:7}  {rate:10.0}  {mean:7.0}  {late:7}");
        }
    }
    Ok(())
}

/// How long each request takes.
fn load(
    directory: &Path,
    threads: usize,
    writes: bool,
    flags: i32,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let start = Arc::new(Barrier::new(threads));
    let mut running = Vec::new();
    for thread in 0..threads {
        let path = directory.join(format!("load-{thread}"));
        let file = prepare(&path, flags)?;
        let start = start.clone();
        running.push(std::thread::spawn(move || {
            requests(&file, thread, writes, &start)
        }));
    }
    let mut times = Vec::new();
    for thread in running {
        times.extend(thread.join().map_err(|_| "a thread panicked")??);
    }
    for thread in 0..threads {
        fs::remove_file(directory.join(format!("load-{thread}")))?;
    }
    Ok(times)
}

fn prepare(path: &PathBuf, flags: i32) -> io::Result<File> {
    let all: Vec<u8> = (0..FILE_BYTES).map(|at| ((at * at) >> 7) as u8).collect();
    fs::write(path, all)?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
}

fn requests(
    file: &File,
    thread: usize,
    writes: bool,
    start: &Barrier,
) -> io::Result<Vec<Duration>> {
    let mut bytes = vec![thread as u8; REQUEST_BYTES];
    let mut times = Vec::new();
    let mut random = thread as u64 + 1;
    start.wait();
    let end = Instant::now() + TIME;
    while Instant::now() < end {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let place = (random >> 33) % (FILE_BYTES / REQUEST_BYTES as u64);
        let offset = place * REQUEST_BYTES as u64;
        let began = Instant::now();
        match writes {
            true => file.write_all_at(&bytes, offset)?,
            false => file.read_exact_at(&mut bytes, offset)?,
        }
        times.push(began.elapsed());
    }
    Ok(times)
}
