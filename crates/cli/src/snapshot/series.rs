//! `ionian snapshot save --into`: one backup more in a directory, of which the newest are kept.
//!
//! A file is removed only if this command has written it: its name and its head say the same
//! cluster and time. It is removed after the new backup is complete and checked, so a save that
//! fails leaves all that was there.

use super::arguments::Series;
use super::file::{self, Draft, Head, Origin};
use super::save::{head_of, save};
use crate::output::say;
use anyhow::{Context, Result, bail};
use ionian_deployment::Configuration;
use ionian_program::BadUsage;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SUFFIX: &str = ".snapshot";
/// The length of a time in a name, such as 20261128T021500Z.
const TIME_BYTES: usize = 16;
/// The alert rule `IonianBackupOld` names it.
const METRIC: &str = "ionian_backup_last_success_timestamp_seconds";

/// Checks the command line, before a node is asked.
pub(super) fn check(wanted: &Series) -> Result<()> {
    let directory = wanted.into.display();
    if !wanted.into.is_dir() {
        bail!("--into {directory}: there is no such directory");
    }
    let Some(metrics) = &wanted.metrics else {
        return Ok(());
    };
    let path = metrics.display();
    if metrics.extension().is_none_or(|it| it != "prom") {
        let why = format!(
            "--metrics {path}: must be a file name that ends with .prom, because node_exporter reads no other"
        );
        return Err(BadUsage(why).into());
    }
    if metrics.is_dir() || !parent(metrics).is_dir() {
        bail!("--metrics {path}: must be a file in a directory that exists");
    }
    Ok(())
}

