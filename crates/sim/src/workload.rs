//! Simulated clients: on each lane a few threads, each with one request open at a time, and in the
//! end one that makes sure that the lane works again.

use crate::event::Micros;
use crate::history::{Entry, Fate, History};
use crate::journal::{command_hash, told_time};
use crate::model::{Model, Want};
use crate::report::{FailureKind, Report};
use crate::swarm::{Knobs, Range};
use ionian_kernel::client::{Operation, ReadLevel, Refusal, Reply, Request};
use ionian_kernel::id::{ClientId, Index};
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use std::collections::BTreeMap;

/// The clients of a run.
pub(crate) struct Workload<M: Model> {
    pub(crate) model: M,
    pub(crate) history: History<M>,
    random: Random,
    threads: Vec<Thread>,
    lanes: Vec<Lane>,
    pending: BTreeMap<u64, Pending>,
    next_token: u64,
    read_levels: Vec<ReadLevel>,
    think: Range,
    /// Requests left to make.
    budget: u64,
    finishing: bool,
}

struct Thread {
    lane: ClientId,
    /// Grows with each plan for the thread: an older plan is void.
    turn: u64,
    task: Task,
}

enum Task {
    /// Asks whatever the model thinks of.
    Roam,
    /// Has these left to get done; refusals do not count.
    Finish(Vec<Want>),
    Over,
}

struct Lane {
    up: bool,
    life: u32,
}

struct Pending {
    thread: usize,
    entry: usize,
}

/// What a thread does when it is called.
pub(crate) enum Turn {
    Ask(ClientId, Request),
    Later(Plan),
    Nothing,
}

/// In the end, reads come first, and no lane writes before every lane has had them: a cluster that
/// needs another write to get over something must not be saved by one. This many wants come after.
const AFTER_READS: usize = 3;

/// A thread that should be called again, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) thread: usize,
    pub(crate) turn: u64,
    pub(crate) after: Micros,
}

impl<M: Model> Workload<M> {
    pub(crate) fn new(model: M, seed: u64, lanes: usize, knobs: &Knobs) -> Self {
        let threads = (0..lanes).flat_map(|lane| (0..knobs.threads).map(move |_| lane));
        let threads: Vec<Thread> = threads
            .map(|lane| Thread {
                lane: ClientId(lane as Index),
                turn: 0,
                task: Task::Roam,
            })
            .collect();
        // The requests should last about as long as the faults, unless they are to come all at
        // once.
        let pause = knobs.duration * threads.len() as u64 / knobs.operations.max(1);
        let pause = if knobs.bursts { 0 } else { pause };
        Workload {
            model,
            history: History::new(),
            random: Random::new(seed),
            threads,
            lanes: (0..lanes).map(|_| Lane { up: false, life: 0 }).collect(),
            pending: BTreeMap::new(),
            next_token: 1,
            read_levels: knobs.read_levels.clone(),
            think: (0, pause),
            budget: knobs.operations,
            finishing: false,
        }
    }

    fn plan(&mut self, thread: usize, range: Range) -> Plan {
        self.threads[thread].turn += 1;
        Plan {
            thread,
            turn: self.threads[thread].turn,
            after: self.random.between(range.0, range.1),
        }
    }

    /// A lane's node is up: its threads begin.
    pub(crate) fn lane_up(&mut self, lane: ClientId) -> Vec<Plan> {
        self.lanes[lane.0 as usize].up = true;
        let threads: Vec<usize> = (0..self.threads.len())
            .filter(|thread| self.threads[*thread].lane == lane)
            .collect();
        threads
            .into_iter()
            .map(|thread| self.plan(thread, self.think))
            .collect()
    }

    /// A lane's node crashed: what it had asked is lost, and no client will receive the replies.
    pub(crate) fn lane_down(&mut self, lane: ClientId, report: &mut Report) {
        let state = &mut self.lanes[lane.0 as usize];
        state.up = false;
        state.life += 1;
        let threads = &mut self.threads;
        let entries = &mut self.history.entries;
        self.pending.retain(|_, pending| {
            let lost = threads[pending.thread].lane == lane;
            if lost {
                entries[pending.entry].fate = Fate::Lost;
                report.lost_with_lane += 1;
            }
            !lost
        });
        threads
            .iter_mut()
            .filter(|thread| thread.lane == lane)
            .for_each(|thread| thread.turn += 1);
    }

