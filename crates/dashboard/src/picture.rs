//! What the page draws after a look, as JSON.

use crate::events::{Event, Events};
use crate::figures::{Figures, NAMES};
use crate::look::{Look, Node};
use ionian_kernel::id::Index;
use ionian_planner::live::bottleneck::{self, Bottleneck};
use ionian_planner::live::rates::Rates;
use serde::Serialize;
use serde_json::{Map, Value};

/// The most events that the page shows.
const EVENTS: usize = 50;

#[derive(Serialize)]
struct Picture<'a> {
    at_ms: u64,
    cluster: &'a str,
    protocol: &'a str,
    f: usize,
    epoch: u32,
    changing: bool,
    health: &'a str,
    failure_tolerance: Option<usize>,
    leader: Option<&'a str>,
    bottleneck: Bottleneck,
    /// The figures of the cluster, by name.
    now: Map<String, Value>,
    connections: u64,
    kinds: Vec<Kind<'a>>,
    nodes: Vec<Member<'a>>,
    troubles: Vec<Trouble<'a>>,
    events: Vec<&'a Event>,
}

/// A kind of role with its instances.
#[derive(Serialize)]
struct Kind<'a> {
    role: &'a str,
    instances: Vec<Instance<'a>>,
}

#[derive(Serialize)]
struct Instance<'a> {
    index: Index,
    node: &'a str,
    up: bool,
    leads: bool,
    /// `None` if it is not measured.
    busy: Option<f64>,
}

#[derive(Serialize)]
struct Member<'a> {
    name: &'a str,
    gateway: Option<&'a str>,
    state: &'static str,
    /// Why there is no status.
    error: Option<&'a str>,
    release: Option<&'a str>,
    level: u16,
    uptime_s: u64,
    lag: Option<u64>,
    /// Share of processor time of its busiest event loop.
    busy: Option<f64>,
    /// Share of the time that its main loop works on anything but messages of roles; `None` if that
    /// is not known.
    outside: Option<f64>,
    /// Share of the time that it waits for a processor.
    wait: Option<f64>,
    /// Share of the time that its main loop waits for the disk.
    disk: Option<f64>,
    sync_p99_us: Option<f64>,
    backlog_bytes: u64,
    connections: Option<u64>,
    memory_bytes: Option<u64>,
    /// Of keys and values; 0 without a limit.
    data_bytes: Option<u64>,
    /// The limit of these; 0 without.
    data_limit_bytes: Option<u64>,
    disk_free_bytes: Option<u64>,
    /// What the log and the next snapshot need.
    disk_needed_bytes: Option<u64>,
    /// When the last snapshot was stored, in seconds since 1970.
    snapshot_at: Option<u64>,
    /// The end of its certificate, in seconds since 1970.
    certificate_ends: Option<i64>,
}

#[derive(Serialize)]
struct Trouble<'a> {
    id: &'a str,
    text: &'a str,
    alert: Option<&'a str>,
    stops: bool,
    since_ms: Option<u64>,
}

/// The document for pages. `rates` are those of the nodes of the look, in its order.
pub(crate) fn document(
    at_ms: u64,
    look: &Look,
    rates: &[Option<Rates>],
    events: &Events,
) -> String {
    let known: Vec<(&str, &Rates)> = look
        .nodes
        .iter()
        .zip(rates)
        .filter(|(node, _)| node.status.is_some())
        .filter_map(|(node, rates)| Some((node.name.as_str(), rates.as_ref()?)))
        .collect();
    let nodes: Vec<Member<'_>> = look
        .nodes
        .iter()
        .zip(rates)
        .map(|(node, rates)| member(node, rates.as_ref()))
        .collect();
    let picture = Picture {
        at_ms,
        cluster: &look.cluster,
        protocol: &look.protocol,
        f: look.f,
        epoch: look.epoch,
        changing: look.changing,
        health: &look.health,
        failure_tolerance: look.failure_tolerance,
        leader: look.leader.as_deref(),
        bottleneck: bottleneck::judge(&known),
        now: now(&known, look),
        connections: nodes.iter().filter_map(|node| node.connections).sum(),
        kinds: kinds(look, rates),
        nodes,
        troubles: troubles(look, events),
        events: events.last(EVENTS),
    };
    serde_json::to_string(&picture).expect("a picture is made of numbers, strings and lists")
}

