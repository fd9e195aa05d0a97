//! A hash that shows whether two nodes were started from equivalent files.

use crate::deployment::Deployment;
use crate::quorums;
use ionian_kernel::level::Level;
use std::fmt::Write;

impl Deployment {
    /// A hash of what nodes must agree on, for them to compare when they connect; the same on every
    /// machine and in every build that writes it this way.
    ///
    /// It covers the cluster's name, protocol, machine, f, quorums, durability, level, the
    /// shared options with their defaults, and the nodes in order with
    /// the instances on each, and their numbers where these are not what the order says. Durability
    /// counts, because what an acceptor's vote is worth to the others depends on it.
    ///
    /// It leaves out comments and layout of the text, the order of a node's roles, the options that
    /// concern one node alone, gateway addresses, the network with the nodes' sites, and the nodes'
    /// own addresses: one node may know another by another name than a third does, and a node that
    /// moved to another machine must be able to join before all the others have been told.
    pub fn digest(&self) -> u64 {
        fnv1a(self.agreed().as_bytes())
    }

    /// The settings on which nodes must agree, in a canonical form. Strings are quoted, so that a
    /// name cannot imitate the structure around it.
    fn agreed(&self) -> String {
        let mut text = String::new();
        let Deployment {
            cluster,
            protocol,
            machine,
            f,
            quorums,
            durability,
            level,
            options,
            nodes,
            network: _,
        } = self;
        let quorums = quorums::write(*quorums);
        let _ = writeln!(
            text,
            "{cluster:?} {protocol:?} {machine:?} {f} {quorums:?} {:?}",
            durability.name()
        );
        // Programs of the first level did not write it.
        if *level > Level::FIRST {
            let _ = writeln!(text, "level {level}");
        }
        for setting in self.settings().filter(|setting| setting.shared) {
            let _ = writeln!(text, "{} {}", setting.key, options.value(setting));
        }
        for node in nodes {
            let _ = write!(text, "{:?}", node.name);
            for (role, count) in node.instances() {
                let _ = write!(text, " {role:?} {count}");
            }
            text.push('\n');
        }
        text.extend(self.unusual_numbers());
        text
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_published_fnv1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
