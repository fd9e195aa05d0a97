//! `ionian config`: writing and checking deployment files.

mod arguments;

use crate::output::{self, say};
use crate::protocols;
use crate::source;
use crate::waiting;
use anyhow::{Context, Result, bail};
pub(crate) use arguments::Arguments;
use arguments::ConfigCommand;
use ionian_deployment::{Deployment, Distance, Network, Node, PresetOptions, presets};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        ConfigCommand::Init {
            preset,
            nodes,
            hosts,
            listen,
            node_port,
            overrides,
            force,
            file,
        } => {
            let options = PresetOptions {
                nodes: nodes.map(usize::from),
                hosts: hosts.clone(),
                ..source::preset_options(*listen, Some(*node_port))
            };
            let deployment = Deployment::preset(preset, &options)?.with_overrides(overrides)?;
            init(&deployment, *force, file)?;
        }
        ConfigCommand::Check { file, overrides } => check(file, overrides)?,
        ConfigCommand::Presets => {
            let width = presets().map(|(_, preset)| preset.name.len()).max();
            let width = width.unwrap_or(0);
            for (_, preset) in presets() {
                say!("{:<width$}  {}", preset.name, preset.about);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn init(deployment: &Deployment, force: bool, file: &Path) -> Result<()> {
    protocols::check(deployment)?;
    write(file, &deployment.to_toml(), force)?;
    if file == Path::new("-") {
        return Ok(());
    }
    let file = file.display();
    match deployment.machine.as_str() {
        protocols::MACHINE | ionian_netfs::NAME => {
            say!("wrote {file}; `ionian up {file}` starts it")
        }
        other => {
            say!("wrote {file}; its nodes need a program that contains the state machine {other:?}")
        }
    }
    Ok(())
}

/// Checks that a deployment file can be written: there is none, or it may be overwritten.
pub(crate) fn check_free(file: &Path, force: bool) -> Result<()> {
    let exists = file != Path::new("-") && file.symlink_metadata().is_ok();
    if exists && !force {
        bail!(
            "{} exists: name another file, or overwrite it with --force",
            file.display()
        );
    }
    Ok(())
}

/// Writes a deployment file; `-` is standard output.
pub(crate) fn write(file: &Path, text: &str, force: bool) -> Result<()> {
    if file == Path::new("-") {
        return std::io::stdout()
            .write_all(text.as_bytes())
            .context("cannot write to standard output");
    }
    let mut options = File::options();
    options.write(true).truncate(true);
    // Atomic: a file that appears meanwhile is not overwritten either.
    let opened = if force {
        options.create(true).open(file)
    } else {
        options.create_new(true).open(file)
    };
    if opened.is_err() {
        check_free(file, force)?;
    }
    let mut out = opened.with_context(|| format!("cannot write {}", file.display()))?;
    out.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))
}

fn check(file: &Path, overrides: &[String]) -> Result<()> {
    let deployment = waiting::for_deployment(file)?.with_overrides(overrides)?;
    protocols::check(&deployment).with_context(|| file.display().to_string())?;
    output::print(format_args!("{}", summary(&deployment)));
    for caution in protocols::cautions(&deployment)? {
        say!("! {caution}");
    }
    Ok(())
}

/// A summary of a deployment.
fn summary(deployment: &Deployment) -> String {
    let Deployment {
        cluster,
        protocol,
        machine,
        f,
        nodes,
        durability,
        level,
        ..
    } = deployment;
    let mut text = format!(
        "cluster {cluster}: {protocol} replicating {machine}, {} nodes\n",
        nodes.len()
    );
    text += &match f {
        0 => "f = 0: no node may fail\n".to_owned(),
        1 => "f = 1: any one node may fail\n".to_owned(),
        f => format!("f = {f}: any {f} nodes may fail\n"),
    };
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes {
        for (role, count) in node.instances() {
            let times = if count == 1 {
                String::new()
            } else {
                format!("*{count}")
            };
            places
                .entry(role)
                .or_default()
                .push(format!("{}{times}", node.name));
            *counts.entry(role).or_default() += count;
        }
    }
    if let Some(acceptors) = counts.get("acceptor") {
        text += &format!("quorums: {}\n", protocols::quorums(deployment, *acceptors));
    }
    text += &format!("durability = {}\nlevel = {level}\n", durability.name());
    for (role, places) in places {
        text += &format!("{:>3} {role:<13} on {}\n", counts[role], places.join(" "));
    }
    let gateways: Vec<&str> = nodes
        .iter()
        .filter_map(|node| node.gateway.as_deref())
        .collect();
    text += &format!(
        "clients connect to {}\n",
        if gateways.is_empty() {
            "none".into()
        } else {
            gateways.join(" ")
        }
    );
    text += &deployment
        .network
        .as_ref()
        .map_or_else(String::new, |network| distances(nodes, network));
    text + "TLS is off on each node that is started without --tls (docs/security.md)\n"
}

/// The nodes of each site, and the network between sites.
fn distances(nodes: &[Node], network: &Network) -> String {
    let mut sites: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        if let Some(site) = &node.site {
            sites.entry(site).or_default().push(&node.name);
        }
    }
    let mut text = String::new();
    for (site, here) in &sites {
        text += &format!("site {site}: {}\n", here.join(" "));
    }
    for (index, one) in sites.keys().enumerate() {
        for other in sites.keys().skip(index + 1) {
            let Distance {
                delay,
                bytes_per_second,
            } = network.distance(one, other);
            let rate = bytes_per_second
                .map_or_else(String::new, |bytes| format!(", {} Mbps", bytes / 125_000));
            text += &format!(
                "from {one} to {other} and back: {} ms each way{rate}\n",
                delay.as_millis()
            );
        }
    }
    text
}
