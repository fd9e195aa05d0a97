//! The command, where the program can mount.

use super::Arguments;
use crate::contact;
use crate::node::{LogFormat, begin_log};
use crate::output::{self, say, say_on_stderr};
use crate::source::{self, ANSWER_LIMIT};
use crate::waiting::block_on;
use anyhow::{Context, Result, anyhow};
use ionian_deployment::Configuration;
use ionian_netfs::{Client, Mount, NAME, Options};
use ionian_program::BadUsage;
use ionian_runtime::query_membership;
use std::convert::Infallible;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How often a mount asks for the members of the cluster.
const ASK_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    output::write_errors_by_thread();
    let _log = begin_log(LogFormat::Text, None, None);
    let known = block_on(source::running(&arguments.cluster_args))?;
    let client = Arc::new(Client::connect(gateways(&known)?)?);
    let (ended, end) = oneshot::channel();
    let options = Options {
        stale: Duration::from_millis(arguments.stale_ms),
        allow_other: arguments.allow_other,
    };
    let on_end = move |result| {
        // Fails if this program ends first.
        let _ = ended.send(result);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // First, so that no signal ends the program while the directory is mounted.
        let stopped = stop_requested()?;
        let mount = Mount::new(
            &arguments.directory,
            Box::new(client.clone()),
            options,
            on_end,
        )?;
        say!(
            "ready {}: cluster {}, Ctrl-C unmounts it",
            arguments.directory.display(),
            known.deployment.cluster
        );
        tokio::select! {
            done = serve(mount, stopped, end) => done,
            never = follow_members(known, &client) => match never {},
        }
    })
}

/// The gateways of a cluster that can be mounted.
fn gateways(known: &Configuration) -> Result<Vec<String>> {
    let machine = &known.deployment.machine;
    if machine != NAME {
        return Err(BadUsage(format!(
            "machine = {machine:?}: only a cluster of the machine {NAME:?} can be mounted; start one with: ionian up \
             --set machine={NAME} --data DIR"
        ))
        .into());
    }
    let nodes = known.nodes().into_values();
    let gateways: Vec<String> = nodes.filter_map(|node| node.gateway.clone()).collect();
    if gateways.is_empty() {
        return Err(anyhow!(
            "no node of this cluster has a gateway, which a mount connects to"
        ));
    }
    Ok(gateways)
}

/// Lets the client know the gateways of the members, which change while it runs.
async fn follow_members(mut known: Configuration, client: &Client) -> Infallible {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        if let Some(newer) = newer_members(&known).await {
            let nodes = newer.nodes().into_values();
            client.set_nodes(nodes.filter_map(|node| node.gateway.clone()).collect());
            known = newer;
        }
    }
}

/// The members according to the first node that answers, if they have changed.
async fn newer_members(known: &Configuration) -> Option<Configuration> {
    for node in known.nodes().into_values() {
        let contact = contact::to(Some(&node.name), &node.address);
        let Ok(answer) = query_membership(contact, ANSWER_LIMIT).await else {
            continue;
        };
        let is_newer = answer.founding == known.founding && answer.epoch() > known.epoch();
        return is_newer.then_some(answer);
    }
    None
}

/// Completes at the first signal to stop.
fn stop_requested() -> Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("cannot install signal handlers");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

async fn serve(
    mut mount: Mount,
    stopped: impl Future<Output = ()>,
    mut end: oneshot::Receiver<io::Result<()>>,
) -> Result<ExitCode> {
    let ended = tokio::select! {
        () = stopped => None,
        ended = &mut end => Some(ended),
    };
    if let Some(ended) = ended {
        // Another program has unmounted the directory, or the kernel has ended the mount.
        ended.context("the mount has ended")??;
        say_on_stderr!("the directory was unmounted");
        return Ok(ExitCode::SUCCESS);
    }
    if mount
        .unmount()
        .context("the directory cannot be unmounted")?
    {
        say_on_stderr!("programs still use the directory; it is detached, and they get errors");
        return Ok(ExitCode::SUCCESS);
    }
    // The cluster learns that the mount has ended.
    end.await.context("the mount has ended")??;
    Ok(ExitCode::SUCCESS)
}
