//! `ionian completions`: what shells complete, with the names of the nodes of a cluster.

use crate::Arguments;
use crate::cluster_args::DATA;
use crate::data_paths::DataPaths;
use crate::source;
use anyhow::Result;
use clap::CommandFactory;
use ionian_deployment::{Configuration, Deployment};
use ionian_program::completions::{self, Given};
use ionian_program::tools;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(arguments: &completions::Arguments) -> Result<ExitCode> {
    // A word that still changes may become another command.
    let before = arguments.words().split_last().map_or(&[][..], |it| it.1);
    if tools::are_asked_for(before.iter().map(Into::into)) {
        match tools::start()? {}
    }
    Ok(arguments.print(Arguments::command(), nodes))
}

/// The nodes of the cluster, as the files say that the command line names. No node is asked,
/// because a completion must not wait.
fn nodes(given: &Given) -> Vec<String> {
    let file = given.get("config").or(given.get("file")).map(Path::new);
    let known = match (file, given.contains_key("at")) {
        (None, true) => None,
        (None, false) => {
            let data = Path::new(given.get("data").map_or(DATA, |it| it));
            let file = DataPaths::new(data).deployment();
            let known = || source::known_in(data).ok().flatten();
            (file.is_file() || !file.exists()).then(known).flatten()
        }
        // A pipe, here and above, may have no writer.
        (Some(file), _) => {
            let read = file.is_file().then(|| Deployment::load(file).ok());
            read.flatten().map(Configuration::founded)
        }
    };
    let nodes = known.iter().flat_map(Configuration::nodes);
    nodes.map(|(_, node)| node.name.clone()).collect()
}