fn now(known: &[(&str, &Rates)], look: &Look) -> Map<String, Value> {
    let rates: Vec<&Rates> = known.iter().map(|(_, rates)| *rates).collect();
    let lag = look.nodes.iter().filter_map(|node| node.lag).max();
    let Figures(values) = Figures::of(&rates, &look.kinds, lag);
    let named = NAMES.into_iter().zip(values);
    // A number that is none becomes null.
    named
        .map(|(name, value)| (name.to_owned(), f64::from(value).into()))
        .collect()
}

fn troubles<'a>(look: &'a Look, events: &Events) -> Vec<Trouble<'a>> {
    let troubles = look.troubles.iter().map(|it| Trouble {
        id: &it.id,
        text: &it.text,
        alert: it.alert,
        stops: it.stops,
        since_ms: events.since(&it.id),
    });
    troubles.collect()
}

fn kinds<'a>(look: &'a Look, rates: &[Option<Rates>]) -> Vec<Kind<'a>> {
    let kinds = look.kinds.iter().map(|role| {
        let nodes = look.nodes.iter().zip(rates);
        let mut instances: Vec<Instance<'_>> = nodes
            .flat_map(|(node, rates)| instances(role, node, rates.as_ref()))
            .collect();
        instances.sort_by_key(|it| it.index);
        Kind { role, instances }
    });
    kinds.filter(|kind| !kind.instances.is_empty()).collect()
}

/// The instances of a kind on a node: those that it reports, or those that the deployment names.
fn instances<'a>(kind: &str, node: &'a Node, rates: Option<&Rates>) -> Vec<Instance<'a>> {
    let Some(status) = &node.status else {
        let placed = node.placed.iter().filter(|placed| placed.role == kind);
        let down = placed.map(|placed| Instance {
            index: placed.index,
            node: &node.name,
            up: false,
            leads: false,
            busy: None,
        });
        return down.collect();
    };
    let busy = |index| {
        let mut roles = rates?.roles.iter();
        let found = roles.find(|(role, number, _)| role == kind && *number == index);
        found.map(|(.., busy)| *busy)
    };
    let here = status.roles.iter().filter(|role| role.role == kind);
    here.map(|role| Instance {
        index: role.index,
        node: &node.name,
        up: true,
        leads: role.leads.is_some_and(|leads| leads.parts() > 0),
        busy: busy(role.index),
    })
    .collect()
}

