//! Random changes, on a machine, a divided one, one that is restored now and then, and the model.

use crate::model::{DIRECTORY, FILE, FILE_BYTES, Model, Object, SYMLINK};
use crate::support::{answer, apply, apply_divided, ask, snapshot};
use ionian_kernel::machine::{Frozen, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_netfs::{
    Change, Command, Content, Errno, Limits, NetFs, Query, ROOT, Rename, Reply, SetAttr, Stamp,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

const NAMES: [&[u8]; 4] = [b"a", b"b", b"\xff\xfe", b"A"];

/// A change; places and files are drawn from those that there were.
#[derive(Clone, Debug)]
enum Action {
    Create(Index, usize, u32, bool),
    Symlink(Index, usize, Vec<u8>),
    Link(Index, Index, usize),
    Unlink(Index, usize),
    Rmdir(Index, usize),
    Rename(Index, usize, Index, usize, Rename),
    Set(Index, Option<u32>, Option<u64>),
    Open(Index),
    Release(Index),
    Write(Index, u64, Vec<u8>, bool),
    Restore,
    Freeze,
    Piece,
}

fn action() -> impl Strategy<Value = Action> {
    let any_index = any::<Index>;
    let name = || 0..NAMES.len();
    let mode = prop_oneof![Just(FILE), Just(FILE), Just(DIRECTORY), Just(0o010_000)];
    let how = prop_oneof![
        3 => Just(Rename::Replace), 1 => Just(Rename::Keep), 1 => Just(Rename::Exchange)
    ];
    let bytes = prop_oneof![
        vec(any::<u8>(), 0..100),
        (any::<u8>(), 0..40_000usize).prop_map(|(byte, length)| vec![byte; length]),
    ];
    let offset = prop_oneof![0..100u64, 16_000..17_000u64, 0..FILE_BYTES + 1000];
    prop_oneof![
        6 => (any_index(), name(), mode, any::<bool>()).prop_map(|(dir, name, mode, hold)| {
            Action::Create(dir, name, mode, hold && mode == FILE)
        }),
        1 => (any_index(), name(), vec(1..255u8, 1..9)).prop_map(|(d, n, t)| Action::Symlink(d, n, t)),
        2 => (any_index(), any_index(), name()).prop_map(|(file, dir, n)| Action::Link(file, dir, n)),
        2 => (any_index(), name()).prop_map(|(dir, n)| Action::Unlink(dir, n)),
        2 => (any_index(), name()).prop_map(|(dir, n)| Action::Rmdir(dir, n)),
        4 => (any_index(), name(), any_index(), name(), how)
            .prop_map(|(a, n, b, m, how)| Action::Rename(a, n, b, m, how)),
        3 => (any_index(), proptest::option::of(0..0o10_000u32), proptest::option::of(offset.clone()))
            .prop_map(|(file, mode, size)| Action::Set(file, mode, size)),
        3 => any_index().prop_map(Action::Open),
        2 => any_index().prop_map(Action::Release),
        8 => (any_index(), offset, bytes, any::<bool>()).prop_map(|(f, o, b, a)| Action::Write(f, o, b, a)),
        1 => Just(Action::Restore),
        1 => Just(Action::Freeze),
        1 => Just(Action::Piece),
    ]
}

struct Taken(Box<dyn Frozen>, Vec<u8>, Vec<u8>);

/// What the actions are done to.
struct Trial {
    one: NetFs,
    divided: NetFs,
    other: NetFs,
    model: Model,
    inos: Vec<u64>,
    mounts: [(u64, u64); 2],
    now: u64,
    taken: Option<Taken>,
}

impl Trial {
    fn new(parts: usize) -> Trial {
        let limits = Limits {
            file_bytes: FILE_BYTES,
            ..Limits::default()
        };
        let [mut one, mut divided, mut other] = [(); 3].map(|()| NetFs::with_limits(limits));
        divided.parts().expect("it has parts").divide(parts);
        let mounts = [7, 8].map(|nonce| {
            let begun = [&mut one, &mut divided, &mut other]
                .map(|it| apply(it, 5, &Command::Begin { nonce }));
            match answer(&begun[0]) {
                Ok(Reply::Begun(id)) => (id, 1),
                other => panic!("{other:?}"),
            }
        });
        let (model, inos) = (Model::new(), vec![ROOT]);
        Trial {
            one,
            divided,
            other,
            model,
            inos,
            mounts,
            now: 5,
            taken: None,
        }
    }

    fn act(&mut self, mount: usize, passed: u64, action: &Action) {
        self.now += passed;
        let ino = |index: &Index| self.inos[index.index(self.inos.len())];
        let name = |name: &usize| NAMES[*name];
        let change = match action {
            Action::Create(dir, n, mode, hold) => Change::Create {
                parent: ino(dir),
                name: name(n),
                mode: mode | 0o640,
                uid: 1,
                gid: 2,
                rdev: 0,
                hold: *hold,
            },
            Action::Symlink(dir, n, target) => Change::Symlink {
                parent: ino(dir),
                name: name(n),
                target,
                uid: 1,
                gid: 2,
            },
            Action::Link(file, dir, n) => Change::Link {
                ino: ino(file),
                parent: ino(dir),
                name: name(n),
            },
            Action::Unlink(dir, n) => Change::Unlink {
                parent: ino(dir),
                name: name(n),
            },
            Action::Rmdir(dir, n) => Change::Rmdir {
                parent: ino(dir),
                name: name(n),
            },
            Action::Rename(a, n, b, m, how) => Change::Rename {
                from: (ino(a), name(n)),
                to: (ino(b), name(m)),
                how: *how,
            },
            Action::Set(file, mode, size) => {
                // Without the bit that directories pass on, which the model does not know.
                let mode = mode.map(|mode| mode & 0o5777);
                let set = SetAttr {
                    mode,
                    size: *size,
                    ..SetAttr::default()
                };
                Change::Set {
                    ino: ino(file),
                    set,
                }
            }
            Action::Open(file) => Change::Open { ino: ino(file) },
            Action::Release(file) => Change::Release {
                inos: vec![ino(file)],
            },
            Action::Write(file, offset, bytes, append) => Change::Write {
                ino: ino(file),
                offset: *offset,
                grow: false,
                append: *append,
                data: Content::Plain(bytes),
            },
            Action::Restore => {
                let mut restored = NetFs::default();
                restored
                    .restore(&snapshot(&self.one))
                    .expect("its own snapshot");
                // The limit of a file is that of this trial again.
                let limits = Limits {
                    file_bytes: FILE_BYTES,
                    ..Limits::default()
                };
                self.other = NetFs::with_limits(limits);
                self.other
                    .restore(&snapshot(&restored))
                    .expect("its own snapshot");
                return;
            }
            Action::Freeze => {
                self.taken = Some(Taken(self.one.freeze(), Vec::new(), snapshot(&self.one)));
                return;
            }
            Action::Piece => return self.write_pieces(),
        };
        self.change(mount, change);
    }

    fn write_pieces(&mut self) {
        if let Some(Taken(mut frozen, mut written, expected)) = self.taken.take() {
            while frozen.write_some(&mut written) {}
            assert!(written == expected, "the picture shows what came later");
        }
    }

    fn change(&mut self, mount: usize, mut change: Change<'_>) {
        let (id, number) = self.mounts[mount];
        self.mounts[mount].1 += 1;
        let stamp = Stamp {
            mount: id,
            number,
            floor: number,
        };
        let mut given = self.everywhere(stamp, &change);
        if let (Change::Write { grow, .. }, Err(Errno::NO_ROOM)) = (&mut change, &given) {
            *grow = true;
            given = self.everywhere(stamp, &change);
        }
        let new = match (&given, &change) {
            (Ok(Reply::Attr(attr)), Change::Create { .. } | Change::Symlink { .. }) => {
                self.inos.push(attr.ino);
                Some(attr.ino)
            }
            _ => None,
        };
        let expected = self.model.change(id, &change, new);
        assert_eq!(given.map(drop), expected, "{change:?}");
        // A copy is answered likewise, and changes nothing.
        let before = snapshot(&self.one);
        let again = self.everywhere(stamp, &change);
        assert_eq!(again.map(drop), expected, "a copy of {change:?}");
        assert!(
            snapshot(&self.one) == before,
            "a copy of {change:?} changes something"
        );
    }

    fn everywhere(&mut self, stamp: Stamp, change: &Change<'_>) -> Result<Reply, Errno> {
        let mut bytes = Vec::new();
        Command::Change(stamp, change.clone()).encode(&mut bytes);
        let [mut one, mut other] = [Vec::new(), Vec::new()];
        self.one.apply(Timestamp(self.now), &bytes, &mut one);
        self.other.apply(Timestamp(self.now), &bytes, &mut other);
        let divided = apply_divided(&mut self.divided, self.now, &bytes);
        assert_eq!(
            one, other,
            "a restored machine answers {change:?} differently"
        );
        assert_eq!(
            one, divided,
            "a divided machine answers {change:?} differently"
        );
        answer(&one)
    }

    /// Compares all that can be seen with the model.
    fn compare(&self) {
        for (ino, object) in &self.model.0 {
            let Ok(Reply::Attr(attr)) = ask(&self.one, Query::Attr { ino: *ino }) else {
                panic!("{ino} is gone")
            };
            assert_eq!(attr.mode, object.mode, "the mode of {ino}");
            assert_eq!(attr.links, self.model.links(*ino), "the links of {ino}");
            match object.kind() {
                FILE => self.compare_file(*ino, attr.size, object),
                DIRECTORY => self.compare_directory(*ino, object),
                SYMLINK => {
                    let target = ask(&self.one, Query::Readlink { ino: *ino });
                    assert_eq!(target, Ok(Reply::Data(object.content.clone())));
                }
                _ => {}
            }
        }
        for ino in self
            .inos
            .iter()
            .filter(|ino| !self.model.0.contains_key(ino))
        {
            assert_eq!(
                ask(&self.one, Query::Attr { ino: *ino }),
                Err(Errno::ESTALE)
            );
        }
        assert!(snapshot(&self.one) == snapshot(&self.other));
        assert!(snapshot(&self.one) == snapshot(&self.divided));
    }

    fn compare_file(&self, ino: u64, size: u64, object: &Object) {
        assert_eq!(size, object.content.len() as u64, "the size of {ino}");
        let mut content = Vec::new();
        loop {
            let (offset, length) = (content.len() as u64, 30_001);
            match ask(
                &self.one,
                Query::Read {
                    ino,
                    offset,
                    length,
                },
            ) {
                Ok(Reply::Data(piece)) if piece.is_empty() => break,
                Ok(Reply::Data(piece)) => content.extend(piece),
                other => panic!("{other:?}"),
            }
        }
        assert!(content == object.content, "the content of {ino}");
    }

    fn compare_directory(&self, ino: u64, object: &Object) {
        let mut listed = Vec::new();
        let mut after = 0;
        loop {
            let query = Query::List {
                ino,
                after,
                length: 40,
            };
            let Ok(Reply::Entries(entries)) = ask(&self.one, query) else {
                panic!("{ino} cannot be listed")
            };
            let Some(last) = entries.last() else { break };
            after = last.cookie;
            listed.extend(entries.into_iter().map(|entry| (entry.name, entry.ino)));
        }
        listed.sort();
        let expected: Vec<_> = object.entries.clone().into_iter().collect();
        assert_eq!(listed, expected, "the entries of {ino}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn the_machine_is_the_model_however_it_is_divided_restored_or_asked_twice(
        parts in 1..9usize,
        actions in vec((0..2usize, 0..3u64, action()), 1..160),
    ) {
        let mut trial = Trial::new(parts);
        for (mount, passed, action) in &actions {
            trial.act(*mount, *passed, action);
        }
        trial.compare();
        trial.write_pieces();
    }
}
