//! The lines of the audit log about requests of callers.

use crate::admin::change::{self, Response};
use crate::transport::caller::Caller;
use crate::transport::hello::{AdminRequest, HandshakeError, Hello, Purpose};
use bytes::Bytes;
use ionian_deployment::{Deployment, Node};
use ionian_kernel::membership::{Change, Verdict, verdict};
use std::cell::RefCell;
use std::mem::take;
use std::time::Duration;
use tokio::time::Instant;

/// The target of the events that are for the audit log.
pub(super) const AUDIT: &str = "ionian::audit";

/// The most letters of a line that say what a change is.
const MOST_LETTERS: usize = 256;

/// The most letters that say who asks: no name in a certificate is longer.
const LONGEST_CALLER: usize = 512;

/// How long after a line of a refusal the next one of the same caller and request is left out.
const PAUSE: Duration = Duration::from_secs(60);

/// How many refusals have lines within that time: the lines that wait for a file are not many.
const MOST_LINES: usize = 128;

/// The lines of the last minute about requests that were refused. Callers may repeat such requests
/// as fast as they can.
#[derive(Default)]
pub(crate) struct RefusedLines(RefCell<Recent>);

#[derive(Default)]
struct Recent {
    /// When, which caller and which request.
    lines: Vec<(Instant, String, &'static str)>,
    /// How many refusals have had no line since the last line.
    left_out: u64,
}

impl RefusedLines {
    /// Whether a refusal gets a line: how many before it got none, if so.
    fn take(&self, caller: &str, request: &'static str, now: Instant) -> Option<u64> {
        let Recent { lines, left_out } = &mut *self.0.borrow_mut();
        lines.retain(|(at, ..)| now.duration_since(*at) < PAUSE);
        let mut known = lines
            .iter()
            .map(|(_, caller, request)| (&**caller, *request));
        if lines.len() == MOST_LINES || known.any(|it| it == (caller, request)) {
            *left_out += 1;
            return None;
        }
        lines.push((now, caller.to_owned(), request));
        Some(take(left_out))
    }
}

/// Who asks this node for what.
pub(super) struct Asker {
    caller: String,
    from: String,
    purpose: Purpose,
    object: Option<String>,
}

impl Asker {
    /// A caller that is not known is named by the reason.
    pub(super) fn new(caller: &Result<Caller, String>, from: &str, hello: &Hello) -> Self {
        let caller = caller
            .as_ref()
            .map_or_else(String::clone, Caller::to_string);
        Asker {
            caller: caller.chars().take(LONGEST_CALLER).collect(),
            from: from.to_owned(),
            purpose: hello.purpose(),
            object: object(hello),
        }
    }

    /// Logs a request that is permitted, if it changes or reads more than the status. A change is
    /// logged [when it has arrived](Self::begins).
    pub(super) fn is_permitted(&self) {
        match self.purpose {
            Purpose::Peer
            | Purpose::Status
            | Purpose::Membership
            | Purpose::Notes
            | Purpose::Change => {}
            Purpose::Snapshot | Purpose::Drain | Purpose::Record => {
                self.log(self.request(), self.object.as_deref(), "permitted");
            }
        }
    }

    /// Logs that this request is refused, unless the same one was within the last minute.
    pub(super) fn is_refused(&self, lines: &RefusedLines) {
        let request = self.request();
        let Some(left_out) = lines.take(&self.caller, request, Instant::now()) else {
            return;
        };
        let left_out_before = (left_out > 0).then_some(left_out);
        let Asker {
            caller,
            from,
            object,
            ..
        } = self;
        let (object, outcome) = (object.as_deref(), "refused");
        tracing::info!(target: AUDIT, caller, from, request, object, outcome, left_out_before);
    }

    /// Logs that a request that was permitted is refused all the same, if that is the error.
    pub(super) fn is_declined(&self, error: Option<&HandshakeError>) {
        let Some(HandshakeError::Refused(result)) = error else {
            return;
        };
        self.log_end(self.request(), self.object.as_deref(), "refused", result);
    }

    fn request(&self) -> &'static str {
        match self.purpose {
            Purpose::Peer => "peer",
            Purpose::Status => "status",
            Purpose::Membership => "membership",
            Purpose::Snapshot => "snapshot",
            Purpose::Change => "change",
            Purpose::Drain => "drain",
            Purpose::Notes => "traces",
            Purpose::Record => "record",
        }
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
        self.log_end("change", Some(&described(change)), outcome, &result);
    }

    fn log(&self, request: &str, object: Option<&str>, outcome: &str) {
        let Asker { caller, from, .. } = self;
        tracing::info!(target: AUDIT, caller, from, request, object, outcome);
    }

    fn log_end(&self, request: &str, object: Option<&str>, outcome: &str, result: &str) {
        let Asker { caller, from, .. } = self;
        tracing::info!(target: AUDIT, caller, from, request, object, outcome, result);
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
    let read = |text| Deployment::parse_stored(str::from_utf8(text).ok()?).ok();
    let (Some(from), Some(to)) = (read(from), read(to)) else {
        return "a deployment that cannot be read".to_owned();
    };
    let differences = differ(&from, &to);
    match differences.is_empty() {
        true => "other settings".to_owned(),
        false => differences.join(", "),
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
        let mut other = before.clone();
        other.nodes[1].address = "127.0.0.1:1".into();
        assert_eq!(described(&begin(&other)), "other settings");
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

    #[test]
    fn refusals_of_one_caller_have_one_line_a_minute_and_the_next_counts_the_others() {
        let (lines, begin) = (RefusedLines::default(), Instant::now());
        assert_eq!(lines.take("n3", "peer", begin), Some(0));
        for seconds in [0, 1, 59] {
            let at = begin + Duration::from_secs(seconds);
            assert_eq!(lines.take("n3", "peer", at), None);
        }
        // Another request, and another caller.
        assert_eq!(lines.take("n3", "change", begin), Some(3));
        assert_eq!(lines.take("n4", "peer", begin), Some(0));
        assert_eq!(lines.take("n4", "peer", begin), None);
        assert_eq!(lines.take("n3", "peer", begin + PAUSE), Some(1));
    }

    #[test]
    fn refusals_of_any_number_of_callers_have_a_bounded_number_of_lines() {
        let (lines, begin) = (RefusedLines::default(), Instant::now());
        let logged = |at| {
            let callers = (0..1000).map(|caller: u32| caller.to_string());
            callers
                .filter_map(|caller| lines.take(&caller, "peer", at))
                .collect::<Vec<_>>()
        };
        assert_eq!(logged(begin), [0; MOST_LINES]);
        assert_eq!(logged(begin + PAUSE / 2), [0; 0]);
        let next = logged(begin + PAUSE);
        assert_eq!(
            (next.len(), next[0]),
            (MOST_LINES, 2000 - MOST_LINES as u64)
        );
    }
}