fn parent(file: &Path) -> &Path {
    let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Adds a backup, and removes the oldest.
pub(super) async fn add(wanted: &Series, known: &Configuration) -> Result<()> {
    let cluster = &known.deployment.cluster;
    let backups = Backups::claim(&wanted.into, cluster)?;
    backups.remove_drafts()?;
    let head = head_of(known);
    let file = wanted.into.join(name(&head));
    if fs::exists(&file).with_context(|| format!("cannot look for {}", file.display()))? {
        bail!(
            "{} exists: there can be one backup a second",
            file.display()
        );
    }
    save(known, &head, &file, false).await?;
    // The backup is there, also if old ones cannot be removed.
    let noted = match &wanted.metrics {
        Some(path) => write_metrics(path, &head),
        None => Ok(()),
    };
    backups.remove_old(&file, wanted.keep.into())?;
    noted
}

/// The name of a backup with this head. Those of one cluster are in the order of their times.
fn name(head: &Head) -> String {
    let mut time = head.began();
    time.retain(|letter| letter != '-' && letter != ':');
    format!("{}-{time}{SUFFIX}", head.cluster)
}

/// The backups of one cluster in a directory. While this exists no other process adds one.
struct Backups {
    directory: PathBuf,
    cluster: String,
    _lock: Flock<File>,
}

impl Backups {
    fn claim(directory: &Path, cluster: &str) -> Result<Self> {
        let path = directory.join(format!("{cluster}.lock"));
        let mut open = File::options();
        let open = open.create(true).truncate(false).write(true);
        let file = open
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Backups {
                directory: directory.to_owned(),
                cluster: cluster.to_owned(),
                _lock: lock,
            }),
            Err((_, Errno::EWOULDBLOCK)) => bail!(
                "another backup of cluster {cluster} into {} is in progress",
                directory.display()
            ),
            Err((_, errno)) => bail!("cannot lock {}: {errno}", path.display()),
        }
    }

    /// The regular files whose names, without `suffix`, could be those of backups.
    fn named(&self, suffix: &str) -> Result<Vec<(String, PathBuf)>> {
        let context = || format!("cannot list {}", self.directory.display());
        let prefix = format!("{}-", self.cluster);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory).with_context(context)? {
            let entry = entry.with_context(context)?;
            let is_file = entry.file_type().with_context(context)?.is_file();
            let name = entry.file_name().into_string().unwrap_or_default();
            let Some(name) = name.strip_suffix(suffix) else {
                continue;
            };
            let after = name.strip_prefix(&prefix);
            let time = after.and_then(|it| it.strip_suffix(SUFFIX));
            if is_file && time.is_some_and(|it| it.len() == TIME_BYTES) {
                found.push((name.to_owned(), entry.path()));
            }
        }
        Ok(found)
    }

    /// Whether this command has begun to write the file under this name.
    fn is_own(&self, claimed: &str, path: &Path) -> bool {
        file::head(path).is_ok_and(|head| {
            head.origin == Origin::Saved && head.cluster == self.cluster && name(&head) == claimed
        })
    }

    /// Removes what a process that was killed has left.
    fn remove_drafts(&self) -> Result<()> {
        for (name, path) in self.named(Draft::SUFFIX)? {
            if self.is_own(&name, &path) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes all backups but `newest` and those before it, `keep` together.
    fn remove_old(&self, newest: &Path, keep: usize) -> Result<()> {
        let mut others = self.named("")?;
        others.retain(|(_, path)| path != newest);
        let (mut own, foreign): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|(name, path)| self.is_own(name, path));
        for (_, path) in foreign {
            say!(
                "{} is not the backup of this name, and stays",
                path.display()
            );
        }
        own.sort_by(|(one, _), (other, _)| other.cmp(one));
        for (_, path) in own.into_iter().skip(keep - 1) {
            remove(&path)?;
            say!("removed {}", path.display());
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Replaces the file at once: its reader sees the old one or the new one.
fn write_metrics(path: &Path, head: &Head) -> Result<()> {
    let text = format!(
        "# HELP {METRIC} When the last backup that is complete and intact began, in seconds since 1970.\n\
         # TYPE {METRIC} gauge\n\
         {METRIC}{{cluster=\"{}\"}} {}\n",
        head.cluster, head.time
    );
    // Another name than *.prom, so that it is not read.
    let mut draft = path.as_os_str().to_owned();
    draft.push(".tmp");
    let write = || {
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        // Its reader is another user.
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().with_context(|| {
        format!(
            "the backup is complete, but {} cannot be written",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::state;
    use ionian_kernel::level::Level;
    use std::os::unix::fs::symlink;

    /// 2026-11-28, 02:15:00.
    const TIME: u64 = 1_795_832_100;

    fn head(cluster: &str, time: u64) -> Head {
        let head = Head::new(cluster, "craq", "kv", "n1", Origin::Saved, Level::LATEST);
        Head { time, ..head }
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("ionian-series-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        /// A snapshot under this name.
        fn write(&self, name: &str, head: &Head) -> PathBuf {
            let path = self.0.join(name);
            file::write(&path, head, &state::empty("kv").snapshot()).unwrap();
            path
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.filter(|it| it != "blue.lock").collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_name_has_cluster_and_time() {
        assert_eq!(name(&head("blue", TIME)), "blue-20261128T021500Z.snapshot");
    }

    /// The clock went back before the newest was made.
    #[test]
    fn the_newest_backup_stays_and_the_oldest_of_the_others_go() {
        let folder = Folder::new("newest");
        let made = [TIME + 900, TIME + 60, TIME + 3, TIME].map(|time| {
            let head = head("blue", time);
            folder.write(&name(&head), &head)
        });
        let backups = Backups::claim(&folder.0, "blue").unwrap();
        backups.remove_old(&made[3], 3).unwrap();
        let left = made.clone().map(|path| path.exists());
        assert_eq!(left, [true, true, false, true]);
        backups.remove_old(&made[3], 3).unwrap();
        assert_eq!(folder.names().len(), 3);
        backups.remove_old(&made[3], 1).unwrap();
        assert_eq!(folder.names(), [name(&head("blue", TIME))]);
    }

    #[test]
    fn only_files_of_its_own_are_removed_or_counted() {
        let folder = Folder::new("own");
        let newest = head("blue", TIME + 60);
        let newest = folder.write(&name(&newest), &newest);
        let own = head("blue", TIME);
        let copied = Head {
            origin: Origin::Copied,
            ..own.clone()
        };
        let at = |seconds| name(&head("blue", TIME + seconds));
        folder.write("blue-monday.snapshot", &own);
        folder.write("monday.snapshot", &own);
        // The time of another, the origin of another, the cluster of another.
        folder.write(&at(1), &own);
        folder.write(&name(&copied), &copied);
        folder.write(&at(2), &head("red", TIME + 2));
        // A cluster whose name begins with the name of this one.
        let longer = head("blue-2", TIME);
        folder.write(&name(&longer), &longer);
        fs::write(folder.0.join(at(3)), "no snapshot").unwrap();
        fs::create_dir(folder.0.join(at(4))).unwrap();
        symlink(&newest, folder.0.join(at(5))).unwrap();
        fs::write(folder.0.join(at(6) + ".tmp"), "no draft").unwrap();
        let before = folder.names();
        assert_eq!(before.len(), 11);
        let backups = Backups::claim(&folder.0, "blue").unwrap();
        backups.remove_drafts().unwrap();
        backups.remove_old(&newest, 1).unwrap();
        assert_eq!(folder.names(), before);
        let draft = head("blue", TIME + 7);
        folder.write(&(name(&draft) + ".tmp"), &draft);
        backups.remove_drafts().unwrap();
        assert_eq!(folder.names(), before);
    }

    #[test]
    fn two_processes_do_not_write_into_one_directory() {
        let folder = Folder::new("lock");
        let first = Backups::claim(&folder.0, "blue").unwrap();
        let error = Backups::claim(&folder.0, "blue").err().unwrap().to_string();
        assert!(error.contains("another backup of cluster blue"), "{error}");
        Backups::claim(&folder.0, "red").unwrap();
        drop(first);
        Backups::claim(&folder.0, "blue").unwrap();
    }

    #[test]
    fn metrics_are_replaced_and_any_user_may_read_them() {
        let folder = Folder::new("metrics");
        let path = folder.0.join("backup.prom");
        fs::write(&path, "an earlier one").unwrap();
        write_metrics(&path, &head("blue", TIME)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let sample = format!("\n{METRIC}{{cluster=\"blue\"}} {TIME}\n");
        assert!(text.ends_with(&sample), "{text}");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(folder.names(), ["backup.prom"]);
        let error = write_metrics(&folder.0.join("none/backup.prom"), &head("blue", TIME));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the backup is complete, but"), "{error}");
    }
}
