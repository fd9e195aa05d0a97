//! `ionian up` that is killed at any of its writes.

use crate::blocked::library;
use crate::cluster::{Cluster, Directory, deployment, eventually, ionian, run, text, up_refuses};
use ionian_runtime::has_taken_part;
use nix::sys::signal::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;

/// Ends `ionian up` at the operation with this number that changes a file or a directory; of what
/// it writes then one half is written.
const KILLS: &str = r#"
use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::mem::{ManuallyDrop, transmute};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn _exit(code: c_int) -> !;
}

/// How many operations are left, and one more; 0 if it is not `ionian up`.
static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

fn ends_here() -> bool {
    if LEFT.load(Ordering::Relaxed) == usize::MAX {
        let is_up = std::env::args().nth(1).is_some_and(|word| word == "up");
        let at = std::env::var("KILLED_AT").ok().filter(|_| is_up);
        LEFT.store(at.map_or(0, |at| at.parse().unwrap()), Ordering::Relaxed);
    }
    let left = LEFT.load(Ordering::Relaxed);
    LEFT.store(left.saturating_sub(1), Ordering::Relaxed);
    left == 1
}

fn end() -> ! {
    unsafe { _exit(99) }
}

macro_rules! next {
    ($name:literal, $kind:ty) => {{
        // The next library that has it.
        let next = unsafe { dlsym(-1_isize as *mut c_void, $name.as_ptr()) };
        unsafe { transmute::<*mut c_void, $kind>(next) }
    }};
}

#[unsafe(no_mangle)]
pub extern "C" fn mkdir(path: *const c_char, mode: u32) -> c_int {
    if ends_here() { end() }
    next!(c"mkdir", extern "C" fn(*const c_char, u32) -> c_int)(path, mode)
}

#[unsafe(no_mangle)]
pub extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    if ends_here() { end() }
    next!(c"rename", extern "C" fn(*const c_char, *const c_char) -> c_int)(from, to)
}

#[unsafe(no_mangle)]
pub extern "C" fn open64(path: *const c_char, flags: c_int, mode: u32) -> c_int {
    // O_CREAT
    if flags & 0o100 != 0 && ends_here() { end() }
    next!(c"open64", extern "C" fn(*const c_char, c_int, u32) -> c_int)(path, flags, mode)
}

#[unsafe(no_mangle)]
pub extern "C" fn write(file: c_int, bytes: *const c_void, length: usize) -> isize {
    let next = next!(c"write", extern "C" fn(c_int, *const c_void, usize) -> isize);
    let is_file = || {
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(file) });
        file.metadata().is_ok_and(|it| it.is_file())
    };
    if file > 2 && is_file() && ends_here() {
        next(file, bytes, length / 2);
        end()
    }
    next(file, bytes, length)
}
"#;

/// Kills the first `ionian up` at each of its writes until its nodes serve. Each time it starts
/// when it is repeated, and what its nodes have stored by then is not replaced by a new cluster.
fn up_starts_whenever_it_was_killed(preset: &str, flags: &[&str]) {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| library("kills", KILLS));
    let deployment = deployment(preset, &["durability=disk"]);
    for at in 1.. {
        let directory = Directory::new();
        let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
        let [given, data, nodes, aside] = ["given.toml", "data", "data/nodes", "aside"].map(path);
        fs::write(&given, deployment.to_toml()).unwrap();
        let mut up = ionian()
            .args(["up", &given, "--no-http", "--data", &data])
            .args(flags)
            .env("LD_PRELOAD", library)
            .env("KILLED_AT", at.to_string())
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        let status = || run(&["status", "--data", &data]).status.success();
        let ended = eventually("it is killed or ready", || match up.try_wait().unwrap() {
            None if status() => Some(None),
            ended => ended.map(Some),
        });
        match ended {
            Some(ended) => assert_eq!(ended.code(), Some(99), "{at}"),
            None => up.kill().and_then(|()| up.wait()).map(drop).unwrap(),
        }
        eventually("its nodes have stopped", || no_process_names(&data));
        let took_part = deployment.nodes.iter().any(|node| {
            let place = directory.path("data/nodes").join(&node.name);
            has_taken_part(&place)
        });
        if took_part {
            fs::rename(&nodes, &aside).unwrap();
            up_refuses(&data, "nodes are missing");
            assert!(!fs::exists(&nodes).unwrap(), "{at}");
            fs::rename(&aside, &nodes).unwrap();
        }
        let mut cluster = Cluster::start_in_with(directory, deployment.clone(), flags);
        assert!(
            !cluster.stderr().contains("is lost"),
            "{at}: {}",
            cluster.stderr()
        );
        cluster.stop(Signal::SIGTERM);
        if ended.is_none() {
            assert!(took_part, "{at}");
            println!("killed at {at} writes");
            return;
        }
    }
}

/// Something if no command line of any process has this word.
fn no_process_names(word: &str) -> Option<()> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let names = |it: fs::DirEntry| {
        let line = fs::read(it.path().join("cmdline")).unwrap_or_default();
        text(&line).split('\0').any(|it| it == word)
    };
    (!processes.into_iter().any(names)).then_some(())
}

#[test]
fn up_that_was_killed_at_any_write_starts_when_it_is_repeated() {
    up_starts_whenever_it_was_killed("colocated", &[]);
}

#[test]
fn up_with_tls_that_was_killed_at_any_write_starts_when_it_is_repeated() {
    up_starts_whenever_it_was_killed("unreplicated", &["--tls"]);
}