fn member<'a>(node: &'a Node, rates: Option<&Rates>) -> Member<'a> {
    let status = node.status.as_ref();
    let rates = rates.filter(|_| status.is_some());
    let loops = rates.map(|rates| rates.loops.iter().map(|(_, busy)| *busy));
    let work = status.and_then(|status| status.work.as_ref());
    let clients = work.and_then(|work| work.clients.as_ref());
    let room = status.and_then(|status| status.log.room);
    let peers = status.iter().flat_map(|status| &status.peers);
    Member {
        name: &node.name,
        gateway: node.gateway.as_deref(),
        state: match status {
            None => "no answer",
            Some(status) if !status.takes_part => "joins",
            Some(status) if status.drains.is_some() => "drains",
            Some(_) => "serves",
        },
        error: node.error.as_deref(),
        release: status.and_then(|status| status.release.as_deref()),
        level: status.map_or(0, |status| status.level),
        uptime_s: status.map_or(0, |status| status.uptime_us / 1_000_000),
        lag: node.lag,
        busy: loops.map(|loops| loops.fold(0.0, f64::max)),
        outside: rates.and_then(Rates::outside),
        wait: rates.map(|rates| rates.wait),
        disk: rates.map(|rates| rates.disk),
        sync_p99_us: rates.and_then(|rates| rates.syncs.quantile(0.99)),
        backlog_bytes: peers.map(|peer| peer.backlog_bytes).sum(),
        connections: clients.map(|clients| clients.connections),
        memory_bytes: work.and_then(|work| work.resident_bytes),
        data_bytes: clients.map(|clients| clients.data_bytes),
        data_limit_bytes: clients.map(|clients| clients.data_limit_bytes),
        disk_free_bytes: room.map(|room| room.free_bytes),
        disk_needed_bytes: room.map(|room| room.needed_bytes),
        snapshot_at: work.and_then(|work| work.snapshot_stored_at),
        certificate_ends: status
            .and_then(|status| Some(status.tls.as_ref()?.certificate.not_after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Placed;
    use ionian_planner::live::testing::{report, role};
    use ionian_runtime::status::{ClientsStatus, LeadsStatus, RoomStatus, WorkStatus};

    #[test]
    fn a_node_without_an_answer_is_drawn_with_its_roles_by_the_deployment() {
        let work = WorkStatus {
            resident_bytes: Some(40),
            snapshot_stored_at: Some(9),
            clients: Some(ClientsStatus {
                data_bytes: 20,
                data_limit_bytes: 30,
                ..ClientsStatus::default()
            }),
            ..WorkStatus::default()
        };
        let mut status = report("n0", 5000, work);
        status.log.room = Some(RoomStatus {
            free_bytes: 7,
            needed_bytes: 8,
        });
        status.roles = vec![role("a", 1), role("b", 0)];
        status.roles[1].leads = Some(LeadsStatus {
            own: true,
            ..LeadsStatus::default()
        });
        let placed = [("a", 0), ("c", 0)].map(|(role, index)| Placed {
            role: role.into(),
            index,
        });
        let evil = "<img src=x onerror=alert(1)>";
        let look = Look {
            health: "degraded".into(),
            kinds: ["a", "b", "unused"].map(str::to_owned).to_vec(),
            nodes: vec![
                Node {
                    name: "n0".into(),
                    status: Some(status),
                    lag: Some(3),
                    ..Node::default()
                },
                Node {
                    name: evil.into(),
                    error: Some("refused".into()),
                    placed: placed.to_vec(),
                    ..Node::default()
                },
            ],
            ..Look::default()
        };
        let rates = Rates {
            roles: vec![("a".into(), 1, 0.25)],
            loops: vec![(0, 0.5), (1, 0.75)],
            ..Rates::default()
        };
        // What was measured of a node before it failed is not shown.
        let text = document(
            1,
            &look,
            &[Some(rates.clone()), Some(rates)],
            &Events::default(),
        );
        let picture: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            picture["kinds"],
            serde_json::json!([
                { "role": "a", "instances": [
                    { "index": 0, "node": evil, "up": false, "leads": false, "busy": null },
                    { "index": 1, "node": "n0", "up": true, "leads": false, "busy": 0.25 } ] },
                { "role": "b", "instances": [
                    { "index": 0, "node": "n0", "up": true, "leads": true, "busy": null } ] },
            ])
        );
        let nodes = &picture["nodes"];
        assert_eq!(
            (&nodes[0]["state"], &nodes[0]["busy"], &nodes[0]["lag"]),
            (&"serves".into(), &0.75.into(), &3.into())
        );
        assert_eq!(
            (&nodes[1]["state"], &nodes[1]["busy"]),
            (&"no answer".into(), &Value::Null)
        );
        let kept = [
            "memory_bytes",
            "data_bytes",
            "data_limit_bytes",
            "disk_free_bytes",
            "disk_needed_bytes",
            "snapshot_at",
        ];
        let of = |node: usize| kept.map(|key| nodes[node][key].as_u64());
        assert_eq!(of(0), [40, 20, 30, 7, 8, 9].map(Some));
        assert_eq!(of(1), [None; 6]);
        assert_eq!(picture["now"]["read_p50_us"], Value::Null);
        assert_eq!(picture["bottleneck"]["node"], "n0");
    }
}
