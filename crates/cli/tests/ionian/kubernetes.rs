//! The manifests for Kubernetes, as `kubectl kustomize` renders them, agree with their deployment
//! file and with each other.

mod monitoring;
mod secure;

use crate::cluster::works;
use crate::common::{Directory, text};
use ionian_deployment::{Deployment, Node, PresetOptions};
use serde::Deserialize;
use serde_json::Value;
use serde_norway::Deserializer;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

const KUBERNETES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/kubernetes");
/// Whole clusters that can be applied as they are.
const CLUSTERS: [&str; 5] = [
    "base",
    "overlays/compartmentalized",
    "overlays/compartmentalized-tls-cert-manager",
    "overlays/monitoring",
    "overlays/tls-cert-manager",
];
/// A label that the pods of all nodes have, and the names of their ports.
const NAME: &str = "app.kubernetes.io/name";
const PORTS: [(&str, i64); 3] = [("clients", 7379), ("http", 9400), ("nodes", 17400)];

/// The manifests of a cluster.
struct Rendered {
    folder: String,
    manifests: Vec<Value>,
}

/// The documents of a file.
fn documents(text: &str) -> Vec<Value> {
    Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// Renders a folder; `None` without kubectl.
fn render(folder: &Path) -> Option<Rendered> {
    let command = Command::new("kubectl")
        .arg("kustomize")
        .arg(folder)
        .output();
    let Ok(output) = command else {
        eprintln!("not checked: kubectl is not installed");
        return None;
    };
    let (printed, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {error}", folder.display());
    Some(Rendered {
        folder: folder.display().to_string(),
        manifests: documents(&printed),
    })
}

/// Some of the clusters that come with the project.
fn rendered(folders: &[&str]) -> impl Iterator<Item = Rendered> {
    let folders = folders.iter();
    folders.filter_map(|folder| render(&Path::new(KUBERNETES).join(folder)))
}

fn clusters() -> impl Iterator<Item = Rendered> {
    rendered(&CLUSTERS)
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn items(list: &Value) -> &[Value] {
    list.as_array().unwrap_or_else(|| panic!("no list: {list}"))
}

fn name_of(manifest: &Value) -> &str {
    text_of(&manifest["metadata"]["name"])
}

/// The port after the last colon.
fn port(address: &str) -> i64 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// Whether these labels are among the others.
fn selects(selector: &Value, labels: &Value) -> bool {
    let selector = selector.as_object().unwrap();
    assert!(!selector.is_empty(), "it would select everything");
    selector.iter().all(|(key, value)| labels[key] == *value)
}

impl Rendered {
    fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let manifests = self.manifests.iter();
        manifests
            .filter(|it| it["kind"].as_str() == Some(kind))
            .collect()
    }

    fn the_only(&self, kind: &str) -> &Value {
        let found = self.of_kind(kind);
        assert_eq!(found.len(), 1, "{}: {kind}", self.folder);
        found[0]
    }

    fn named(&self, kind: &str, name: &str) -> &Value {
        let mut found = self.of_kind(kind).into_iter();
        found
            .find(|it| name_of(it) == name)
            .unwrap_or_else(|| panic!("{}: no {kind} {name}", self.folder))
    }

    fn file(&self) -> &str {
        text_of(&self.named("ConfigMap", "ionian")["data"]["cluster.toml"])
    }

    fn deployment(&self) -> Deployment {
        Deployment::parse(self.file()).unwrap()
    }

    /// The template of each pod, by the pod's name.
    fn pods(&self) -> BTreeMap<String, &Value> {
        let mut pods = BTreeMap::new();
        for set in self.of_kind("StatefulSet") {
            for number in 0..set["spec"]["replicas"].as_i64().unwrap() {
                let pod = format!("{}-{number}", name_of(set));
                pods.insert(pod, &set["spec"]["template"]);
            }
        }
        pods
    }

    /// Each node with the template of its pod.
    fn nodes(&self) -> Vec<(Node, &Value)> {
        let pods = self.pods();
        let nodes = self.deployment().nodes.into_iter();
        nodes
            .map(|node| {
                let pod = pods[&node.name];
                (node, pod)
            })
            .collect()
    }
}

/// The container that runs the node.
fn container(pod: &Value) -> &Value {
    let containers = items(&pod["spec"]["containers"]);
    assert_eq!(containers.len(), 1);
    &containers[0]
}

fn argument<'a>(pod: &'a Value, flag: &str) -> Option<&'a str> {
    let arguments = items(&container(pod)["args"]).iter();
    arguments
        .filter_map(|it| text_of(it).strip_prefix(flag)?.strip_prefix('='))
        .next()
}

/// The named ports of a list.
fn ports(list: &Value, key: &str) -> BTreeSet<(String, i64)> {
    let named = items(list).iter();
    named
        .map(|port| {
            (
                text_of(&port["name"]).to_owned(),
                port[key].as_i64().unwrap(),
            )
        })
        .collect()
}

