//! The lines of the audit log about requests of callers.

use crate::admin::change::{self, Response};
use crate::transport::caller::Caller;
use crate::transport::hello::{AdminRequest, Hello, Purpose};
use bytes::Bytes;
use ionian_deployment::{Deployment, Node};
use ionian_kernel::membership::{Change, Verdict, verdict};
use std::time::Duration;

/// The target of the events that are for the audit log.
pub(super) const AUDIT: &str = "ionian::audit";

/// The most letters of a line that say what a change is.
const MOST_LETTERS: usize = 256;

/// Who asks this node for something.
pub(super) struct Asker {
    caller: String,
    from: String,
}

impl Asker {
    /// One that is not known is named by the reason.
    pub(super) fn new(caller: &Result<Caller, String>, from: &str) -> Self {
        let caller = caller
            .as_ref()
            .map_or_else(String::clone, Caller::to_string);
        Asker {
            caller,
            from: from.to_owned(),
        }
    }

    /// Logs a request that changes or reads more than the status, and each request that is refused.
    /// A change that is permitted is logged [when it has arrived](Self::begins).
    pub(super) fn asks(&self, hello: &Hello, refused: bool) {
        let request = match hello.purpose() {
            Purpose::Peer
            | Purpose::Status
            | Purpose::Membership
            | Purpose::Notes
            | Purpose::Change
                if !refused =>
            {
                return;
            }
            Purpose::Peer => "peer",
            Purpose::Status => "status",
            Purpose::Membership => "membership",
            Purpose::Snapshot => "snapshot",
            Purpose::Change => "change",
            Purpose::Drain => "drain",
            Purpose::Notes => "traces",
            Purpose::Record => "record",
        };
        let outcome = if refused { "refused" } else { "permitted" };
        self.log(request, object(hello).as_deref(), outcome);
    }

    /// Logs that this caller may not be a peer, for another reason than its certificate.
    pub(super) fn is_no_peer(&self) {
        self.log("peer", None, "refused");
    }

    /// Logs a change before it is carried out. What it is decides its name: a probe changes
    /// nothing.
    pub(super) fn begins(&self, change: &Change) {
        match *change == change::probe() {
            true => self.log("probe", None, "permitted"),
            false => self.log("change", Some(&described(change)), "permitted"),
        }
    }

    /// Logs what became of a change, as far as this node knows.
    pub(super) fn ends(&self, change: &Change, answer: &Result<Bytes, Response>) {
        if *change == change::probe() {
            return;
        }
        let decided = answer.as_ref().map(verdict);
        let (outcome, result) = match decided {
            Ok(Ok(verdict @ Verdict::Accepted { .. })) => ("done", verdict.to_string()),
            Ok(Ok(verdict)) => ("refused", verdict.to_string()),
            Ok(Err(error)) => ("unknown", error.to_string()),
            Err(Response::Undecided(reason)) => ("unknown", reason.clone()),
            Err(response) => ("refused", response.to_string()),
        };
        let (Asker { caller, from }, object) = (self, described(change));
        tracing::info!(target: AUDIT, caller, from, request = "change", object, outcome, result);
    }

    fn log(&self, request: &str, object: Option<&str>, outcome: &str) {
        let Asker { caller, from } = self;
        tracing::info!(target: AUDIT, caller, from, request, object, outcome);
    }
}

/// What a request other than a change is about.
fn object(hello: &Hello) -> Option<String> {
    match hello {
        Hello::Admin(AdminRequest::Notes(request)) => {
            let seconds = Duration::from_millis(request.for_ms).as_secs();
            let one_in = request.one_in?;
            Some(format!("one in {one_in} commands for {seconds} s"))
        }
        Hello::Admin(AdminRequest::Drain(request)) => {
            Some(if request.drains { "begin" } else { "undo" }.to_owned())
        }
        _ => None,
    }
}

/// What a change is, in a few words.
fn described(change: &Change) -> String {
    let text = match change {
        Change::Begin { from, to, .. } => compared(from, to, members),
        Change::Tune { from, to, .. } => compared(from, to, options),
        Change::Level { to, .. } => format!("level {to}"),
        Change::Abandon { epoch } => format!("abandon epoch {}", epoch.0),
        Change::Finish { epoch, .. } => format!("finish epoch {}", epoch.0),
    };
    text.chars().take(MOST_LETTERS).collect()
}

fn compared(from: &[u8], to: &[u8], differ: fn(&Deployment, &Deployment) -> Vec<String>) -> String {
    let read = |text| Deployment::parse(str::from_utf8(text).ok()?).ok();
    match (read(from), read(to)) {
        (Some(from), Some(to)) => differ(&from, &to).join(", "),
        _ => "a deployment that cannot be read".to_owned(),
    }
}

fn members(from: &Deployment, to: &Deployment) -> Vec<String> {
    let same = |among: &Deployment, node: &Node| {
        let mut nodes = among.nodes.iter();
        nodes.find(|it| it.name == node.name).cloned()
    };
    let gone = from.nodes.iter().filter(|node| same(to, node).is_none());
    let gone = gone.map(|node| format!("remove {}", node.name));
    let others = to.nodes.iter().filter_map(|node| match same(from, node) {
        None => Some(format!("add {}", node.name)),
        Some(before) if before.roles != node.roles => Some(format!("roles of {}", node.name)),
        Some(_) => None,
    });
    let mut all: Vec<_> = gone.chain(others).collect();
    if from.quorums != to.quorums || from.f != to.f {
        all.push("quorums".to_owned());
    }
    all
}

fn options(from: &Deployment, to: &Deployment) -> Vec<String> {
    let value = |of: &Deployment, setting| of.options.value(setting);
    let changed = to.settings();
    let changed = changed.filter(|setting| value(from, setting) != value(to, setting));
    changed
        .map(|setting| format!("{}={}", setting.key, value(to, setting)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_deployment::PresetOptions;
    use ionian_kernel::id::Epoch;
    use ionian_kernel::level::Level;

    #[test]
    fn a_change_is_described_by_what_differs() {
        let before = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
        let before = before.numbered().unwrap();
        let text = |of: &Deployment| Bytes::from(of.to_toml());
        let base = Epoch(3);
        let begin = |to: &Deployment| Change::Begin {
            base,
            from: text(&before),
            to: text(to),
            joint: true,
        };
        let new = Node {
            name: "n7".into(),
            address: "127.0.0.1:1".into(),
            ..before.nodes[1].clone()
        };
        let replaced = before
            .with_replaced("n1", Node { id: None, ..new })
            .unwrap();
        assert_eq!(described(&begin(&replaced)), "remove n1, add n7");
        let mut moved = before.clone();
        moved.nodes[2].roles.pop();
        assert_eq!(described(&begin(&moved)), "roles of n2");
        let tune = Change::Tune {
            base,
            from: text(&before),
            to: text(&before.tuned(&["heartbeat_ms=77"]).unwrap()),
            expiry_ms: (1, 1),
        };
        assert_eq!(described(&tune), "heartbeat_ms=77");
        let (to, epoch) = (Level(18), Epoch(4));
        assert_eq!(described(&Change::Level { base, to }), "level 18");
        assert_eq!(described(&Change::Abandon { epoch }), "abandon epoch 4");
        let unreadable = Change::Begin {
            base,
            from: Bytes::from_static(b"\xff"),
            to: text(&before),
            joint: false,
        };
        assert_eq!(described(&unreadable), "a deployment that cannot be read");
    }
}
