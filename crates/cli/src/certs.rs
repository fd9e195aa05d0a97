//! `ionian certs`: the certificates of a cluster.
//!
//! A directory has the certificate authority, and one directory for each certificate: `nodes/NAME`,
//! `operator`, `monitor`, `clients/NAME`. Each of these has the three files that `--tls` needs.

mod arguments;
mod report;

use crate::durable::write;
use crate::output::say_on_stderr;
use crate::waiting;
use anyhow::{Context, Result, bail};
pub(crate) use arguments::Arguments;
use arguments::CertsCommand;
use ionian_deployment::{Deployment, Node};
use ionian_program::output::say;
use ionian_tls::{
    Authority, Described, Hosts, Issued, Kind, Name, describe_file, is_near_end, now,
};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an authority is valid. Its exchange takes three steps, so it is long.
const AUTHORITY_DAYS: u32 = 3650;

/// How long a certificate is valid.
const DAYS: u32 = 90;

/// Whose certificates `certs create` makes besides those of nodes.
const PEOPLE: [Kind; 2] = [Kind::Operator, Kind::Monitor];

/// The name in the certificates of the operator and the monitor that `certs create` makes.
const DEFAULT_NAME: &str = "default";

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        CertsCommand::Create { config, out, days } => {
            let deployment = waiting::for_deployment(config)?;
            let authority = create(out, &deployment.cluster, *days)?;
            issue_nodes(out, &authority, &deployment, *days)?;
            say!(
                "wrote the certificates of {} nodes, an operator and a monitor to {}; keep {} off the \
                 nodes",
                deployment.nodes.len(),
                out.display(),
                out.join("ca.key").display()
            );
        }
        CertsCommand::Renew { config, out, days } => {
            let deployment = waiting::for_deployment(config)?;
            let authority = authority(out)?;
            issue_people(out, &authority, &deployment.cluster, *days)?;
            issue_nodes(out, &authority, &deployment, *days)?;
            let clients = clients(out)?;
            for name in &clients {
                issue_client(out, (&authority, &deployment.cluster), name, *days)?;
            }
            say!(
                "renewed the certificates of {} nodes, the operator, the monitor and {} clients; running \
                 nodes read them within 10 s, or at SIGHUP",
                deployment.nodes.len(),
                clients.len()
            );
        }
        CertsCommand::Client {
            name,
            config,
            out,
            days,
        } => {
            let deployment = waiting::for_deployment(config)?;
            let directory = of_client(out, name);
            if directory.join("tls.crt").exists() {
                bail!(
                    "{} exists: `ionian certs renew` makes new certificates",
                    directory.display()
                );
            }
            let authority = authority(out)?;
            issue_client(out, (&authority, &deployment.cluster), name, *days)?;
            say!(
                "wrote the certificate of client {name} to {}",
                directory.display()
            );
        }
        CertsCommand::Status {
            fresh,
            cluster_args,
        } => return report::run(cluster_args, *fresh),
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes an authority and the certificates of an operator and a monitor.
fn create(out: &Path, cluster: &str, days: u32) -> Result<Authority> {
    if has_authority(out) {
        bail!(
            "{} has certificates: `ionian certs renew` makes new ones",
            out.display()
        );
    }
    let (authority, issued) = Authority::create(cluster, DAY * AUTHORITY_DAYS)?;
    make_directory(out)?;
    write(&out.join("ca.key"), &issued.key, 0o600)?;
    write(&out.join("ca.crt"), &issued.certificate, 0o644)?;
    issue_people(out, &authority, cluster, days)?;
    Ok(authority)
}

/// Whether a directory has an authority, whose key an operator may keep elsewhere. A key alone is
/// what a process has left that was killed before it wrote the certificate: it has signed nothing.
fn has_authority(out: &Path) -> bool {
    let made = ["ca.crt", "operator", "monitor", "nodes", "clients"];
    made.iter().any(|name| out.join(name).exists())
}

fn issue_people(out: &Path, authority: &Authority, cluster: &str, days: u32) -> Result<()> {
    for kind in PEOPLE {
        let directory = out.join(kind.word());
        issue_one(
            out,
            &directory,
            authority,
            (cluster, kind, DEFAULT_NAME),
            days,
        )?;
    }
    Ok(())
}

fn of_client(out: &Path, name: &str) -> PathBuf {
    out.join("clients").join(name)
}

