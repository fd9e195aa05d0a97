//! `role-cost CASE BURSTS`: passes commands through a deployment and prints the number of commands,
//! and for each group of nodes the function that stands for it and its name. Run by `cargo xtask
//! costs` under callgrind, which counts the instructions of these functions. Without arguments,
//! lists the cases.

use ionian_costs::case::Case;
use ionian_costs::count::{ByFunction, FUNCTIONS, Uncounted};
use std::env;
use std::process::ExitCode;

/// Bursts before counting, in which everything that grows grows to its size.
const BEFORE: u32 = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (case, bursts) = match &arguments[..] {
        [] => {
            Case::all().for_each(|case| println!("{}", case.name()));
            return ExitCode::SUCCESS;
        }
        [name, bursts] => (Case::named(name), bursts.parse::<u32>()),
        _ => (None, "".parse()),
    };
    let (Some(case), Ok(bursts)) = (case, bursts) else {
        eprintln!("usage: role-cost [CASE BURSTS]");
        return ExitCode::from(2);
    };
    let mut run = case.begin();
    let groups = run.groups();
    assert!(groups.len() <= FUNCTIONS.len(), "a function for each group");
    (0..BEFORE).for_each(|_| run.burst(&mut Uncounted));
    let before = run.commands();
    (0..bursts).for_each(|_| run.burst(&mut ByFunction));
    println!("{}", run.commands() - before);
    for ((function, _), group) in FUNCTIONS.iter().zip(groups) {
        println!("{function} {group}");
    }
    ExitCode::SUCCESS
}
