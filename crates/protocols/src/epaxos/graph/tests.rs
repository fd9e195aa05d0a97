use super::*;
use crate::epaxos::instance::Space;
use alloc::collections::BTreeSet;
use alloc::vec;
use ionian_kernel::id::LeaderId;
use ionian_kernel::random::Random;

type Committed = BTreeMap<InstanceId, Deps>;

fn space(leader: u8) -> Space {
    let leader = LeaderId(leader);
    Space { leader, life: 0 }
}

fn id(leader: u8, number: u64) -> InstanceId {
    InstanceId::new(space(leader), number)
}

fn deps(ids: impl IntoIterator<Item = InstanceId>) -> Deps {
    Deps::new(ids, [])
}

fn commit(graph: &mut Graph<()>, id: InstanceId, deps: Deps) {
    assert!(graph.commit(Instant::ZERO, id, deps, ()));
}

/// What it executes now.
fn executed(graph: &mut Graph<()>) -> Vec<InstanceId> {
    let mut out = Vec::new();
    while graph.pop(&mut out) {}
    out.into_iter().map(|(id, ())| id).collect()
}

fn missing(graph: &Graph<()>) -> Vec<InstanceId> {
    graph.missing().map(|(id, _)| id).collect()
}

/// A graph of some spaces, in which instances depend on others at random.
fn random_graph(random: &mut Random, size: u64) -> Committed {
    let all: Vec<InstanceId> = (0..size).map(|at| id((at % 3) as u8, at / 3)).collect();
    let (density, wide) = (random.between(1, 4), random.once_in(2));
    let mut graph = Committed::new();
    for of in &all {
        let some = (0..random.below(density + 1)).map(|_| all[random.below(size) as usize]);
        let mut deps = deps(some);
        if wide && random.once_in(6) {
            deps.insert_below(space(random.below(3) as u8), random.below(size / 3 + 1));
        }
        graph.insert(*of, deps);
    }
    graph
}

/// Whether each instance reaches each other: the model of components and of what must be executed
/// first.
fn reached(graph: &Committed, from: InstanceId) -> BTreeSet<InstanceId> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        for (id, _) in graph.iter().filter(|(id, _)| graph[&at].contains(**id)) {
            if reached.insert(*id) {
                next.push(*id);
            }
        }
    }
    reached
}

/// Which of those that are committed can be executed: all that they reach is committed.
fn executable(graph: &Committed, committed: &BTreeSet<InstanceId>) -> BTreeSet<InstanceId> {
    let can = |from: &&InstanceId| reached(graph, **from).is_subset(committed);
    committed.iter().filter(can).copied().collect()
}

#[test]
fn replicas_execute_at_once_what_can_be_and_connected_instances_in_the_same_order() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let size = random.between(3, 24);
        let graph = random_graph(&mut random, size);
        let mut orders = Vec::new();
        for _ in 0..3 {
            let mut rest: Vec<InstanceId> = graph.keys().copied().collect();
            let (mut replica, mut order) = (Graph::new(ExecutedSet::default()), Vec::new());
            let mut committed = BTreeSet::new();
            while !rest.is_empty() {
                let next = rest.swap_remove(random.below(rest.len() as u64) as usize);
                if random.once_in(2) && replica.execute_alone(next, &graph[&next]) {
                    order.push(next);
                } else {
                    commit(&mut replica, next, graph[&next].clone());
                }
                assert!(!replica.commit(Instant::ZERO, next, Deps::NONE, ()));
                committed.insert(next);
                order.extend(executed(&mut replica));
                let done: BTreeSet<InstanceId> = order.iter().copied().collect();
                assert_eq!(done, executable(&graph, &committed), "seed {seed}");
                assert_eq!(done.len(), order.len());
                assert_eq!(replica.len(), committed.len() - done.len());
                for blocked in committed.difference(&done) {
                    let lacks = reached(&graph, *blocked);
                    let mut lacks = lacks.difference(&committed);
                    assert!(
                        lacks.any(|id| missing(&replica).contains(id)),
                        "seed {seed}"
                    );
                }
                let wanted = |id: &InstanceId| committed.iter().any(|of| graph[of].contains(*id));
                let absent = graph
                    .keys()
                    .filter(|id| !committed.contains(id) && wanted(id));
                let listed: BTreeSet<_> = missing(&replica).into_iter().collect();
                assert_eq!(listed, absent.copied().collect(), "seed {seed}");
            }
            assert!(replica.is_empty() && replica.places.is_empty());
            orders.push(order);
        }
        let reached = |from| reached(&graph, from);
        for order in &orders {
            for (at, first) in order.iter().enumerate() {
                for second in &order[at + 1..] {
                    let depends = reached(*first).contains(second);
                    let (back, by_name) = (reached(*second).contains(first), first < second);
                    assert!(
                        !depends || (back && by_name),
                        "seed {seed}: {first:?} {second:?}"
                    );
                }
            }
        }
    }
}

