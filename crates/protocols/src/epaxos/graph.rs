//! The order of execution: which committed instances a replica executes next.
//!
//! An instance is executed after its dependencies. Instances that depend on each other, directly or
//! over others, are a component: they are executed together, in the order of their names (EPaxos,
//! SOSP 2013, 4.3.2; without its sequence numbers). Dependencies of a committed instance never
//! change, so all replicas find the same components, and execute two conflicting instances in the
//! same order: one depends on the other, and they are in one component or in two that are ordered.
//!
//! Components are found while instances are committed in any order. Tarjan's algorithm, started
//! again with each commit, examines the same unfinished chain again and again: a quadratic number
//! of edges. Here each component that cannot be executed yet *waits for one* dependency outside it,
//! the first that is not executed; so what waits is a forest, and the root of each tree is an
//! instance that is not committed, or a component that moves:
//!
//! - A component that moves passes over its dependencies: those that are executed, and those inside
//!   it. If one is left, it waits for it. If none is left, it is executed, and all that wait for
//!   its members move.
//! - If it would wait for an instance of its own tree, then that instance waits for it over others:
//!   all on the way up from there belong to one cycle, and become one component, with the
//!   dependencies that are left to each. It is still the root, and moves on.
//!
//! A component is executed only when all dependencies outside it are, and only instances of a cycle
//! are joined; so it is a whole component of the final graph. Each dependency is passed once, each
//! join removes a component, and `Forest` finds a root in logarithmic time on average: the cost
//! is that of reading the graph once, times the logarithm of what waits. Nothing recurses, and
//! nothing waits for a timer: a commit leads at once to the execution of all that it made possible.
//!
//! A chain of conflicting commands does not hold a component back: each link is executed when its
//! own dependencies are. A cycle that grows while commands arrive is executed when its last member
//! is decided. That there is a last one follows from the leaders' limits of instances that are not
//! executed (`leader/unexecuted.rs`).

use super::executed::ExecutedSet;
use super::instance::{Deps, InstanceId};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use forest::{Forest, NONE};
use ionian_kernel::time::Instant;
use missing::Missing;

mod forest;
mod missing;

/// What is committed and not executed, with a value for each, and what is executed.
#[derive(Debug)]
pub struct Graph<V> {
    executed: ExecutedSet,
    /// What is executed or ready.
    ordered: ExecutedSet,
    places: BTreeMap<InstanceId, u32>,
    vertices: Vec<Vertex<V>>,
    free: Vec<u32>,
    forest: Forest,
    missing: Missing,
    /// Components that wait for nothing and are not examined yet.
    moving: Vec<u32>,
    /// What is to be executed, component by component, with the last of each marked.
    ready: VecDeque<(u32, bool)>,
    committed: usize,
    largest: usize,
    /// How often a dependency was looked for, or a component joined or looked up.
    #[cfg(test)]
    steps: u64,
}

#[derive(Debug)]
struct Vertex<V> {
    id: InstanceId,
    /// None until it is committed.
    content: Option<(Deps, V)>,
    at: Cursor,
    /// A member of the component that knows it better; itself where it stands for its component.
    component: u32,
    /// What the component waits for, where it stands for one.
    waits_for: u32,
    /// The components that wait for it, by what stood for them then.
    waiters: Vec<u32>,
    /// The others of the component, where it stands for one.
    members: Vec<u32>,
    /// Those of them that have dependencies left to pass.
    unpassed: Vec<u32>,
}

/// How far the dependencies of an instance are passed.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    exact: usize,
    below: usize,
    number: u64,
}

