//! Removes a part of a log while its node is down: a file, or the end of one. Everything is
//! restored later.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The lost part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The oldest file that is needed.
    First,
    /// The newest file.
    Last,
    /// The end of the newest file.
    End,
    /// The file that records how far the log reaches.
    Extent,
}

impl Loss {
    pub(crate) const ALL: [Loss; 4] = [Loss::First, Loss::Last, Loss::End, Loss::Extent];
}

/// The error of a node whose log lacks a part.
pub(crate) const REFUSAL: &str = "A crash cannot have done this";

/// A removed part: where it is kept, and where it belongs.
pub(crate) struct Taken {
    kept: PathBuf,
    place: PathBuf,
}

/// Removes the part from the log of a stopped node, and keeps it in `aside`. `None` if there is no
/// log yet.
pub(crate) fn take(loss: Loss, log: &Path, aside: &Path) -> Result<Option<Taken>> {
    let Some((first, last)) = reaches(&log.join("extent"))? else {
        return Ok(None);
    };
    let segment = |number: u64| log.join(format!("{number:016x}.wal"));
    let place = match loss {
        Loss::First => segment(first),
        Loss::Last | Loss::End => segment(last),
        Loss::Extent => log.join("extent"),
    };
    fs::create_dir_all(aside)?;
    let kept = aside.join("kept");
    let lost = || format!("cannot take {} away", place.display());
    if loss == Loss::End {
        fs::copy(&place, &kept).with_context(lost)?;
        let file = File::options().write(true).open(&place)?;
        file.set_len(file.metadata()?.len() / 2)?;
    } else {
        fs::rename(&place, &kept).with_context(lost)?;
    }
    Ok(Some(Taken { kept, place }))
}

impl Taken {
    /// Restores the part.
    pub(crate) fn put_back(self) -> Result<()> {
        fs::rename(&self.kept, &self.place)
            .with_context(|| format!("cannot put {} back", self.place.display()))
    }
}

/// The oldest and the newest segment that a log must have, by the newest of the three slots of its
/// `extent` (see crates/wal/src/extent.rs); nothing when it must have none.
fn reaches(extent: &Path) -> Result<Option<(u64, u64)>> {
    if !extent.exists() {
        return Ok(None);
    }
    let file = File::open(extent)?;
    let mut newest = None;
    for slot in 0..3 {
        let mut bytes = [0; 40];
        if file.read_exact_at(&mut bytes, slot * 4096).is_err() || !bytes.starts_with(b"IONEXTNT") {
            continue;
        }
        let long =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        newest = newest.max(Some((long(16), long(24), long(32))));
    }
    let (_, first, last) = newest.with_context(|| format!("{} says nothing", extent.display()))?;
    ensure!(
        last == 0 || first <= last,
        "{} says {first} to {last}",
        extent.display()
    );
    Ok((last > 0).then_some((first, last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of segments 3 to 5, by hand.
    fn log(directory: &Path) -> PathBuf {
        let log = directory.join("wal");
        fs::create_dir_all(&log).unwrap();
        let mut extent = vec![0; 2 * 4096 + 52];
        for (slot, generation, last) in [(0, 7u64, 5u64), (1, 5, 3), (2, 6, 4)] {
            let at = slot * 4096;
            extent[at..at + 8].copy_from_slice(b"IONEXTNT");
            for (offset, number) in [(16, generation), (24, 3), (32, last)] {
                extent[at + offset..at + offset + 8].copy_from_slice(&number.to_le_bytes());
            }
        }
        fs::write(log.join("extent"), extent).unwrap();
        (3..=5).for_each(|number| {
            fs::write(log.join(format!("{number:016x}.wal")), vec![number; 100]).unwrap()
        });
        log
    }

    fn content(log: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let paths = fs::read_dir(log)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut content: Vec<_> = paths
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        content.sort();
        content
    }

    #[test]
    fn what_a_log_loses_is_put_back_as_it_was() {
        let directory = std::env::temp_dir().join(format!("torture-loss-{}", std::process::id()));
        let (log, aside) = (log(&directory), directory.join("aside"));
        let whole = content(&log);
        let missing = ["0000000000000003.wal", "0000000000000005.wal", "", "extent"];
        for (loss, name) in Loss::ALL.into_iter().zip(missing) {
            let taken = take(loss, &log, &aside).unwrap().expect("there is a log");
            assert_ne!(content(&log), whole, "{loss:?}");
            match loss {
                Loss::End => assert_eq!(
                    fs::read(log.join("0000000000000005.wal")).unwrap(),
                    vec![5; 50]
                ),
                _ => assert!(!log.join(name).exists(), "{loss:?}"),
            }
            taken.put_back().unwrap();
            assert_eq!(content(&log), whole, "{loss:?}");
        }
        assert!(
            take(Loss::Last, &directory.join("none"), &aside)
                .unwrap()
                .is_none()
        );
        fs::remove_dir_all(directory).unwrap();
    }
}