fn known_ports(names: &[&str]) -> BTreeSet<(String, i64)> {
    let known = PORTS.iter().filter(|(name, _)| names.contains(name));
    known
        .map(|(name, port)| ((*name).to_owned(), *port))
        .collect()
}

#[test]
fn every_cluster_is_tested() {
    let overlays = fs::read_dir(Path::new(KUBERNETES).join("overlays")).unwrap();
    let mut found = BTreeSet::from(["base".to_owned()]);
    found.extend(overlays.map(|entry| {
        let name = entry.unwrap().file_name();
        format!("overlays/{}", name.to_str().unwrap())
    }));
    assert_eq!(found, CLUSTERS.map(str::to_owned).into());
}

#[test]
fn the_pods_are_the_nodes_of_the_deployment_file() {
    let newest = Deployment::preset("colocated", &PresetOptions::default())
        .unwrap()
        .level;
    for cluster in clusters() {
        let directory = Directory::new();
        let file = directory.path("cluster.toml");
        fs::write(&file, cluster.file()).unwrap();
        works(&["config", "check", file.to_str().unwrap()]);
        let deployment = cluster.deployment();
        assert_eq!(deployment.level, newest, "{}", cluster.folder);

        let names = |node: &Node| node.name.clone();
        let expected: BTreeSet<String> = deployment.nodes.iter().map(names).collect();
        let pods: BTreeSet<String> = cluster.pods().into_keys().collect();
        assert_eq!(pods, expected, "{}", cluster.folder);
        assert!(cluster.of_kind("Deployment").is_empty(), "nodes have names");
        for (node, pod) in cluster.nodes() {
            // What is on one pod fails at once.
            let acceptors = node.instances().get("acceptor").copied().unwrap_or(0);
            assert!(acceptors <= 1, "{}", node.name);
            let is_gateway = pod["metadata"]["labels"]["ionian/gateway"] == "true";
            assert_eq!(is_gateway, node.gateway.is_some(), "{}", node.name);
            assert!(node.address.starts_with(&format!("{}.ionian:", node.name)));
        }
        // The names exist before the nodes are ready: a first start needs all of them.
        for set in cluster.of_kind("StatefulSet") {
            assert_eq!(set["spec"]["serviceName"], "ionian");
            assert_eq!(set["spec"]["podManagementPolicy"], "Parallel");
        }
        let headless = &cluster.named("Service", "ionian")["spec"];
        assert_eq!(headless["clusterIP"], "None");
        assert_eq!(headless["publishNotReadyAddresses"], true);
    }
}

#[test]
fn the_ports_are_those_of_the_deployment_file() {
    for cluster in clusters() {
        for (node, pod) in cluster.nodes() {
            let mut served = vec!["nodes", "http"];
            let mut addresses = vec![("nodes", &node.address, node.listen.as_ref())];
            if let Some(gateway) = &node.gateway {
                served.push("clients");
                addresses.push(("clients", gateway, node.gateway_listen.as_ref()));
            }
            for (name, outside, inside) in addresses {
                let known = known_ports(&[name]).into_iter().next().unwrap().1;
                let inside = inside.unwrap();
                assert_eq!(inside, &format!("0.0.0.0:{known}"), "{}", node.name);
                assert_eq!(port(outside), known, "{}", node.name);
            }
            let found = ports(&container(pod)["ports"], "containerPort");
            assert_eq!(found, known_ports(&served), "{}", node.name);
        }
        let nodes = cluster.named("Service", "ionian");
        let clients = cluster.named("Service", "ionian-clients");
        let all = known_ports(&["nodes", "http", "clients"]);
        assert_eq!(ports(&nodes["spec"]["ports"], "port"), all);
        let expected = known_ports(&["clients"]);
        assert_eq!(ports(&clients["spec"]["ports"], "port"), expected);
        for (node, pod) in cluster.nodes() {
            let labels = &pod["metadata"]["labels"];
            assert!(selects(&nodes["spec"]["selector"], labels), "{}", node.name);
            let is_selected = selects(&clients["spec"]["selector"], labels);
            assert_eq!(is_selected, node.gateway.is_some(), "{}", node.name);
        }
    }
}

#[test]
fn evictions_leave_all_nodes_but_f() {
    for cluster in clusters() {
        let deployment = cluster.deployment();
        // A pod with two budgets could not be evicted at all.
        let budget = &cluster.the_only("PodDisruptionBudget")["spec"];
        let rest = deployment.nodes.len() - deployment.f;
        assert_eq!(budget["minAvailable"], rest, "{}", cluster.folder);
        // The default: a pod that is not ready counts as one that is gone.
        assert_eq!(budget["unhealthyPodEvictionPolicy"], Value::Null);
        for pod in cluster.pods().values() {
            let selector = &budget["selector"]["matchLabels"];
            assert!(selects(selector, &pod["metadata"]["labels"]));
        }
    }
}