/// A replica that restores a snapshot goes on as one that has executed what is in it.
#[test]
fn a_restored_replica_executes_the_rest() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let graph = random_graph(&mut random, 18);
        let (mut source, mut other) = (Graph::new(ExecutedSet::default()), Graph::default());
        let mut ids: Vec<InstanceId> = graph.keys().copied().collect();
        for _ in 0..9 {
            let next = ids.swap_remove(random.below(ids.len() as u64) as usize);
            commit(&mut source, next, graph[&next].clone());
            executed(&mut source);
            if random.once_in(2) {
                commit(&mut other, next, graph[&next].clone());
            }
        }
        other.restore(Instant::ZERO, source.executed().clone());
        let mut order: Vec<InstanceId> = executed(&mut other);
        for id in graph.keys() {
            if !other.is_committed(*id) {
                commit(&mut other, *id, graph[id].clone());
            }
            order.extend(executed(&mut other));
        }
        let all: BTreeSet<InstanceId> = graph.keys().copied().collect();
        let rest = |id: &&InstanceId| !source.executed().contains(**id);
        assert_eq!(order.len(), all.iter().filter(rest).count());
        assert_eq!(other.executed().count(), 18);
        assert!(other.is_empty() && missing(&other).is_empty());
    }
}

/// What it took, for each vertex and edge, and as much again for the depth of a balanced tree.
fn steps(graph: &Graph<()>) -> u64 {
    graph.steps + graph.forest.steps / 17
}

/// e20, e22: a chain is executed without recursion, in whatever order its links are committed, and
/// each dependency is looked at a few times: the number of steps grows as the chain does.
#[test]
fn e20_a_long_chain_costs_a_few_steps_for_each_link() {
    const LENGTH: u64 = 100_000;
    let mut orders: Vec<Vec<u64>> = vec![
        (0..LENGTH).collect(),
        (0..LENGTH).rev().collect(),
        // Each second link; then the others, from the end, before the first: the chain below each
        // is long, and others wait for it.
        (1..LENGTH)
            .step_by(2)
            .chain((2..LENGTH).step_by(2))
            .chain([0])
            .collect(),
        (1..LENGTH)
            .step_by(2)
            .chain((1..LENGTH / 2).rev().map(|half| 2 * half))
            .chain([0])
            .collect(),
    ];
    let (mut shuffled, mut random): (Vec<u64>, _) = ((0..LENGTH).collect(), Random::new(1));
    for at in (1..LENGTH).rev() {
        shuffled.swap(at as usize, random.below(at + 1) as usize);
    }
    orders.push(shuffled);
    for order in orders {
        let (mut graph, mut done) = (Graph::default(), Vec::new());
        for number in order {
            let before = number
                .checked_sub(1)
                .map(|before| id((before % 2) as u8, before));
            commit(&mut graph, id((number % 2) as u8, number), deps(before));
            done.extend(executed(&mut graph));
        }
        assert!(done.iter().map(|id| id.number).eq(0..LENGTH));
        let steps = steps(&graph);
        assert!(steps < 8 * LENGTH, "{steps} steps for {LENGTH} links");
    }
}

/// e21: each command conflicts with those just before and after it, and the one that closes the
/// cycle comes last.
#[test]
fn e21_a_cycle_that_grows_while_commands_arrive_costs_a_few_steps_for_each() {
    const LENGTH: u64 = 50_000;
    for first in [0, LENGTH / 2, LENGTH - 1] {
        let mut graph = Graph::default();
        let of = |number: u64| deps([id(0, number + 1), id(0, number.saturating_sub(1))]);
        for number in (0..LENGTH).filter(|number| *number != first) {
            commit(&mut graph, id(0, number), of(number));
        }
        commit(&mut graph, id(0, LENGTH), deps([id(0, 0)]));
        assert_eq!(executed(&mut graph), []);
        commit(&mut graph, id(0, first), of(first));
        assert!(
            executed(&mut graph)
                .iter()
                .map(|id| id.number)
                .eq(0..=LENGTH)
        );
        assert_eq!(graph.largest_component() as u64, LENGTH + 1);
        let steps = steps(&graph);
        assert!(steps < 12 * LENGTH, "{steps} steps for {LENGTH} instances");
    }
}

