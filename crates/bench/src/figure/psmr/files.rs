//! psmr-8: NetFS, reads and writes of 1 KiB.

use super::super::drawing::panel::{Bar, Marks, Panel};
use super::super::point::Point;
use super::super::sheet::{Sheet, ratio};
use super::super::simulate::Bench;
use super::{System, best, notes, point, published, reached};
use anyhow::Result;
use bytes::Bytes;
use ionian_costs::Service;
use ionian_kernel::client::{Operation, ReadLevel};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_netfs::{
    Change, Command, Content, Limits, NetFs, Query, ROOT, Reply, Stamp, decode_answer,
};

const REQUEST_BYTES: usize = 1024;
const FILE_BYTES: usize = 16 * REQUEST_BYTES;
/// Each has a writer of its own. More than commands under way: no file is written twice at once.
const FILES: u64 = 8192;
const FEW_FILES: u64 = 512;
/// Commands under way.
const UNDER_WAY: usize = 4096;
/// As many as fit into the paper's 8 KB.
const BATCH: usize = 8;

/// The paper's thousands of reads and of writes per second (section VII-H).
const PAPER: [(System, usize, [f64; 2]); 3] = [
    (System::Smr, 1, [100.0, 110.0]),
    (System::SpSmr, 2, [116.0, 116.0]),
    (System::PSmr, 8, [309.0, 327.0]),
];

/// See the top of this file.
pub(in super::super) fn netfs(bench: &Bench) -> Result<Sheet> {
    let mut sheet = Sheet::empty(
        "NetFS: reads and writes of 1 KiB (ours projected)",
        [
            notes(bench),
            vec![format!(
                "Here {UNDER_WAY} commands are under way, of {FILES} files of {FILE_BYTES} bytes, in batches of up to {BATCH}. \
                 Our reads are linearizable and not in the log: one replica answers each."
            )],
        ]
        .concat(),
    );
    for (which, what) in ["reads", "writes"].into_iter().enumerate() {
        let (mut ours, mut bars) = (Vec::new(), Vec::new());
        for (colour, (system, _, paper)) in PAPER.into_iter().enumerate() {
            let mut points = Vec::new();
            for threads in bench.some(system.threads()) {
                points.push(peak(bench, (system, threads), what)?);
            }
            let it = best(&points);
            bars.push(Bar::plain(&it.series, colour, it.commands_per_second));
            let theirs = format!("{}\npaper", it.series);
            bars.push(Bar::plain(theirs, colour, paper[which] * 1e3));
            ours.push(it.clone());
            sheet.points.extend(points);
        }
        let rate = |at: usize| ours[at].commands_per_second;
        let said: Vec<String> = ours.iter().map(reached).collect();
        sheet.findings.push(format!(
            "{what}: {}; P-SMR {} SMR (the paper {}).",
            said.join("; "),
            ratio(rate(2), rate(0)),
            ratio(PAPER[2].2[which], PAPER[0].2[which])
        ));
        sheet.panels.push(Panel {
            title: what.to_owned(),
            x_label: "each with the best number of threads".to_owned(),
            y_label: "commands per second".to_owned(),
            marks: Marks::Bars(bars),
        });
        let theirs = PAPER.map(|(system, threads, paper)| {
            let series = format!("{}, {what}", system.name());
            published(&series, threads, paper[which] * 1e3)
        });
        sheet.points.extend(theirs);
    }
    Ok(sheet)
}

fn peak(bench: &Bench, (system, threads): (System, usize), what: &str) -> Result<Point> {
    let files = if bench.quick { FEW_FILES } else { FILES };
    let deployment = system.deployment(threads, BATCH)?;
    let service = || -> Box<dyn Service> { Box::new(Files::new(files, what == "writes")) };
    let found = bench.parallel(&deployment, &format!("netfs, {what}"), &service, UNDER_WAY)?;
    Ok(point(
        &format!("{}, {what}", system.name()),
        threads,
        &found,
    ))
}