    /// A lane needs no answers any more, though its node is up.
    pub(crate) fn lane_apart(&mut self, lane: ClientId) {
        self.lanes[lane.0 as usize].up = false;
    }

    /// The faults are over: no more roaming, and on each lane one thread that tries everything
    /// once.
    pub(crate) fn finish(&mut self) -> Vec<Plan> {
        self.finishing = true;
        self.budget = 0;
        self.think = (0, 50_000);
        let mut wants = vec![
            Want::Read(ReadLevel::Linearizable),
            Want::Write,
            Want::Write,
        ];
        debug_assert_eq!(wants.len(), AFTER_READS);
        wants.extend(self.read_levels.iter().map(|level| Want::Read(*level)));
        let mut plans = Vec::new();
        for lane in 0..self.lanes.len() {
            let thread = Thread {
                lane: ClientId(lane as Index),
                turn: 0,
                task: Task::Finish(wants.clone()),
            };
            self.threads.push(thread);
            if self.lanes[lane].up {
                plans.push(self.plan(self.threads.len() - 1, self.think));
            }
        }
        plans
    }

    /// What a planned thread asks now, if anything.
    pub(crate) fn ready(&mut self, thread: usize, turn: u64, now: Micros) -> Turn {
        let Thread {
            lane,
            turn: current,
            task,
        } = &self.threads[thread];
        if turn != *current {
            return Turn::Nothing;
        }
        let (lane, level) = (
            *lane,
            self.read_levels[self.random.below(self.read_levels.len() as u64) as usize],
        );
        let want = match task {
            Task::Roam if self.budget == 0 => {
                self.threads[thread].task = Task::Over;
                return Turn::Nothing;
            }
            Task::Roam => {
                self.budget -= 1;
                Want::Any(level)
            }
            Task::Finish(wants) if wants.len() == AFTER_READS && self.some_lane_reads() => {
                return Turn::Later(self.plan(thread, (5_000, 20_000)));
            }
            Task::Finish(wants) => match wants.last() {
                Some(want) => *want,
                None => return Turn::Nothing,
            },
            Task::Over => return Turn::Nothing,
        };
        Turn::Ask(lane, self.ask(thread, lane, want, now))
    }

    /// Whether a lane that is up has not had its first reads in the end.
    fn some_lane_reads(&self) -> bool {
        self.threads.iter().any(|thread| match &thread.task {
            Task::Finish(wants) => {
                wants.len() > AFTER_READS && self.lanes[thread.lane.0 as usize].up
            }
            _ => false,
        })
    }

    fn ask(&mut self, thread: usize, lane: ClientId, want: Want, now: Micros) -> Request {
        let call = self.model.next(&mut self.random, want);
        self.record(thread, lane, call, now)
    }

    /// Notes a request in the history.
    fn record(
        &mut self,
        thread: usize,
        lane: ClientId,
        call: crate::model::Call<M::Action>,
        now: Micros,
    ) -> Request {
        let token = self.next_token;
        self.next_token += 1;
        let invoked = self.history.moment(now);
        self.pending.insert(
            token,
            Pending {
                thread,
                entry: self.history.entries.len(),
            },
        );
        self.history.entries.push(Entry {
            lane: lane.0,
            life: self.lanes[lane.0 as usize].life,
            operation: call.operation,
            command: command_hash(&call.payload),
            action: call.action,
            invoked,
            completed: None,
            at: Timestamp(0),
            fate: Fate::Open,
            executed: 0,
        });
        Request {
            token,
            operation: call.operation,
            payload: call.payload,
        }
    }

    /// Takes in a reply; says when its thread goes on.
    pub(crate) fn reply(
        &mut self,
        lane: ClientId,
        reply: &Reply,
        now: Micros,
        executed: u64,
        report: &mut Report,
    ) -> Result<Plan, (FailureKind, String)> {
        let pending = self.pending.remove(&reply.token);
        let Some(Pending { thread, entry }) =
            pending.filter(|pending| self.threads[pending.thread].lane == lane)
        else {
            let what = format!(
                "c{} was given a reply to no open request: {reply:?}",
                lane.0
            );
            return Err((FailureKind::Reply, what));
        };
        let completed = self.history.moment(now);
        let entry = &mut self.history.entries[entry];
        let (fate, at) = judge(&self.model, entry, reply)?;
        (entry.fate, entry.at) = (fate, at);
        entry.completed = Some(completed);
        entry.executed = executed;
        count(&entry.fate, self.finishing, report);
        if let (Task::Finish(wants), Fate::Done(_)) = (&mut self.threads[thread].task, &entry.fate)
        {
            wants.pop();
        }
        Ok(self.plan(thread, self.think))
    }