#[test]
fn a_star_costs_a_few_steps_for_each_point() {
    const POINTS: u64 = 50_000;
    // All wait for the centre, and the centre for all.
    for back in [false, true] {
        let mut graph = Graph::default();
        for point in 0..POINTS {
            commit(&mut graph, id(0, point), deps([id(1, 0)]));
        }
        assert_eq!(missing(&graph), [id(1, 0)]);
        let all = if back { POINTS } else { 0 };
        commit(
            &mut graph,
            id(1, 0),
            deps((0..all).map(|point| id(0, point))),
        );
        assert_eq!(executed(&mut graph).len() as u64, POINTS + 1);
        assert_eq!(graph.largest_component() as u64, all + 1);
        let steps = steps(&graph);
        assert!(steps < 8 * POINTS, "{steps} steps for {POINTS} points");
    }
}

/// Barriers, each of which depends on all before it, cost what is not executed, and that once.
#[test]
fn barriers_over_what_waits_cost_a_few_steps_for_each() {
    const COUNT: u64 = 20_000;
    let mut graph = Graph::default();
    for number in 1..COUNT {
        let deps = match number % 100 {
            0 => Deps::new([], [(space(0), number)]),
            _ => deps([id(0, number - 1)]),
        };
        commit(&mut graph, id(0, number), deps);
    }
    assert_eq!(
        (executed(&mut graph), missing(&graph)),
        (vec![], vec![id(0, 0)])
    );
    commit(&mut graph, id(0, 0), Deps::NONE);
    assert!(executed(&mut graph).iter().map(|id| id.number).eq(0..COUNT));
    let steps = steps(&graph);
    assert!(steps < 8 * COUNT, "{steps} steps for {COUNT} instances");
}

/// An endless chain: there is always one that is not committed, and all before it are executed.
#[test]
fn a_chain_that_never_ends_is_executed_as_it_grows() {
    let mut graph = Graph::default();
    for number in 0..1000 {
        commit(&mut graph, id(0, 2 * number + 1), deps([id(0, 2 * number)]));
        let before = number.checked_sub(1).map(|before| id(0, 2 * before + 1));
        commit(&mut graph, id(0, 2 * number), deps(before));
        assert_eq!(
            executed(&mut graph),
            [id(0, 2 * number), id(0, 2 * number + 1)]
        );
    }
    assert!(graph.vertices.len() < 4, "places are used again");
}

#[test]
fn a_beginning_of_a_space_waits_for_all_of_it_and_no_more() {
    let mut graph = Graph::default();
    commit(&mut graph, id(0, 1), Deps::NONE);
    commit(&mut graph, id(0, 3), deps([id(1, 5)]));
    assert_eq!(executed(&mut graph), [id(0, 1)]);
    let at = |millis| Instant::ZERO + core::time::Duration::from_millis(millis);
    // Itself is below the end that it names.
    assert!(graph.commit(at(7), id(0, 2), Deps::new([], [(space(0), 3)]), ()));
    let waited: Vec<_> = graph.missing().collect();
    assert_eq!(waited, [(id(1, 5), at(0)), (id(0, 0), at(7))]);
    commit(&mut graph, id(0, 0), Deps::NONE);
    assert_eq!(executed(&mut graph), [id(0, 0), id(0, 2)]);
    assert_eq!(missing(&graph), [id(1, 5)]);
    assert!(graph.is_missing(id(1, 5)) && !graph.is_missing(id(0, 0)));
    assert!(graph.is_committed(id(0, 3)) && !graph.executed().contains(id(0, 3)));
}

/// A replica lists a bounded number, and what holds up an execution always.
#[test]
fn a_beginning_of_any_length_lists_a_bounded_number_of_instances() {
    let mut graph = Graph::default();
    commit(&mut graph, id(0, 0), Deps::new([], [(space(1), 1 << 60)]));
    assert_eq!(graph.missing_count(), missing::MAX_LISTED);
    commit(&mut graph, id(0, 1), deps([id(2, 0)]));
    assert_eq!(graph.missing_count(), missing::MAX_LISTED + 1);
    commit(&mut graph, id(1, 0), Deps::NONE);
    assert_eq!(executed(&mut graph), [id(1, 0)]);
    assert_eq!(missing(&graph)[0], id(1, 1));
}
