//! `ionian trace`: the path of a command through all roles, and what slow commands waited for.
//!
//! docs/tracing.md explains what is shown.

mod arguments;
#[cfg(feature = "otel")]
mod export;
mod gather;
mod text;

pub(crate) use arguments::Arguments;

use crate::cluster_args::ClusterArgs;
use crate::exec;
use crate::login::Login;
use crate::member;
use crate::output::{self, say, say_on_stderr};
use crate::source::{self, ANSWER_LIMIT};
use crate::waiting;
use anyhow::{Context, Result, bail};
use arguments::{Shown, TraceCommand};
use clap::Subcommand;
use gather::{Gathered, Traced, ask_all, paths};
use ionian_deployment::Configuration;
use ionian_kernel::trace::TraceParent;
use ionian_redis_client::Reply;
use ionian_runtime::Record;
use ionian_runtime::traces::{KeptCommand, Wanted};
use serde_json::json;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// For how long nodes note everything for one command: longer than the patience of a lane.
const FOR_ONE: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        TraceCommand::Exec {
            gateway,
            login,
            shown,
            words,
        } => {
            let done = trace_one((gateway.as_deref(), login), shown, words);
            let trace = TraceCommand::augment_subcommands(clap::Command::new("trace"));
            let options = trace.find_subcommand("exec").expect("it is one of them");
            match exec::misplaced(words, options) {
                Some(hint) => done.context(hint),
                None => done,
            }
        }
        TraceCommand::Slow { count, shown } => list(*count, shown, |kept| kept.slow),
        TraceCommand::Kept { count, shown } => list(*count, shown, |kept| !kept.slow),
        #[cfg(feature = "otel")]
        TraceCommand::Export {
            otlp,
            otlp_ca,
            once,
            cluster_args,
        } => export::run((otlp, otlp_ca.as_deref()), *once, cluster_args),
        TraceCommand::Record {
            one_in,
            seconds,
            cluster_args,
        } => record(*one_in, Duration::from_secs(*seconds), cluster_args),
    }
}

async fn known(cluster_args: &ClusterArgs) -> Result<Configuration> {
    Ok(member::newest_since(source::running(cluster_args).await?).await)
}

/// Warns of nodes that have not answered.
fn warn(gathered: &Gathered) {
    for failure in &gathered.failures {
        say_on_stderr!("what this node did is missing: {failure}");
    }
}

fn record(one_in: u64, lasting: Duration, cluster_args: &ClusterArgs) -> Result<ExitCode> {
    let record = Record { one_in, lasting };
    let gathered = waiting::block_on(async {
        let known = known(cluster_args).await?;
        Ok(ask_all(&known, Some(record), &Wanted::default(), ANSWER_LIMIT).await)
    })?;
    for notes in &gathered.notes {
        let recording = notes.recording.clone().unwrap_or_default();
        say!(
            "{} notes one in {} commands for {} s",
            notes.node,
            recording.one_in,
            recording.for_ms.div_ceil(1000)
        );
    }
    if !gathered.failures.is_empty() {
        bail!(
            "not recorded by all nodes: {}",
            gathered.failures.join("; ")
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn list(count: u32, shown: &Shown, wanted: impl Fn(&KeptCommand) -> bool) -> Result<ExitCode> {
    let (traced, gathered) = waiting::block_on(async {
        let known = known(&shown.cluster_args).await?;
        let gathered = ask_all(&known, None, &Wanted::default(), ANSWER_LIMIT).await;
        let mut kept = gathered.kept(wanted);
        kept.truncate(count as usize);
        Ok(paths(&known, kept, ANSWER_LIMIT).await)
    })?;
    if gathered.notes.is_empty() {
        bail!("no node has answered: {}", gathered.failures.join("; "));
    }
    warn(&gathered);
    if shown.json {
        let all: Vec<_> = traced.iter().map(Traced::document).collect();
        say!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    if traced.is_empty() {
        say!("no gateway has kept such a command");
    }
    for one in &traced {
        let mut lines = format!("{}\n", one.title());
        one.waited(&mut lines);
        one.meanwhile(&mut lines);
        output::print(format_args!("{lines}"));
    }
    let is_partial = traced.iter().any(|it| it.path.steps.is_empty());
    if is_partial && !gathered.records_all() {
        say!(
            "\"cluster\" is the time of all roles: `ionian trace record` has nodes note what each does"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A trace of its own.
fn new_parent() -> TraceParent {
    let random = || RandomState::new().build_hasher().finish();
    TraceParent {
        trace: u128::from(random()) << 64 | u128::from(random() | 1),
        span: random() | 1,
    }
}

fn trace_one(
    (gateway, login): (Option<&str>, &Login),
    shown: &Shown,
    words: &[OsString],
) -> Result<ExitCode> {
    exec::refuse_option(words)?;
    let record = Record {
        one_in: 1,
        lasting: FOR_ONE,
    };
    let known = waiting::block_on(async {
        let known = known(&shown.cluster_args).await?;
        warn(&ask_all(&known, Some(record), &Wanted::default(), ANSWER_LIMIT).await);
        Ok(known)
    })?;
    let parent = new_parent().to_string();
    let mut connection = exec::connect_within(&known, gateway, &shown.cluster_args)?;
    login.log_in(&mut connection)?;
    if let Reply::Error(error) = connection.call(&[b"CLIENT", b"TRACE", parent.as_bytes()])? {
        bail!("the gateway does not trace: {error}");
    }
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let began = Instant::now();
    let reply = connection.call(&words)?;
    let client_us = began.elapsed().as_micros() as u64;
    let (traced, gathered) = waiting::block_on(async {
        let gathered = ask_all(&known, None, &Wanted::default(), ANSWER_LIMIT).await;
        let kept = gathered.kept(|kept| !kept.slow && kept.parent.as_ref() == Some(&parent));
        Ok(paths(&known, kept, ANSWER_LIMIT).await)
    })?;
    warn(&gathered);
    if !shown.json {
        exec::print(&reply)?;
    }
    let Some(one) = traced.first() else {
        let reply = exec::plain(&reply);
        bail!("no gateway has kept this command, which its gateway may answer itself: {reply}");
    };
    match shown.json {
        true => {
            let mut document = one.document();
            document["client_us"] = json!(client_us);
            document["reply"] = json!(exec::plain(&reply));
            say!("{}", serde_json::to_string_pretty(&document)?);
        }
        false => output::print(format_args!("\n{}", told(one, client_us))),
    }
    Ok(ExitCode::SUCCESS)
}

/// One command in full.
fn told(one: &Traced, client_us: u64) -> String {
    let mut text = format!("{}\n\n", one.title());
    text += "The reply waited for\n";
    one.waited(&mut text);
    let outside = client_us.saturating_sub(one.took_us());
    text += &format!("{:>12}  connection\n", text::ms(outside));
    text += &format!("{:>12}  at the client\n", text::ms(client_us));
    one.meanwhile(&mut text);
    if one.path.steps.is_empty() {
        text += "\nWhat roles did is not known: notes of nodes are missing\n";
        return text;
    }
    text += &format!(
        "\n{:<52} {:>12} {:>12}\n",
        "What roles did", "after", "took"
    );
    text + &text::tree(&one.path)
}
