//! The manifests for Kubernetes agree with their deployment file, and with each other.

use crate::cluster::works;
use crate::common::text;
use ionian_deployment::Deployment;
use serde::Deserialize;
use serde_json::Value;
use serde_norway::Deserializer;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const BASE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/kubernetes/base"
);
const LABEL: &str = "ionian/nodes";

fn deployment() -> Deployment {
    Deployment::load(Path::new(BASE).join("cluster.toml")).unwrap()
}

/// The documents of a file.
fn documents(text: &str) -> Vec<Value> {
    Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// All manifests.
fn manifests() -> Vec<Value> {
    let mut manifests = Vec::new();
    for entry in fs::read_dir(BASE).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = fs::read_to_string(path).unwrap();
            manifests.extend(documents(&text));
        }
    }
    manifests
}

fn of_kind(kind: &str) -> Vec<Value> {
    let mut found = manifests();
    found.retain(|manifest| manifest["kind"].as_str() == Some(kind));
    found
}

fn the_only(kind: &str) -> Value {
    let mut found = of_kind(kind);
    assert_eq!(found.len(), 1, "{kind}");
    found.remove(0)
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn items(list: &Value) -> &[Value] {
    list.as_array().unwrap()
}

/// The port after the last colon.
fn port(address: &str) -> i64 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn container() -> Value {
    items(&the_only("StatefulSet")["spec"]["template"]["spec"]["containers"])[0].clone()
}

#[test]
fn the_pods_are_the_nodes_of_the_deployment_file() {
    works(&["config", "check", &format!("{BASE}/cluster.toml")]);
    let set = the_only("StatefulSet");
    let (name, spec) = (text_of(&set["metadata"]["name"]), &set["spec"]);
    let service = text_of(&spec["serviceName"]);
    let deployment = deployment();
    assert_eq!(
        spec["replicas"].as_i64(),
        Some(deployment.nodes.len() as i64)
    );
    for (number, node) in deployment.nodes.iter().enumerate() {
        let pod = format!("{name}-{number}");
        assert_eq!(node.name, pod);
        assert!(
            node.address.starts_with(&format!("{pod}.{service}:")),
            "{pod}: {}",
            node.address
        );
        let acceptors = node.instances().get("acceptor").copied();
        assert_eq!(acceptors, Some(1), "{pod}");
    }
    // The first start needs all of them at once, and each needs the names of the others by then.
    assert_eq!(text_of(&spec["podManagementPolicy"]), "Parallel");
    let headless = of_kind("Service")
        .into_iter()
        .find(|found| found["metadata"]["name"].as_str() == Some(service))
        .unwrap();
    assert_eq!(text_of(&headless["spec"]["clusterIP"]), "None");
    assert_eq!(
        headless["spec"]["publishNotReadyAddresses"].as_bool(),
        Some(true)
    );
}

#[test]
fn the_ports_are_those_of_the_deployment_file() {
    let deployment = deployment();
    let node = &deployment.nodes[0];
    let gateway = node.gateway.as_deref().unwrap();
    let expected = BTreeSet::from([
        ("nodes".to_owned(), port(&node.address)),
        ("clients".to_owned(), port(gateway)),
    ]);
    for node in &deployment.nodes {
        let (address, gateway) = (&node.address, node.gateway.as_ref().unwrap());
        for (outside, inside) in [
            (address, node.listen.as_ref().unwrap()),
            (gateway, node.gateway_listen.as_ref().unwrap()),
        ] {
            let host = inside.rsplit_once(':').unwrap().0;
            assert_eq!((host, port(inside)), ("0.0.0.0", port(outside)));
        }
    }
    let ports = |list: &Value, key: &str| -> BTreeSet<(String, i64)> {
        let named = items(list).iter();
        named
            .map(|port| {
                (
                    text_of(&port["name"]).to_owned(),
                    port[key].as_i64().unwrap(),
                )
            })
            .collect()
    };
    assert_eq!(ports(&container()["ports"], "containerPort"), expected);
    for service in of_kind("Service") {
        let found = ports(&service["spec"]["ports"], "port");
        assert!(found.is_subset(&expected), "{found:?}");
    }
    let policy = the_only("NetworkPolicy");
    let allowed: BTreeSet<i64> = items(&policy["spec"]["ingress"])
        .iter()
        .flat_map(|rule| items(&rule["ports"]))
        .map(|port| port["port"].as_i64().unwrap())
        .collect();
    assert_eq!(
        allowed,
        expected.into_iter().map(|(_, port)| port).collect()
    );
}

#[test]
fn evictions_leave_all_nodes_but_f() {
    let deployment = deployment();
    let budget = the_only("PodDisruptionBudget");
    let spec = &budget["spec"];
    let rest = (deployment.nodes.len() - deployment.f) as i64;
    assert_eq!(spec["minAvailable"].as_i64(), Some(rest));
    // The default: a pod that is not ready counts as one that is gone.
    assert_eq!(spec["unhealthyPodEvictionPolicy"], Value::Null);
    let label = |selector: &Value| text_of(&selector["matchLabels"][LABEL]).to_owned();
    let set = the_only("StatefulSet");
    assert_eq!(label(&spec["selector"]), label(&set["spec"]["selector"]));
    assert_eq!(
        text_of(&set["spec"]["template"]["metadata"]["labels"][LABEL]),
        label(&spec["selector"])
    );
    let policy = the_only("NetworkPolicy");
    assert_eq!(
        label(&policy["spec"]["podSelector"]),
        label(&spec["selector"])
    );
}

#[test]
fn kustomize_renders_every_manifest() {
    let command = Command::new("kubectl").args(["kustomize", BASE]).output();
    let Ok(output) = command else {
        eprintln!("not checked: kubectl is not installed");
        return;
    };
    let (rendered, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{error}");
    let rendered = documents(&rendered);
    let kinds = |manifests: &[Value]| {
        let kinds = manifests
            .iter()
            .map(|found| text_of(&found["kind"]).to_owned());
        let mut kinds: Vec<String> = kinds.filter(|kind| kind != "Kustomization").collect();
        kinds.sort_unstable();
        kinds
    };
    let mut expected = kinds(&manifests());
    expected.insert(0, "ConfigMap".to_owned());
    assert_eq!(kinds(&rendered), expected);
    let map = rendered
        .iter()
        .find(|found| found["kind"].as_str() == Some("ConfigMap"));
    let file = fs::read_to_string(format!("{BASE}/cluster.toml")).unwrap();
    assert_eq!(text_of(&map.unwrap()["data"]["cluster.toml"]), file);
}