    /// Whether every request was answered and every lane that is up has shown that it works.
    pub(crate) fn done(&self) -> bool {
        let finished = |thread: &Thread| match &thread.task {
            Task::Finish(wants) => wants.is_empty() || !self.lanes[thread.lane.0 as usize].up,
            _ => true,
        };
        self.finishing && self.pending.is_empty() && self.threads.iter().all(finished)
    }

    /// Whether a lane other than those given is up.
    pub(crate) fn has_lane_besides(&self, lanes: &[ClientId]) -> bool {
        (0..)
            .zip(&self.lanes)
            .any(|(index, lane)| lane.up && !lanes.contains(&ClientId(index)))
    }

    /// What is still open, for people.
    pub(crate) fn unfinished(&self) -> String {
        let open = self.pending.values().map(|pending| {
            let Entry {
                lane,
                action,
                operation,
                invoked,
                ..
            } = &self.history.entries[pending.entry];
            format!(
                "c{lane}'s {action} ({operation:?}) is open since {:.3} s",
                invoked.at as f64 / 1e6
            )
        });
        let lanes = self.threads.iter().filter_map(|thread| match &thread.task {
            Task::Finish(wants) if !wants.is_empty() => {
                Some(format!("c{} has still to get {wants:?}", thread.lane.0))
            }
            _ => None,
        });
        open.chain(lanes).collect::<Vec<_>>().join("; ")
    }

    /// What the journal knows by this hash.
    pub(crate) fn name(&self, command: u64) -> Option<String> {
        let entry = self
            .history
            .entries
            .iter()
            .find(|entry| entry.command == command)?;
        Some(format!("c{}'s {}", entry.lane, entry.action))
    }

    /// What was asked by a token and what became of it, for the trace.
    pub(crate) fn describe(&self, token: u64) -> String {
        match self.pending.get(&token) {
            Some(pending) => self.history.entries[pending.entry].action.to_string(),
            None => String::new(),
        }
    }
}

/// What is wrong with a reply.
type Wrong = (FailureKind, String);

/// What a reply makes of its request, and the time of the log that it tells.
pub(crate) fn judge<M: Model>(
    model: &M,
    entry: &Entry<M>,
    reply: &Reply,
) -> Result<(Fate<M::Answer>, Timestamp), Wrong> {
    let fair = entry.operation == Operation::Write || M::is_read(&entry.action);
    match &reply.outcome {
        Ok(_) if !fair => {
            let what = format!("{} was sent as a read and was not refused", entry.action);
            Err((FailureKind::Refused, what))
        }
        Ok(bytes) => {
            let told = told_time(bytes)
                .and_then(|(reply, at)| Ok((model.interpret(&entry.action, reply)?, at)));
            let (answer, at) = told.map_err(|what| (FailureKind::Reply, what))?;
            Ok((Fate::Done(answer), at))
        }
        Err(Refusal::NotARead) if fair => {
            let what = format!("{} was refused as a write sent as a read", entry.action);
            Err((FailureKind::Reply, what))
        }
        Err(refusal) => Ok((Fate::Refused(*refusal), Timestamp(0))),
    }
}

fn count<R>(fate: &Fate<R>, finishing: bool, report: &mut Report) {
    match fate {
        Fate::Done(_) => {
            report.acknowledged += 1;
            report.acknowledged_under_faults += u64::from(!finishing);
        }
        Fate::Refused(Refusal::Busy) => report.refused_busy += 1,
        Fate::Refused(Refusal::Unavailable) => report.refused_unavailable += 1,
        Fate::Refused(Refusal::Unknown) => report.refused_unknown += 1,
        Fate::Refused(Refusal::NotARead) => report.refused_not_a_read += 1,
        Fate::Refused(Refusal::TooLarge) => report.refused_too_large += 1,
        Fate::Refused(Refusal::Failed) => report.refused_failed += 1,
        Fate::Open | Fate::Lost => {}
    }
}
