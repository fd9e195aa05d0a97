//! Whether a caller may be a peer of this node.

use super::hello::{Introduction, Text};
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::NodeId;
use ionian_kernel::level::Level;
use std::cmp::Ordering;

/// The cluster that a node belongs to. Nodes with different identities refuse each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the cluster.
    pub cluster: String,
    /// The digest of the deployment that the cluster was founded with.
    pub founding: u64,
    /// The name of the protocol.
    pub protocol: String,
    /// The digests that the founding deployment would have at each level, if it is known.
    pub at_levels: Vec<(Level, u64)>,
}

impl Identity {
    /// At which level a deployment was founded that is otherwise this one.
    fn level_of(&self, founding: u64) -> Option<Level> {
        let same = self.at_levels.iter().find(|it| it.1 == founding);
        same.map(|(level, _)| *level)
    }
}

/// Checks the introduction of a caller. The fields describe the node that was called.
pub(crate) struct HandshakeValidator<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) node: NodeId,
    pub(crate) name: &'a str,
    pub(crate) epoch: Epoch,
    /// The name of the node whose number the caller uses, if there is such a node.
    pub(crate) caller_name: Option<String>,
    /// The commands that this node leaves out.
    pub(crate) skips: &'a str,
}

/// Why a caller is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// For this reason, which the caller receives.
    Refused(String),
    /// It knows only an earlier membership; this node sends the present one.
    Outdated,
    /// It knows a later membership; this node receives it.
    Ahead,
}