/// A file system with files of one size, and requests for them in turn.
struct Files {
    files: u64,
    writes: bool,
    content: Vec<u8>,
}

impl Files {
    fn new(files: u64, writes: bool) -> Self {
        Files {
            files,
            writes,
            // Of what compresses to a part of it.
            content: (0..FILE_BYTES).map(|at| ((at * at) >> 7) as u8).collect(),
        }
    }

    fn ino(&self, file: u64) -> u64 {
        ROOT + 1 + file
    }
}

/// A write by the only mount. No file is written again before it was answered.
fn write(ino: u64, number: u64, offset: usize, data: &[u8], grow: bool) -> Vec<u8> {
    let change = Change::Write {
        ino,
        offset: offset as u64,
        grow,
        append: false,
        data: Content::Plain(data),
    };
    encoded(number, change)
}

fn encoded(number: u64, change: Change<'_>) -> Vec<u8> {
    let stamp = Stamp {
        mount: 1,
        number,
        floor: number,
    };
    let mut bytes = Vec::new();
    Command::Change(stamp, change).encode(&mut bytes);
    bytes
}

impl Service for Files {
    fn machine(&self) -> Box<dyn StateMachine> {
        let mut machine = NetFs::with_limits(Limits {
            holds: self.files as usize,
            ..Limits::default()
        });
        let mut apply = |command: &[u8]| {
            let mut reply = Vec::new();
            machine.apply(Timestamp(1), command, &mut reply);
            match decode_answer(&reply) {
                Ok(Ok(reply)) => reply,
                refused => panic!("a file system that is prepared: {refused:?}"),
            }
        };
        let mut begin = Vec::new();
        Command::Begin { nonce: 1 }.encode(&mut begin);
        assert!(matches!(apply(&begin), Reply::Begun(1)));
        for file in 0..self.files {
            let name = file.to_string();
            let create = Change::Create {
                parent: ROOT,
                name: name.as_bytes(),
                mode: 0o100_644,
                uid: 0,
                gid: 0,
                rdev: 0,
                hold: true,
            };
            // Both are changes of the mount, whose numbers go up.
            let made = apply(&encoded(2 * file + 1, create));
            let ino = self.ino(file);
            assert!(matches!(made, Reply::Attr(attr) if attr.ino == ino));
            apply(&write(ino, 2 * file + 2, 0, &self.content, true));
        }
        Box::new(machine)
    }

    fn command(&self, number: usize) -> (Operation, Bytes) {
        let (round, file) = (number as u64 / self.files, number as u64 % self.files);
        let ino = self.ino(file);
        let offset = round as usize * REQUEST_BYTES % FILE_BYTES;
        if self.writes {
            let number = 2 * self.files + 1 + round;
            let data = &self.content[offset..offset + REQUEST_BYTES];
            let write = write(ino, number, offset, data, false);
            return (Operation::Write, write.into());
        }
        let mut bytes = Vec::new();
        let read = Query::Read {
            ino,
            offset: offset as u64,
            length: REQUEST_BYTES as u32,
        };
        read.encode(&mut bytes);
        (Operation::Read(ReadLevel::Linearizable), bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_executed() {
        for writes in [true, false] {
            let files = Files::new(10, writes);
            let mut machine = files.machine();
            for number in 0..100 {
                let (_, request) = files.command(number);
                let mut reply = Vec::new();
                match writes {
                    true => machine.apply(Timestamp(2), &request, &mut reply),
                    false => machine
                        .read(Timestamp(2), &request, &mut reply)
                        .expect("a read"),
                }
                let answer = decode_answer(&reply).expect("an answer");
                match answer.expect("no error") {
                    Reply::Attr(_) => assert!(writes),
                    Reply::Data(data) => assert_eq!((writes, data.len()), (false, REQUEST_BYTES)),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
