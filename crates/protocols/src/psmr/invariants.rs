//! What must hold over all instances at once: in each group what holds in MultiPaxos.

use super::config::Config;
use super::{Instance, PSmr};
use crate::multipaxos;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol;

/// See the top of this file.
pub struct Invariants {
    groups: Vec<multipaxos::invariants::Invariants>,
}

impl protocol::Invariants<PSmr> for Invariants {
    fn new(config: &Arc<Config>) -> Self {
        let groups = config.groups().iter().map(protocol::Invariants::new);
        Invariants {
            groups: groups.collect(),
        }
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        for (group, member) in instance.groups.each() {
            let check = self.groups[group].check(address, member);
            check.map_err(|fault| format!("group {group}: {fault}"))?;
        }
        Ok(())
    }

    fn reconfigured(&mut self, config: &Arc<Config>) {
        for (group, config) in self.groups.iter_mut().zip(config.groups()) {
            group.reconfigured(config);
        }
    }

    fn crashed(&mut self, address: Address) {
        for group in &mut self.groups {
            protocol::Invariants::crashed(group, address);
        }
    }

    fn awaited(&self, instances: &[(Address, &Instance)]) -> Option<String> {
        self.groups.iter().enumerate().find_map(|(group, all)| {
            let members = instances.iter().filter_map(|(address, instance)| {
                Some((*address, &instance.groups.get(group)?.instance))
            });
            let awaited = all.awaited(&members.collect::<Vec<_>>())?;
            Some(format!("group {group}: {awaited}"))
        })
    }
}