impl<V> Graph<V> {
    /// Nothing is committed beyond what is executed.
    pub fn new(executed: ExecutedSet) -> Self {
        Graph {
            ordered: executed.clone(),
            executed,
            places: BTreeMap::new(),
            vertices: Vec::new(),
            free: Vec::new(),
            forest: Forest::default(),
            missing: Missing::default(),
            moving: Vec::new(),
            ready: VecDeque::new(),
            committed: 0,
            largest: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// What is executed: whole components.
    pub fn executed(&self) -> &ExecutedSet {
        &self.executed
    }

    /// How many instances are committed and not executed.
    pub fn len(&self) -> usize {
        self.committed
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.committed == 0
    }

    /// The size of the largest component so far.
    pub fn largest_component(&self) -> usize {
        self.largest
    }

    /// Whether an instance is known to be committed, executed or not.
    pub fn is_committed(&self, id: InstanceId) -> bool {
        self.executed.contains(id) || self.committed(id).is_some()
    }

    /// An instance that is committed and not executed.
    pub fn committed(&self, id: InstanceId) -> Option<&(Deps, V)> {
        let place = self.places.get(&id)?;
        self.vertices[*place as usize].content.as_ref()
    }

    /// The instances that are not committed and that committed ones depend on, the longest missing
    /// first. All that hold up an execution are among them.
    pub fn missing(&self) -> impl Iterator<Item = (InstanceId, Instant)> {
        self.missing.iter()
    }

    /// Whether an instance is [missing](Self::missing).
    pub fn is_missing(&self, id: InstanceId) -> bool {
        self.missing.contains(id)
    }

    /// How many are missing.
    pub fn missing_count(&self) -> usize {
        self.missing.len()
    }

    /// Takes in a committed instance; a noop has no dependencies. False if it is known.
    pub fn commit(&mut self, now: Instant, id: InstanceId, deps: Deps, value: V) -> bool {
        if self.is_committed(id) {
            return false;
        }
        self.missing.remove(id);
        self.list_missing(now, id, &deps);
        let place = self.place(id);
        self.vertices[place as usize].content = Some((deps, value));
        self.committed += 1;
        self.moving.push(place);
        while let Some(moving) = self.moving.pop() {
            self.advance(now, moving);
        }
        true
    }

    /// Whether an instance that is not known yet can be executed at once: what it depends on is,
    /// and nothing waits for it. It then counts as executed. Most can, where few commands conflict.
    pub fn execute_alone(&mut self, id: InstanceId, deps: &Deps) -> bool {
        let is_idle = self.ready.is_empty() && !self.places.contains_key(&id);
        if !is_idle || pass(&mut Cursor::default(), id, deps, &self.executed).is_some() {
            return false;
        }
        self.missing.remove(id);
        self.executed.insert(id);
        self.ordered.insert(id);
        true
    }

    /// Moves the next component to `out`, in the order of execution; false if there is none. It
    /// then counts as executed.
    pub fn pop(&mut self, out: &mut Vec<(InstanceId, V)>) -> bool {
        let before = out.len();
        while let Some((place, is_last)) = self.ready.pop_front() {
            let vertex = &mut self.vertices[place as usize];
            let (_, value) = vertex
                .content
                .take()
                .expect("a ready instance is committed");
            out.push((vertex.id, value));
            self.executed.insert(vertex.id);
            self.places.remove(&vertex.id);
            self.free.push(place);
            self.committed -= 1;
            if is_last {
                break;
            }
        }
        out.len() > before
    }

    /// Replaces what is executed, because the state was replaced by that of a snapshot. What is
    /// committed and not executed there stays.
    pub fn restore(&mut self, now: Instant, executed: ExecutedSet) {
        let old = core::mem::replace(self, Graph::new(executed));
        self.largest = old.largest;
        let mut kept: Vec<_> = old.vertices.into_iter().collect();
        kept.sort_unstable_by_key(|vertex| vertex.id);
        for Vertex { id, content, .. } in kept {
            if let Some((deps, value)) = content {
                self.commit(now, id, deps, value);
            }
        }
    }

    /// Lists what an instance depends on and is not committed.
    fn list_missing(&mut self, now: Instant, id: InstanceId, deps: &Deps) {
        for dependency in deps.exact() {
            if !self.missing.is_full() && *dependency != id && !self.is_committed(*dependency) {
                self.missing.add(*dependency, now);
            }
        }
        for (space, below) in deps.below() {
            let mut number = self.missing.listed(*space);
            while number < *below && !self.missing.is_full() {
                let dependency = InstanceId::new(*space, number);
                if dependency != id && !self.is_committed(dependency) {
                    self.missing.add(dependency, now);
                }
                number = self.executed.next_missing(*space, number + 1);
            }
            if number > self.missing.listed(*space) {
                self.missing.set_listed(*space, number.min(*below));
            }
        }
    }

    /// The vertex of an instance, which is made if there is none.
    fn place(&mut self, id: InstanceId) -> u32 {
        if let Some(place) = self.places.get(&id) {
            return *place;
        }
        let place = self.free.pop().unwrap_or(self.vertices.len() as u32);
        let vertex = Vertex {
            id,
            content: None,
            at: Cursor::default(),
            component: place,
            waits_for: NONE,
            waiters: Vec::new(),
            members: Vec::new(),
            unpassed: Vec::new(),
        };
        match self.vertices.get_mut(place as usize) {
            Some(old) => *old = vertex,
            None => self.vertices.push(vertex),
        }
        self.forest.isolate(place);
        self.places.insert(id, place);
        place
    }

    /// A component that moves passes over its dependencies until it waits or is executed.
    fn advance(&mut self, now: Instant, component: u32) {
        while let Some(id) = self.next_dependency(component) {
            let dependency = self.place(id);
            if self.component_of(dependency) == component {
                continue;
            }
            if self.has_waiters(component) && self.forest.root(dependency) == component {
                self.join(component, dependency);
                continue;
            }
            self.forest.link(component, dependency);
            self.vertices[component as usize].waits_for = dependency;
            let dependency = &mut self.vertices[dependency as usize];
            dependency.waiters.push(component);
            if dependency.content.is_none() {
                self.missing.add(id, now);
            }
            return;
        }
        self.make_ready(component);
    }

    /// Whether anything can wait for the component.
    fn has_waiters(&self, component: u32) -> bool {
        let vertex = &self.vertices[component as usize];
        !vertex.waiters.is_empty() || !vertex.members.is_empty()
    }

    /// Passes the component's dependencies that are executed, and gives the first that is not.
    fn next_dependency(&mut self, component: u32) -> Option<InstanceId> {
        loop {
            self.step();
            let member = self.vertices[component as usize].unpassed.last().copied();
            let place = member.unwrap_or(component) as usize;
            let next = self.vertices[place].pass(&self.ordered);
            if next.is_some() || member.is_none() {
                return next;
            }
            self.vertices[component as usize].unpassed.pop();
        }
    }

    /// Makes one component of all on the way from `place` to the component at the root of its tree.
    fn join(&mut self, root: u32, place: u32) {
        let mut next = self.component_of(place);
        while next != root {
            self.step();
            let joined = &mut self.vertices[next as usize];
            joined.component = root;
            let above = core::mem::replace(&mut joined.waits_for, NONE);
            let mut members = core::mem::take(&mut joined.members);
            let mut unpassed = core::mem::take(&mut joined.unpassed);
            members.push(next);
            unpassed.push(next);
            let root = &mut self.vertices[root as usize];
            append(&mut root.members, members);
            append(&mut root.unpassed, unpassed);
            next = self.component_of(above);
        }
    }

    /// All that the component depends on is executed before it: so is the component, and what waits
    /// for it moves.
    fn make_ready(&mut self, component: u32) {
        let mut members = core::mem::take(&mut self.vertices[component as usize].members);
        members.push(component);
        members.sort_unstable_by_key(|place| self.vertices[*place as usize].id);
        self.largest = self.largest.max(members.len());
        for place in &members {
            for waiter in core::mem::take(&mut self.vertices[*place as usize].waiters) {
                // Those that were joined wait for nothing any more.
                if self.component_of(waiter) != component {
                    self.forest.cut(waiter);
                    self.vertices[waiter as usize].waits_for = NONE;
                    self.moving.push(waiter);
                }
            }
        }
        let last = members.len() - 1;
        for (at, place) in members.into_iter().enumerate() {
            self.ordered.insert(self.vertices[place as usize].id);
            self.ready.push_back((place, at == last));
        }
    }

    /// The vertex that stands for the component of another, which then knows it directly.
    fn component_of(&mut self, place: u32) -> u32 {
        let mut component = place;
        loop {
            let above = self.vertices[component as usize].component;
            if above == component {
                return component;
            }
            let next = self.vertices[above as usize].component;
            self.vertices[component as usize].component = next;
            component = next;
            self.step();
        }
    }

    /// Counts what the tests compare with the size of the graph.
    fn step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }
}

impl<V> Default for Graph<V> {
    fn default() -> Self {
        Graph::new(ExecutedSet::default())
    }
}

impl<V> Vertex<V> {
    fn pass(&mut self, ordered: &ExecutedSet) -> Option<InstanceId> {
        let (deps, _) = self.content.as_ref().expect("a component is committed");
        pass(&mut self.at, self.id, deps, ordered)
    }
}

/// Passes the dependencies of an instance up to and including the first that is not executed. An
/// instance does not depend on itself: a beginning of its space that an acceptor names may go
/// beyond it.
fn pass(at: &mut Cursor, id: InstanceId, deps: &Deps, ordered: &ExecutedSet) -> Option<InstanceId> {
    while let Some(dependency) = deps.exact().get(at.exact) {
        at.exact += 1;
        if *dependency != id && !ordered.contains(*dependency) {
            return Some(*dependency);
        }
    }
    while let Some((space, below)) = deps.below().get(at.below) {
        let number = ordered.next_missing(*space, at.number);
        at.number = number + 1;
        let dependency = InstanceId::new(*space, number);
        if number >= *below {
            at.below += 1;
            at.number = 0;
        } else if dependency != id {
            return Some(dependency);
        }
    }
    None
}

/// Appends the shorter list to the longer: an element moves to another list a logarithmic number of
/// times.
fn append(list: &mut Vec<u32>, mut other: Vec<u32>) {
    if other.len() > list.len() {
        core::mem::swap(list, &mut other);
    }
    list.append(&mut other);
}

#[cfg(test)]
mod tests;