/// Nodes of the same set are on different machines, and a set has pods of its own.
#[test]
fn a_set_is_spread_over_machines_and_keeps_its_volumes() {
    for cluster in clusters() {
        for set in cluster.of_kind("StatefulSet") {
            let spec = &set["spec"];
            let pod = &spec["template"];
            let own = &spec["selector"]["matchLabels"];
            assert!(own["ionian/nodes"].is_string(), "{own}");
            let affinity = &pod["spec"]["affinity"]["podAntiAffinity"];
            let apart = &items(&affinity["requiredDuringSchedulingIgnoredDuringExecution"])[0];
            assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
            assert_eq!(apart["labelSelector"]["matchLabels"], *own);
            let others = cluster.of_kind("StatefulSet");
            let selected = others.iter().filter(|other| {
                let labels = &other["spec"]["template"]["metadata"]["labels"];
                selects(own, labels)
            });
            assert_eq!(selected.count(), 1, "{own}");
            for (key, value) in [("whenDeleted", "Retain"), ("whenScaled", "Retain")] {
                assert_eq!(spec["persistentVolumeClaimRetentionPolicy"][key], value);
            }
            assert_eq!(spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"], 1);
            let volume = &items(&spec["volumeClaimTemplates"])[0];
            assert_eq!(name_of(volume), "data");
            assert_eq!(argument(pod, "--data"), Some("/data"));
        }
    }
}

#[test]
fn the_kubelet_asks_for_the_health_of_the_node() {
    for cluster in clusters() {
        for (name, pod) in cluster.pods() {
            // The kubelet reaches the pod's own address only.
            let listens = argument(pod, "--http").unwrap();
            assert_eq!(listens, "0.0.0.0:9400", "{name}");
            let node = container(pod);
            let probe = |kind: &str, path: &str| {
                let probe = &node[kind];
                assert_eq!(probe["httpGet"]["path"], path, "{name}: {kind}");
                assert_eq!(probe["httpGet"]["port"], "http", "{name}: {kind}");
                let number = |key: &str| probe[key].as_i64().unwrap_or(0);
                (number("periodSeconds"), number("failureThreshold"))
            };
            assert_eq!(probe("startupProbe", "/livez"), (5, 60));
            assert_eq!(probe("livenessProbe", "/livez"), (20, 3));
            probe("readinessProbe", "/readyz");
            let deployment = cluster.deployment();
            let drain = deployment.settings().find(|it| it.key == "drain_ms");
            let drain_ms = deployment.options.value(drain.unwrap());
            let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64();
            assert!(grace.unwrap() * 1000 > drain_ms, "{name}");
        }
    }
}

#[test]
fn pods_have_no_rights() {
    for cluster in clusters() {
        for pod in cluster.pods().values() {
            let spec = &pod["spec"];
            let whole = &spec["securityContext"];
            assert_eq!(whole["runAsNonRoot"], true);
            assert_eq!(whole["seccompProfile"]["type"], "RuntimeDefault");
            assert_eq!(spec["automountServiceAccountToken"], false);
            let beside = spec["initContainers"].as_array();
            let all = items(&spec["containers"])
                .iter()
                .chain(beside.into_iter().flatten());
            for container in all {
                let own = &container["securityContext"];
                assert_eq!(own["readOnlyRootFilesystem"], true);
                assert_eq!(own["allowPrivilegeEscalation"], false);
                assert_eq!(items(&own["capabilities"]["drop"]), ["ALL"]);
                // Processors of its own, and not the first to be evicted.
                let resources = &container["resources"];
                assert_eq!(resources["limits"], resources["requests"]);
                assert!(resources["limits"]["cpu"].is_string());
            }
        }
    }
}

#[test]
fn only_nodes_and_clients_reach_a_node() {
    for cluster in clusters() {
        let policy = &cluster.named("NetworkPolicy", "ionian")["spec"];
        for pod in cluster.pods().values() {
            let selector = &policy["podSelector"]["matchLabels"];
            assert!(selects(selector, &pod["metadata"]["labels"]));
        }
        assert_eq!(items(&policy["policyTypes"]), ["Ingress"]);
        let allowed = items(&policy["ingress"]).iter().map(|rule| {
            let (from, ports) = (items(&rule["from"]), items(&rule["ports"]));
            assert_eq!((from.len(), ports.len()), (1, 1));
            let labels = &from[0]["podSelector"]["matchLabels"];
            (ports[0]["port"].as_i64().unwrap(), labels.to_string())
        });
        let nodes = format!("{{\"{NAME}\":\"ionian\"}}");
        let clients = "{\"ionian/client\":\"true\"}".to_owned();
        let expected = BTreeMap::from([(17400, nodes), (7379, clients)]);
        assert_eq!(allowed.collect::<BTreeMap<_, _>>(), expected);
    }
}
