//! `ionian mount`: directories of a real cluster, through the kernel. Without /dev/fuse these tests
//! print why they do nothing.

mod operations;

use crate::cluster::{Cluster, LIMIT, eventually, ionian, text};
use ionian_kernel::random::Random;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use operations::{Operation, Side, listing};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, UNIX_EPOCH};

/// Whether this machine can mount; prints why not.
fn can_mount() -> bool {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match device {
        Ok(_) => true,
        Err(error) => {
            println!("skipped: /dev/fuse cannot be opened: {error}");
            false
        }
    }
}

/// A process of `ionian mount`. No mount is left behind when it is dropped.
struct Mounted {
    directory: PathBuf,
    child: Child,
}

impl Mounted {
    fn new(cluster: &Cluster, name: &str) -> Mounted {
        let directory = cluster.directory.path(name);
        fs::create_dir_all(&directory).unwrap();
        let mut child = ionian()
            .arg("mount")
            .arg(&directory)
            .args(["--data", &cluster.data()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        let mounted = Mounted { directory, child };
        let ready = lines.recv_timeout(LIMIT).expect("it is mounted");
        assert!(ready.starts_with("ready "), "{ready}");
        mounted
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        eventually("the mount ends", || self.child.try_wait().unwrap())
    }
}

/// Runs `ionian mount`, which must refuse. If it mounts instead it is killed.
fn refuses(cluster: &Cluster, directory: &Path, code: i32, says: &str) {
    let log = cluster.directory.path("refusal");
    let child = ionian()
        .arg("mount")
        .arg(directory)
        .args(["--data", &cluster.data()])
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut refused = Mounted {
        directory: directory.to_owned(),
        child,
    };
    let status = refused.wait();
    // There is nothing of it to unmount.
    let directory = std::mem::take(&mut refused.directory);
    drop(refused);
    let said = fs::read_to_string(log).unwrap();
    assert_eq!(status.code(), Some(code), "{}: {said}", directory.display());
    assert!(said.contains(says), "{said}");
}

/// The kernel of each mount has seen that the file is not there, and asks to make it.
#[test]
fn mounts_that_create_a_file_at_the_same_moment_all_open_it() {
    if !can_mount() {
        return;
    }
    let cluster = start();
    let mounts = [
        Mounted::new(&cluster, "one"),
        Mounted::new(&cluster, "other"),
    ];
    let turns = 0..40;
    let together = Barrier::new(2);
    let open = |mount: &Mounted, turn: u32| {
        let mut options = OpenOptions::new();
        let file = match turn % 2 {
            0 => options.append(true).create(true),
            _ => options.write(true).create(true).truncate(true),
        };
        together.wait();
        file.open(mount.path(&format!("file{turn}")))
    };
    let opened = std::thread::scope(|scope| {
        let threads = mounts.each_ref().map(|mount| {
            let (open, turns) = (&open, turns.clone());
            scope.spawn(move || turns.map(|turn| open(mount, turn)).collect::<Vec<_>>())
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let [ones, others] = opened;
    for (turn, files) in turns.zip(ones.into_iter().zip(others)) {
        for file in [files.0, files.1] {
            file.unwrap().write_all(b"x").unwrap();
        }
        let exclusive = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(mounts[0].path(&format!("file{turn}")));
        assert_eq!(errno(exclusive), Some(nix::libc::EEXIST));
    }
}

/// Detaches a mount, if there is one.
fn detach(directory: &Path) {
    let umount = Command::new("umount")
        .arg("-l")
        .arg(directory)
        .stderr(Stdio::null())
        .status();
    // It fails if nothing is mounted there.
    drop(umount);
}

impl Drop for Mounted {
    fn drop(&mut self) {
        detach(&self.directory);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start() -> Cluster {
    Cluster::start("colocated", &["machine=netfs"], &[])
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().map(|error| error.raw_os_error().unwrap_or(-1))
}

#[test]
fn a_mounted_directory_does_what_a_local_one_does_while_nodes_are_killed() {
    if !can_mount() {
        return;
    }
    // Writes and reads of different files are executed in parallel.
    let settings = ["machine=netfs", "options.workers=3"];
    let cluster = Cluster::start("colocated", &settings, &[]);
    let mounted = Mounted::new(&cluster, "mounted");
    let local = cluster.directory.path("local");
    fs::create_dir(&local).unwrap();
    let mut sides = [Side::new(&mounted.path("")), Side::new(&local)];
    for seed in 0..3 {
        let mut random = Random::new(seed);
        for step in 0..700 {
            if step == 150 {
                cluster.signal(cluster.leader(), Signal::SIGKILL);
            }
            if step == 450 {
                cluster.wait_until_whole();
                cluster.signal((cluster.leader() + 1) % 3, Signal::SIGKILL);
            }
            let operation = Operation::random(&mut random);
            let [there, here] = sides.each_mut().map(|side| side.execute(&operation));
            assert_eq!(there, here, "seed {seed}, step {step}: {operation:?}");
        }
        cluster.wait_until_whole();
        assert_eq!(listing(&mounted.path("")), listing(&local), "seed {seed}");
    }
}

#[test]
fn what_one_mount_changes_the_other_sees_at_once() {
    if !can_mount() {
        return;
    }
    let cluster = start();
    let (one, other) = (
        Mounted::new(&cluster, "one"),
        Mounted::new(&cluster, "other"),
    );
    let file = one.path("file");
    for turn in 0..30u32 {
        // The same length and, often, the same millisecond.
        fs::write(&file, turn.to_le_bytes()).unwrap();
        let read = fs::read(other.path("file")).unwrap();
        assert_eq!(read, turn.to_le_bytes(), "turn {turn}");
    }
    // A descriptor that is open sees it, too.
    let mut open = File::open(other.path("file")).unwrap();
    let writer = OpenOptions::new().write(true).open(&file).unwrap();
    for turn in 100..130u32 {
        writer.write_all_at(&turn.to_le_bytes(), 0).unwrap();
        let mut read = [0; 4];
        open.seek(SeekFrom::Start(0)).unwrap();
        open.read_exact(&mut read).unwrap();
        assert_eq!(u32::from_le_bytes(read), turn);
    }
    // Open here, unlinked there, read and written by the descriptor.
    let mut kept = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&file)
        .unwrap();
    fs::remove_file(other.path("file")).unwrap();
    assert_eq!(errno(fs::metadata(&file)), Some(nix::libc::ENOENT));
    kept.write_all(b"kept").unwrap();
    let mut read = [0; 4];
    kept.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"kept");
    drop(kept);
    // Appends of two mounts do not overwrite each other.
    let append = |mount: &Mounted| {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(mount.path("log"))
            .unwrap()
    };
    let (mut first, mut second) = (append(&one), append(&other));
    for turn in 0..20 {
        writeln!(first, "first {turn}").unwrap();
        writeln!(second, "second {turn}").unwrap();
    }
    assert_eq!(
        fs::read_to_string(one.path("log")).unwrap().lines().count(),
        40
    );
}

/// Whether POSIX allows the error for names that may be of files or directories, or missing.
fn is_allowed(error: &io::Error) -> bool {
    use nix::libc::{EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, ESTALE};
    let races = [
        EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, ESTALE,
    ];
    error
        .raw_os_error()
        .is_some_and(|errno| races.contains(&errno))
}

/// Changes names that other threads change, too.
fn race(root: &Path, random: &mut Random) -> io::Result<()> {
    let mut path = || {
        let directory = ["", "a", "b", "a/c"][random.below(4) as usize];
        root.join(directory)
            .join(["a", "b", "c", "x"][random.below(4) as usize])
    };
    let (one, other) = (path(), path());
    match random.below(8) {
        0 | 1 => fs::create_dir(one),
        2 | 3 => fs::write(one, vec![1; random.below(30_000) as usize]),
        4 => fs::rename(one, other),
        5 => fs::remove_file(one),
        6 => fs::hard_link(one, other),
        _ => {
            let mut open = OpenOptions::new().write(true).open(&one)?;
            fs::remove_file(&one)?;
            open.write_all(b"nameless")
        }
    }
}

#[test]
fn mounts_that_change_the_same_names_agree_and_leave_nothing_behind() {
    if !can_mount() {
        return;
    }
    let cluster = start();
    let mounts = [
        Mounted::new(&cluster, "one"),
        Mounted::new(&cluster, "other"),
    ];
    let used = |mount: &Mounted| {
        let space = nix::sys::statvfs::statvfs(&mount.directory).unwrap();
        space.blocks() - space.blocks_free()
    };
    let before = used(&mounts[0]);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let root = &mounts[thread % 2].directory;
            let mut random = Random::new(thread as u64);
            scope.spawn(move || {
                for _ in 0..200 {
                    if let Err(error) = race(root, &mut random) {
                        assert!(is_allowed(&error), "{error}");
                    }
                }
            });
        }
        cluster.signal(cluster.leader(), Signal::SIGKILL);
    });
    let [one, other] = mounts.each_ref().map(|mount| listing(&mount.path("")));
    assert!(!one.is_empty());
    assert_eq!(one, other);
    for entry in fs::read_dir(&mounts[1].directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    eventually("all room is free again", || {
        (used(&mounts[0]) == before).then_some(())
    });
}

#[test]
fn times_can_be_set_before_1970_and_after() {
    if !can_mount() {
        return;
    }
    let cluster = start();
    let mounted = Mounted::new(&cluster, "mounted");
    let file = File::create(mounted.path("file")).unwrap();
    let since = Duration::new(1, 500_000_000);
    let early = [
        since,
        Duration::from_nanos(1),
        Duration::from_secs(3),
        Duration::ZERO,
    ];
    for time in early
        .map(|before| UNIX_EPOCH - before)
        .into_iter()
        .chain([UNIX_EPOCH + since])
    {
        file.set_times(FileTimes::new().set_accessed(time).set_modified(time))
            .unwrap();
        let metadata = file.metadata().unwrap();
        let seen = (metadata.accessed().unwrap(), metadata.modified().unwrap());
        assert_eq!(seen, (time, time));
    }
}

#[test]
fn a_dead_cluster_gives_errors_and_open_files_survive_its_return() {
    if !can_mount() {
        return;
    }
    let mut cluster = start();
    let mounted = Mounted::new(&cluster, "mounted");
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .clone();
    let kept = options.open(mounted.path("kept")).unwrap();
    kept.write_all_at(b"before", 0).unwrap();
    fs::remove_file(mounted.path("kept")).unwrap();
    cluster.kill_all();
    // The first one waits for the cluster; the test would hang here.
    assert_eq!(
        errno(fs::metadata(mounted.path("kept"))),
        Some(nix::libc::EIO)
    );
    assert_eq!(errno(kept.write_all_at(b"x", 0)), Some(nix::libc::EIO));
    assert_eq!(
        errno(File::create(mounted.path("new"))),
        Some(nix::libc::EIO)
    );
    cluster.start_again(&[]);
    eventually("the cluster answers the mount", || {
        fs::metadata(mounted.path("")).ok()
    });
    kept.write_all_at(b"after!", 0).unwrap();
    let mut read = [0; 6];
    kept.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"after!");
}

#[test]
fn a_mount_ends_at_a_signal_and_can_be_mounted_again() {
    if !can_mount() {
        return;
    }
    let cluster = start();
    let mut mounted = Mounted::new(&cluster, "mounted");
    fs::write(mounted.path("file"), "content").unwrap();
    mounted.signal(Signal::SIGTERM);
    assert_eq!(mounted.wait().code(), Some(0));
    assert_eq!(fs::read_dir(&mounted.directory).unwrap().count(), 0);
    // In use: it is detached.
    let mut mounted = Mounted::new(&cluster, "mounted");
    let file = File::open(mounted.path("file")).unwrap();
    mounted.signal(Signal::SIGINT);
    assert_eq!(mounted.wait().code(), Some(0));
    assert_eq!(fs::read_dir(&mounted.directory).unwrap().count(), 0);
    drop(file);
    // Killed: the directory says so, and the command says what to do.
    let mut mounted = Mounted::new(&cluster, "mounted");
    let directory = mounted.directory.clone();
    refuses(&cluster, &directory, 1, "is a mount of netfs already");
    mounted.signal(Signal::SIGKILL);
    mounted.wait();
    let says = "an earlier mount has ended without unmounting; remove it: umount -l";
    refuses(&cluster, &directory, 1, says);
    detach(&mounted.directory);
    drop(mounted);
    let mounted = Mounted::new(&cluster, "mounted");
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"content");
}

#[test]
fn clients_of_the_wrong_kind_get_an_error_that_says_so() {
    let cluster = start();
    let gateway = cluster.deployment.nodes[0].gateway.clone().unwrap();
    let refused = ionian()
        .args(["exec", "--at", &gateway, "GET", "key"])
        .output()
        .unwrap();
    let said = text(&refused.stdout);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said.contains("replicates netfs, a file system: mount it"),
        "{said}"
    );
    let missing = cluster.directory.path("missing");
    if can_mount() {
        refuses(&cluster, &missing, 1, "No such file or directory");
    }
    let redis = Cluster::start("colocated", &[], &[]);
    let says = "machine = \"kv\": only a cluster of the machine \"netfs\" can be mounted";
    refuses(&redis, &missing, 2, says);
}
