//! Arguments of `ionian plan`.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, value_parser};
use ionian_deployment::Durability;
use ionian_program::Level;
use ionian_protocols::registry;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Considers every protocol.
pub(super) const ANY: &str = "any";

/// Find the deployment with the fewest nodes that carries a load
///
/// Computes how busy each node of a deployment would be, from what messages cost, and adds nodes
/// where the limits do not hold. Prints what each group of nodes has to do, at which load the
/// deployment ends and why, what one node more or less would change, and what was assumed. With
/// --out it writes the deployment file. No servers are needed.
///
/// The costs were measured on the machine that the page names. Measure those of another machine
/// with `ionian bench demands`, or scale them with --speed.
#[derive(Debug, Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "Examples:\n  ionian plan --writes 20000 --reads 80000\n  \
    ionian plan --writes 200000 --connections 1000 --f 1 --out cluster.toml\n  \
    ionian plan --writes 5000 --reads 1e6 --level eventual --pipeline 16 --json\n  \
    ionian plan --example > plan.toml && ionian plan --file plan.toml\n\n\
    Exit codes: 0 a plan, 1 no deployment carries the load, 2 bad usage."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) asked: Asked,
    /// Take all of this from a file instead, in which the flags above are keys
    #[arg(long, value_name = "FILE", conflicts_with = "Asked")]
    pub(super) file: Option<PathBuf>,
    /// Print such a file
    #[arg(long, exclusive = true)]
    pub(super) example: bool,
    /// Write the deployment file; all its nodes are on one machine until their addresses are
    /// changed
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "out")]
    pub(super) force: bool,
    /// Client address of the first gateway in that file; the others use the next ports [default:
    /// 127.0.0.1:7379]
    #[arg(long, value_name = "ADDR", requires = "out")]
    pub(super) listen: Option<SocketAddr>,
    /// Port of the first node in that file; the others use the next ports
    #[arg(long, value_name = "PORT", default_value_t = 17400, requires = "out")]
    pub(super) node_port: u16,
    /// Print one JSON document instead of the page
    #[arg(long)]
    pub(super) json: bool,
}

/// What is asked of a plan, by flags or by the keys of a file.
#[derive(Debug, Args)]
pub(super) struct Asked {
    /// Writes (SET) a second, such as 20000, 20k or 1.5M
    #[arg(long, value_name = "PER_SECOND", default_value_t = 0.0, value_parser = per_second)]
    pub(super) writes: f64,
    /// Reads (GET) a second, in the same forms
    #[arg(long, value_name = "PER_SECOND", default_value_t = 0.0, value_parser = per_second)]
    pub(super) reads: f64,
    /// How fresh reads must be
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "linearizable")]
    pub(super) level: Level,
    /// Bytes of a value, on average
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=65536))]
    pub(super) value_bytes: u32,
    /// Commands that a connection sends at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(super) pipeline: u32,
    /// Connections that wait for an answer at a time, of all clients; above 16384 as at 16384
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(super) connections: u32,
    /// How many nodes may fail
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=31))]
    pub(super) f: u32,
    /// Where nodes store what must survive a crash, for the file; what disks take is not in the
    /// model
    #[arg(long, value_enum, default_value = "disk")]
    pub(super) durability: Keeps,
    /// The protocol
    #[arg(long, value_name = "NAME", default_value = ANY, value_parser = protocols())]
    pub(super) protocol: String,
    /// How busy the event loop of a node may be, as a share of a processor; after f failures it may
    /// be 0.9
    #[arg(long, value_name = "SHARE", default_value_t = 0.6)]
    pub(super) headroom: f64,
    /// How many times as fast a processor is as the one that the demands were measured on
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(super) speed: f64,
    /// What messages cost, as `ionian bench demands` writes it [default: what comes with Ionian]
    #[arg(long, value_name = "FILE")]
    pub(super) demands: Option<PathBuf>,
}

/// What survives the end of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Keeps {
    Disk,
    Memory,
}

impl Keeps {
    /// As a deployment file says it.
    pub(super) fn durability(self) -> Durability {
        match self {
            Keeps::Disk => Durability::Disk,
            Keeps::Memory => Durability::Memory,
        }
    }
}

fn per_second(text: &str) -> Result<f64, String> {
    let (digits, times) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |it| (it, 1e6)),
    };
    let number: Result<f64, _> = digits.parse();
    let number = number.map(|number| number * times);
    number.map_err(|_| "must be a number, such as 20000, 20k or 1.5M".to_owned())
}

fn protocols() -> PossibleValuesParser {
    PossibleValuesParser::new([ANY].iter().chain(registry::NAMES))
}

#[cfg(test)]
mod tests {
    use super::per_second;

    #[test]
    fn rates_have_units() {
        let of = ["100k", "1.5M", "2e4", "7"].map(|text| per_second(text).unwrap());
        assert_eq!(of, [100_000.0, 1_500_000.0, 20_000.0, 7.0]);
        assert!(per_second("fast").unwrap_err().contains("20k"));
    }
}
