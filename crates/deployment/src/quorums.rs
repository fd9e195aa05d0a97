//! The notation of quorum systems in files.

use crate::words::digits;
use ionian_kernel::id::MAX_INSTANCES;
use ionian_kernel::quorum_spec::QuorumSpec;

pub(crate) const ALLOWED: &str = "\"majority\", \"grid RxC\" (rows x columns, such as \"grid 2x3\", at most 64 acceptors), \
    \"groups N\" (N from 1 to 64) or \"counts R/W\" (any R read, any W write)";

pub(crate) fn parse(text: &str) -> Option<QuorumSpec> {
    // The limits prevent an overflow of the product, here and in the kernel.
    let count = |text| {
        digits(text)
            .map(|n| n as usize)
            .filter(|n| (1..=MAX_INSTANCES).contains(n))
    };
    match text.split_once(' ').unwrap_or((text, "")) {
        ("majority", "") => Some(QuorumSpec::Majority),
        ("grid", shape) => {
            let (rows, columns) = shape.split_once('x')?;
            let (rows, columns) = (count(rows)?, count(columns)?);
            (rows * columns <= MAX_INSTANCES).then_some(QuorumSpec::Grid { rows, columns })
        }
        ("counts", counts) => {
            let (read, write) = counts.split_once('/')?;
            Some(QuorumSpec::Counts {
                read: count(read)?,
                write: count(write)?,
            })
        }
        ("groups", groups) => Some(QuorumSpec::Groups {
            groups: count(groups)?,
        }),
        _ => None,
    }
}

pub(crate) fn write(spec: QuorumSpec) -> String {
    match spec {
        QuorumSpec::Majority => "majority".to_owned(),
        QuorumSpec::Grid { rows, columns } => format!("grid {rows}x{columns}"),
        QuorumSpec::Groups { groups } => format!("groups {groups}"),
        QuorumSpec::Counts { read, write } => format!("counts {read}/{write}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for spec in [
            QuorumSpec::Majority,
            QuorumSpec::Grid {
                rows: 2,
                columns: 3,
            },
            QuorumSpec::Groups { groups: 2 },
            QuorumSpec::Counts { read: 6, write: 20 },
        ] {
            assert_eq!(parse(&write(spec)), Some(spec));
        }
    }

    #[test]
    fn refuses_anything_else() {
        for text in [
            "",
            "Majority",
            "majority 3",
            "grid",
            "grid 2",
            "grid 2x",
            "grid 0x2",
            "grid 9x8",
            "grid 2x3x4",
            "counts",
            "counts 6",
            "counts 0/3",
            "counts 6/65",
            "counts 6/20/1",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in [
            "groups",
            "groups 0",
            "groups 65",
            "groups -1",
            "grid 99999999999999999999x2",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
