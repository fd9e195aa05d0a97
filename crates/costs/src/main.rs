//! `role-cost CASE BURSTS`: drives one role and says how many commands have passed. Run by `cargo
//! xtask costs` under callgrind, which counts the instructions of `Stage::pass`. Without arguments,
//! lists the cases.

use ionian_costs::cases::{CASES, Case};
use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (case, bursts) = match &arguments[..] {
        [] => {
            CASES.iter().for_each(|case| println!("{}", case.name));
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
    for _ in 0..bursts {
        run.arrive();
        run.stage.pass();
    }
    println!("{}", run.commands());
    ExitCode::SUCCESS
}