/// The clients that have certificates.
fn clients(out: &Path) -> Result<Vec<String>> {
    let path = out.join("clients");
    let entries = match fs::read_dir(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    let names: Vec<Option<String>> = names.collect::<std::io::Result<_>>()?;
    let has_one = |name: &String| path.join(name).join("tls.crt").exists();
    Ok(names.into_iter().flatten().filter(has_one).collect())
}

fn issue_client(
    out: &Path,
    (authority, cluster): (&Authority, &str),
    name: &str,
    days: u32,
) -> Result<()> {
    let directory = of_client(out, name);
    issue_one(
        out,
        &directory,
        authority,
        (cluster, Kind::Client, name),
        days,
    )
}

/// The certificate of one who calls, and is reached at no host.
fn issue_one(
    out: &Path,
    directory: &Path,
    authority: &Authority,
    (cluster, kind, name): (&str, Kind, &str),
    days: u32,
) -> Result<()> {
    let whose = Name {
        cluster: cluster.to_owned(),
        kind,
        name: name.to_owned(),
    };
    let issued = authority.issue(&whose, &Hosts::default(), DAY * days)?;
    store(directory, out, &issued)
}

fn issue_nodes(
    out: &Path,
    authority: &Authority,
    deployment: &Deployment,
    days: u32,
) -> Result<()> {
    let mut nodes = deployment.nodes.iter();
    nodes.try_for_each(|node| issue_node(out, (authority, &deployment.cluster), node, days))
}

fn issue_node(
    out: &Path,
    (authority, cluster): (&Authority, &str),
    node: &Node,
    days: u32,
) -> Result<()> {
    let issued = authority.issue(&name_of(cluster, node), &hosts(node), DAY * days)?;
    store(&directory_of(out, node), out, &issued)
}

/// The directory of certificates for `ionian up`: makes an authority if there is none. Those of the
/// operator and the monitor are made again when they end soon.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn prepare(out: &Path, cluster: &str) -> Result<()> {
    if !has_authority(out) {
        return create(out, cluster, DAYS).map(drop);
    }
    // A file that a full disk has left empty would keep every node from its start.
    let certificate = out.join("ca.crt");
    if certificate.exists() {
        describe_file(&certificate)?;
    }
    let mut directories = PEOPLE.iter().map(|kind| out.join(kind.word()));
    match directories.find(|it| is_to_be_made(it, out)) {
        Some(directory) => issue_people(out, &authority_for(out, &directory)?, cluster, DAYS),
        None => Ok(()),
    }
}

/// Whether the certificate of a directory is to be made: it is missing, or ends soon. One that ends
/// soon stays where the key of the authority is kept elsewhere, and standard error names it.
fn is_to_be_made(directory: &Path, out: &Path) -> bool {
    let key = out.join("ca.key");
    if is_fresh(directory) {
        return false;
    }
    if key.exists() || !directory.join("tls.crt").exists() {
        return true;
    }
    say_on_stderr!(
        "{}: the certificate ends soon, or has ended, and {} is not here to renew it: \
         `ionian certs renew` does, with that key",
        directory.display(),
        key.display()
    );
    false
}

/// The authority, for the certificate in this directory.
fn authority_for(out: &Path, directory: &Path) -> Result<Authority> {
    let why = || format!("{} needs a certificate", directory.display());
    authority(out).with_context(why)
}

/// Whether a directory has a certificate that does not end soon. One that cannot be read stays: its
/// user learns why it is refused.
fn is_fresh(directory: &Path) -> bool {
    let path = directory.join("tls.crt");
    let ends_soon = |it: Described| is_near_end((it.not_before, it.not_after), false, now());
    path.exists() && !describe_file(&path).is_ok_and(ends_soon)
}

/// The directory of the certificate of a node, which is made if there is none, or one that ends
/// soon.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn of_node(out: &Path, cluster: &str, node: &Node) -> Result<PathBuf> {
    let directory = directory_of(out, node);
    if is_to_be_made(&directory, out) {
        let authority = authority_for(out, &directory)?;
        issue_node(out, (&authority, cluster), node, DAYS)?;
    }
    // The nodes have other working directories than the certificates' paths may assume.
    fs::canonicalize(&directory).with_context(|| directory.display().to_string())
}

fn directory_of(out: &Path, node: &Node) -> PathBuf {
    out.join("nodes").join(&node.name)
}

fn name_of(cluster: &str, node: &Node) -> Name {
    Name {
        cluster: cluster.to_owned(),
        kind: Kind::Node,
        name: node.name.clone(),
    }
}

/// The hosts under which clients and nodes reach a node. Clients check them.
fn hosts(node: &Node) -> Hosts {
    let mut hosts = Hosts::default();
    let addresses = [Some(&node.address), node.gateway.as_ref()];
    for address in addresses.into_iter().flatten() {
        let Some((host, _)) = address.rsplit_once(':') else {
            continue;
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        match host.parse::<IpAddr>() {
            Ok(ip) if !hosts.addresses.contains(&ip) => hosts.addresses.push(ip),
            Err(_) if !hosts.names.contains(&host) => hosts.names.push(host),
            _ => {}
        }
    }
    let is_local = hosts.addresses.iter().any(IpAddr::is_loopback);
    if is_local && !hosts.names.iter().any(|name| name == "localhost") {
        hosts.names.push("localhost".to_owned());
    }
    hosts
}

/// The authority in a directory.
fn authority(out: &Path) -> Result<Authority> {
    Ok(waiting::for_files(|begin| Authority::within(out, begin))?)
}

/// Writes the three files of a certificate. A node that reads them meanwhile finds that they do not
/// fit together, and reads them again later.
fn store(directory: &Path, out: &Path, issued: &Issued) -> Result<()> {
    make_directory(directory)?;
    let bundle = directory.join("ca.crt");
    // An operator may have added an authority to it.
    if !bundle.exists() {
        let path = out.join("ca.crt");
        let own =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        write(&bundle, &own, 0o644)?;
    }
    write(&directory.join("tls.key"), &issued.key, 0o600)?;
    write(&directory.join("tls.crt"), &issued.certificate, 0o644)
}

fn make_directory(path: &Path) -> Result<()> {
    let make = || {
        fs::create_dir_all(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o700))
    };
    make().with_context(|| format!("cannot make {}", path.display()))
}