impl HandshakeValidator<'_> {
    /// Checks the caller. The membership decides the numbers of nodes, so only nodes with the same
    /// membership can compare them.
    pub(crate) fn check(&self, caller: &Introduction) -> Result<(), Rejected> {
        self.check_cluster(caller).map_err(Rejected::Refused)?;
        match caller.epoch.cmp(&self.epoch) {
            Ordering::Less => Err(Rejected::Outdated),
            Ordering::Greater => Err(Rejected::Ahead),
            Ordering::Equal => self.check_numbers(caller).map_err(Rejected::Refused),
        }
    }

    fn check_cluster(&self, caller: &Introduction) -> Result<(), String> {
        let Identity {
            cluster,
            founding,
            protocol,
            ..
        } = self.identity;
        let Introduction {
            cluster: Text(theirs),
            protocol: Text(spoken),
            ..
        } = caller;
        if theirs != cluster {
            Err(format!(
                "this is cluster '{cluster}', you are of cluster '{theirs}'"
            ))
        } else if spoken != protocol {
            Err(format!(
                "this cluster runs protocol '{protocol}', you run '{spoken}'"
            ))
        } else if let (Some(ours), Some(theirs)) = (
            self.identity.level_of(*founding),
            self.identity.level_of(caller.founding),
        ) && ours != theirs
        {
            Err(format!(
                "this node's deployment file founds a cluster of level {ours}, yours one of level {theirs}, and they are \
                 otherwise the same: write the level of the cluster that there is, `level = N`, into the file of the \
                 node that is new (without it, the level is the highest of the node's program)"
            ))
        } else if caller.founding != *founding {
            Err(format!(
                "this node's deployment has the digest {founding:016x}, yours {:016x}: the two nodes were \
                 started from different deployment files",
                caller.founding
            ))
        } else {
            self.check_skips(&caller.skips.0)
        }
    }

    /// Replicas that leave out different commands would diverge, and nodes do not know which
    /// replicas receive their state.
    fn check_skips(&self, theirs: &str) -> Result<(), String> {
        if theirs == self.skips {
            return Ok(());
        }
        let shown = |list: &str| {
            if list.is_empty() {
                "none".to_owned()
            } else {
                list.to_owned()
            }
        };
        Err(format!(
            "commands left out by this node: {}; by yours: {}. Replicas that leave out different commands would not \
             stay equal: stop the node that lacks one, and run `ionian log skip COMMAND --data DIR` for it",
            shown(self.skips),
            shown(theirs)
        ))
    }

    fn check_numbers(&self, caller: &Introduction) -> Result<(), String> {
        let Introduction {
            sender,
            sender_name: Text(called),
            target,
            ..
        } = caller;
        let (node, name) = (self.node.0, self.name);
        if *target != node {
            return Err(format!(
                "this is node {node} ('{name}'), you look for node {target}: an address is wrong"
            ));
        } else if *sender == node {
            return Err(format!(
                "you say that you are node {node}, which is this node"
            ));
        } else if *sender < node {
            return Err(format!(
                "node {sender} waits for node {node} to dial, and does not dial it"
            ));
        }
        match self.caller_name.as_deref() {
            None => Err(format!("the deployment has no node {sender}")),
            Some(known) if !known.is_empty() && known != called => Err(format!(
                "you say that you are node {sender}, '{called}': that is '{known}'"
            )),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_with_a_lower_number_is_refused() {
        let reason = "node 0 waits for node 1 to dial, and does not dial it";
        assert_eq!(check(caller(0)), Err(Rejected::Refused(reason.into())));
        assert_eq!(check(caller(2)), Ok(()));
    }

    #[test]
    fn caller_that_leaves_out_other_commands_is_refused_with_both_lists() {
        let Err(Rejected::Refused(reason)) = check(Introduction {
            skips: "7/1:2/ab".into(),
            ..caller(2)
        }) else {
            panic!("it was not refused")
        };
        assert!(
            reason.contains("left out by this node: none; by yours: 7/1:2/ab."),
            "{reason}"
        );
    }

    #[test]
    fn node_numbers_are_checked_only_between_nodes_of_the_same_epoch() {
        assert_eq!(
            check(Introduction {
                epoch: Epoch(2),
                ..caller(0)
            }),
            Err(Rejected::Outdated)
        );
        assert_eq!(
            check(Introduction {
                epoch: Epoch(4),
                target: 9,
                ..caller(2)
            }),
            Err(Rejected::Ahead)
        );
        let other = Introduction {
            sender_name: "y".into(),
            ..caller(2)
        };
        let reason = "you say that you are node 2, 'y': that is 'x'";
        assert_eq!(check(other), Err(Rejected::Refused(reason.into())));
    }

    /// A file of an earlier release states no level, and its program founded clusters of the first.
    #[test]
    fn nodes_whose_files_differ_in_the_level_alone_learn_what_to_write() {
        let of_level_17 = Introduction {
            founding: 7,
            ..caller(2)
        };
        let Err(Rejected::Refused(why)) = check(of_level_17) else {
            panic!("it is refused");
        };
        let begin =
            "this node's deployment file founds a cluster of level 18, yours one of level 17,";
        assert!(
            why.starts_with(begin) && why.contains("`level = N`"),
            "{why}"
        );
        let of_another_file = Introduction {
            founding: 8,
            ..caller(2)
        };
        let Err(Rejected::Refused(why)) = check(of_another_file) else {
            panic!("it is refused");
        };
        assert!(
            why.ends_with("started from different deployment files"),
            "{why}"
        );
    }

    fn caller(sender: u16) -> Introduction {
        Introduction {
            cluster: "blue".into(),
            protocol: "toy".into(),
            founding: 1,
            epoch: Epoch(3),
            sender,
            sender_name: "x".into(),
            target: 1,
            directory: None,
            skips: "".into(),
        }
    }

    fn check(caller: Introduction) -> Result<(), Rejected> {
        let identity = Identity {
            cluster: "blue".into(),
            founding: 1,
            protocol: "toy".into(),
            at_levels: vec![(Level(17), 7), (Level(18), 1)],
        };
        let caller_name = (caller.sender < 3).then(|| "x".into());
        let (node, name, epoch) = (NodeId(1), "n1", Epoch(3));
        HandshakeValidator {
            identity: &identity,
            node,
            name,
            epoch,
            caller_name,
            skips: "",
        }
        .check(&caller)
    }
}
