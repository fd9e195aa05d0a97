//! `ionian certs status`: the certificates that the running nodes use, and whom they trust.

use crate::cluster_args::ClusterArgs;
use crate::contact;
use crate::member::newest_since;
use crate::output::{explain, say};
use crate::source::{self, ANSWER_LIMIT};
use crate::waiting;
use anyhow::{Result, bail};
use ionian_deployment::Configuration;
use ionian_runtime::query_status;
use ionian_runtime::status::{CertificateStatus, TlsStatus};
use ionian_tls::{date, now};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long to wait until all nodes have read their files again: twice as long as between two
/// reads.
const READ_LIMIT: Duration = Duration::from_secs(20);

/// The interval between two questions.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How long after the last connection with a certificate of an authority this authority counts as
/// in use, in seconds: those who connect once a day need it too.
const IN_USE: i64 = 24 * 60 * 60;

/// What the nodes say, by name.
type Answers = BTreeMap<String, Result<Option<TlsStatus>, String>>;

pub(super) fn run(cluster_args: &ClusterArgs, fresh: bool) -> Result<ExitCode> {
    let answers = waiting::block_on(async {
        let known = newest_since(source::running(cluster_args).await?).await;
        match fresh {
            true => ask_again(&known).await,
            false => Ok(ask(&known).await),
        }
    })?;
    for line in lines(&answers, now()) {
        say!("{line}");
    }
    // Of an older program nothing is known of what it reads.
    let is_told = |tls: &TlsStatus| !fresh || tls.reads.is_some();
    for (name, answer) in &answers {
        if matches!(answer, Ok(Some(tls)) if !is_told(tls)) {
            say!("{name}: its program does not tell when it reads its files");
        }
    }
    let is_well = |answer: &Result<Option<TlsStatus>, String>| matches!(answer, Ok(Some(tls)) if tls.refusal.is_none() && is_told(tls));
    Ok(match answers.values().all(is_well) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn ask(known: &Configuration) -> Answers {
    let mut answers = Answers::new();
    for node in known.nodes().into_values() {
        let contact = contact::to(Some(&node.name), &node.address);
        let answer = query_status(contact, ANSWER_LIMIT)
            .await
            .map(|status| status.tls);
        answers.insert(
            node.name.clone(),
            answer.map_err(|error| explain(&error.into())),
        );
    }
    answers
}

/// Asks until each node that answers has read its files since its first answer.
async fn ask_again(known: &Configuration) -> Result<Answers> {
    let mut first = BTreeMap::new();
    let deadline = Instant::now() + READ_LIMIT;
    loop {
        let answers = ask(known).await;
        let late = late(&answers, &mut first);
        if late.is_empty() {
            return Ok(answers);
        }
        if Instant::now() >= deadline {
            bail!(
                "not read within {} s: the files of {}",
                READ_LIMIT.as_secs(),
                late.join(", ")
            );
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The nodes that have not read their files since their `first` answer, which has how often each
/// had read them then. One that was started again counts anew.
fn late(answers: &Answers, first: &mut BTreeMap<String, u64>) -> Vec<String> {
    let mut late = Vec::new();
    for (name, answer) in answers {
        let Some(reads) = answer.as_ref().ok().and_then(|tls| tls.as_ref()?.reads) else {
            continue;
        };
        if *first.entry(name.clone()).or_insert(reads) == reads {
            late.push(name.clone());
        }
    }
    late
}

/// `now` is in seconds since 1970.
fn lines(answers: &Answers, now: i64) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, answer) in answers {
        match answer {
            Err(error) => lines.push(format!("{name}: no answer: {error}")),
            Ok(None) => lines.push(format!("{name}: TLS is off")),
            Ok(Some(tls)) => {
                let CertificateStatus {
                    subject,
                    issuer,
                    not_after,
                    ..
                } = &tls.certificate;
                lines.push(format!(
                    "{name}: {}, {subject} until {}, by {issuer}, refused {} new sets",
                    tls.mode,
                    date(*not_after),
                    tls.refused_sets
                ));
                let refusal = tls.refusal.iter();
                lines.extend(refusal.map(|why| format!("{name}: refuses its files: {why}")));
            }
        }
    }
    lines.extend(authorities(answers, now));
    lines
}

/// For each authority: the nodes that trust it, the nodes whose certificates it signed, and whether
/// it can be dropped.
fn authorities(answers: &Answers, now: i64) -> Vec<String> {
    let known: Vec<(&String, &TlsStatus)> = answers
        .iter()
        .filter_map(|(name, answer)| Some((name, answer.as_ref().ok()?.as_ref()?)))
        .collect();
    let is_complete = known.len() == answers.len();
    let trusted = known.iter().flat_map(|(_, tls)| &tls.trusted);
    let distinct: BTreeMap<&String, &CertificateStatus> = trusted
        .map(|trusted| (&trusted.fingerprint, trusted))
        .collect();
    let mut lines = Vec::new();
    for (fingerprint, authority) in distinct {
        let who = |holds: &dyn Fn(&TlsStatus) -> bool| {
            let names = known.iter().filter(|(_, tls)| holds(tls));
            names
                .map(|(name, _)| name.as_str())
                .collect::<BTreeSet<_>>()
        };
        let trust = who(&|tls| tls.trusted.contains(authority));
        let present = who(&|tls| {
            tls.certificate.issuer == authority.subject
                || tls.signed_by.contains(&authority.subject)
        });
        let verdict = match (present.is_empty(), is_complete) {
            (false, _) => "in use".to_owned(),
            (true, true) => match users(&known, &authority.subject, now) {
                Some(why) => why,
                None => "not presented by any node, nor by an operator, monitor or client in the \
                         last 24 hours"
                    .to_owned(),
            },
            (true, false) => "not known to be droppable: a node did not answer".to_owned(),
        };
        lines.push(format!(
            "authority {} ({}) until {}: {verdict}; trusted by {}; signed {}",
            authority.subject,
            &fingerprint[..16.min(fingerprint.len())],
            date(authority.not_after),
            listed(&trust),
            listed(&present)
        ));
    }
    lines
}

/// Why operators, monitors and clients may still use certificates of an authority that no node
/// uses, if so.
fn users(known: &[(&String, &TlsStatus)], authority: &str, now: i64) -> Option<String> {
    let told = known
        .iter()
        .filter_map(|(name, tls)| Some((name, tls.admitted.as_ref()?)));
    let told: Vec<_> = told.collect();
    let seen = told.iter().flat_map(|(name, admitted)| {
        let of_authority = admitted.issuers.iter().filter(|it| it.issuer == authority);
        of_authority.map(move |it| (it.last, &it.kind, name))
    });
    let last = seen.max_by_key(|(last, ..)| *last);
    if let Some((last, kind, name)) = last.filter(|(last, ..)| now - last < IN_USE) {
        let at = date(last);
        let word = if kind == "operator" { "an" } else { "a" };
        return Some(format!(
            "in use: {word} {kind} with a certificate of it connected to {name} at {at}"
        ));
    }
    let silent = known.iter().find(|(_, tls)| tls.admitted.is_none());
    if let Some((name, _)) = silent {
        return Some(format!(
            "not known to be droppable: the program of {name} does not tell who has connected"
        ));
    }
    let youngest = told.iter().max_by_key(|(_, admitted)| admitted.since)?;
    let (name, since) = (youngest.0, youngest.1.since);
    (now - since < IN_USE).then(|| {
        format!(
            "not known to be droppable: {name} runs since {}, so it does not know who has connected \
             in the last 24 hours",
            date(since)
        )
    })
}

fn listed(names: &BTreeSet<&str>) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.iter().copied().collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_runtime::status::{AdmittedStatus, IssuerStatus};

    const NOW: i64 = 10 * IN_USE;

    fn node(issuer: &str, trusted: &[&str]) -> Result<Option<TlsStatus>, String> {
        let certificate = |subject: &str, issuer: &str| CertificateStatus {
            subject: subject.into(),
            issuer: issuer.into(),
            not_before: 0,
            not_after: 0,
            fingerprint: format!("{subject}-0123456789abcdef"),
        };
        Ok(Some(TlsStatus {
            mode: "required".into(),
            certificate: certificate("x", issuer),
            trusted: trusted.iter().map(|one| certificate(one, one)).collect(),
            admitted: Some(AdmittedStatus {
                since: 0,
                issuers: Vec::new(),
            }),
            ..TlsStatus::default()
        }))
    }

    /// What a node had in force before it read its files again is not shown as fresh: not when its
    /// first answer is lost, and not when it was started again.
    #[test]
    fn a_node_is_late_until_it_has_read_its_files_after_its_first_answer() {
        let read = |times| {
            node("x", &[]).map(|tls| {
                tls.map(|tls| TlsStatus {
                    reads: times,
                    ..tls
                })
            })
        };
        let (mut first, name) = (BTreeMap::new(), "n0".to_owned());
        let mut is_late = |answer| !late(&[(name.clone(), answer)].into(), &mut first).is_empty();
        assert!(!is_late(Err("silent".into())));
        for reads in [7, 7] {
            assert!(is_late(read(Some(reads))));
        }
        assert!(!is_late(read(Some(8))));
        assert!(!is_late(read(Some(1))), "it was started again");
        assert!(!is_late(read(None)), "an older program");
    }

    /// An authority may be dropped only when every node answers and presents another.
    #[test]
    fn authority_is_in_use_while_a_node_presents_it() {
        let mut answers = Answers::from([
            ("n0".to_owned(), node("old", &["new", "old"])),
            ("n1".to_owned(), node("new", &["new", "old"])),
        ]);
        let says = |answers: &Answers, text: &str| verdict(answers).starts_with(text);
        assert!(says(&answers, "in use; trusted by n0 n1; signed n0"));
        answers.insert("n0".to_owned(), node("new", &["new", "old"]));
        assert!(says(
            &answers,
            "not presented by any node, nor by an operator, monitor or client in the last 24 hours;"
        ));
        // The root of an authority that has signed a certificate counts as well.
        let between = node("new", &["new", "old"]).map(|tls| {
            tls.map(|tls| TlsStatus {
                signed_by: vec!["old".into()],
                ..tls
            })
        });
        answers.insert("n1".to_owned(), between);
        assert!(says(&answers, "in use; trusted by n0 n1; signed n1"));
        answers.insert("n1".to_owned(), node("new", &["new", "old"]));
        answers.insert("n2".to_owned(), Err("silent".to_owned()));
        assert!(says(
            &answers,
            "not known to be droppable: a node did not answer"
        ));
    }

    /// The verdict on the authority "old".
    fn verdict(answers: &Answers) -> String {
        let lines = authorities(answers, NOW);
        let old = lines.iter().find(|line| line.starts_with("authority old "));
        old.unwrap().split_once("Z: ").unwrap().1.to_owned()
    }

    /// Nodes have new certificates before operators and clients have.
    #[test]
    fn authority_is_in_use_while_someone_else_has_a_certificate_of_it() {
        let seen = |kind: &str, hours: i64| IssuerStatus {
            issuer: "old".into(),
            kind: kind.into(),
            last: NOW - hours * 3600,
        };
        let with = |admitted: Option<AdmittedStatus>| {
            let of = |tls: TlsStatus| TlsStatus { admitted, ..tls };
            let first = ("n0".to_owned(), node("new", &["new", "old"]));
            let second = node("new", &["new", "old"]).map(|tls| tls.map(of));
            verdict(&Answers::from([first, ("n1".to_owned(), second)]))
        };
        let began = |since, issuers| with(Some(AdmittedStatus { since, issuers }));
        let droppable = "not presented by any node, nor by an operator";
        let late = began(0, vec![seen("client", 25), seen("operator", 24)]);
        assert!(late.starts_with(droppable), "{late}");
        let lately = began(0, vec![seen("operator", 25), seen("client", 23)]);
        let client =
            "in use: a client with a certificate of it connected to n1 at 1970-01-10T01:00";
        assert!(lately.starts_with(client), "{lately}");
        // It counts although the node has run for less.
        let operator = began(NOW - 2 * 3600, vec![seen("operator", 1)]);
        assert!(
            operator.starts_with("in use: an operator with a"),
            "{operator}"
        );
        let young = began(NOW - 3600, Vec::new());
        let since = "not known to be droppable: n1 runs since 1970-01-10T23:00:00Z, so";
        assert!(young.starts_with(since), "{young}");
        let older = with(None);
        let silent = "not known to be droppable: the program of n1 does not tell";
        assert!(older.starts_with(silent), "{older}");
    }
}
