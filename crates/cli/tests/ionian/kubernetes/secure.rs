//! The component for TLS: what cert-manager is asked for is what nodes accept.

use super::{KUBERNETES, Rendered, argument, container, items, name_of, render, rendered, text_of};
use crate::cluster::works;
use crate::common::{Directory, eventually};
use ionian_deployment::Node;
use ionian_tls::{CertificateSet, Expected, Files, Kind, Name};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};
use std::process::{Child, Command};

const FILES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// The clusters with TLS.
const CLUSTERS: [&str; 2] = [
    "overlays/compartmentalized-tls-cert-manager",
    "overlays/tls-cert-manager",
];

fn clusters() -> impl Iterator<Item = Rendered> {
    rendered(&CLUSTERS)
}

fn texts(list: &Value) -> BTreeSet<&str> {
    items(list).iter().map(text_of).collect()
}

/// The container beside the node that copies certificates.
fn sidecar(pod: &Value) -> &Value {
    let containers = items(&pod["spec"]["initContainers"]);
    assert_eq!(containers.len(), 1);
    &containers[0]
}

#[test]
fn each_node_gets_a_certificate_with_its_name() {
    clusters().for_each(|cluster| has_certificates(&cluster));
}

fn has_certificates(cluster: &Rendered) {
    let deployment = cluster.deployment();
    let nodes = deployment.nodes.iter();
    let mut expected: BTreeMap<String, &Node> = nodes
        .map(|node| {
            let name = Name {
                cluster: deployment.cluster.clone(),
                kind: Kind::Node,
                name: node.name.clone(),
            };
            (name.to_string(), node)
        })
        .collect();
    let mut monitors = 0;
    for certificate in cluster.of_kind("Certificate") {
        let spec = &certificate["spec"];
        let issuer = cluster.named("Issuer", text_of(&spec["issuerRef"]["name"]));
        if spec["isCA"] == true {
            // Nodes trust the key of an authority.
            assert_eq!(spec["privateKey"]["rotationPolicy"], "Never");
            let used = cluster.named("Issuer", "ionian");
            assert_eq!(used["spec"]["ca"]["secretName"], spec["secretName"]);
            continue;
        }
        assert_eq!(name_of(issuer), "ionian");
        let uris = items(&spec["uris"]);
        assert_eq!(uris.len(), 1, "exactly one name is allowed");
        let name: Name = text_of(&uris[0]).parse().unwrap();
        let usages = texts(&spec["usages"]);
        assert!(usages.contains("client auth"));
        match expected.remove(&name.to_string()) {
            Some(node) => {
                assert!(usages.contains("server auth"));
                let gateway = node.gateway.as_ref();
                let gateway = gateway.map(|it| it.rsplit_once(':').unwrap().0);
                let names = spec["dnsNames"]
                    .as_array()
                    .map(|_| texts(&spec["dnsNames"]));
                let expected = gateway.map(|it| BTreeSet::from([it, "ionian-clients"]));
                assert_eq!(names, expected, "{name}");
                let secret = format!("{}-tls", node.name);
                assert_eq!(spec["secretName"], secret.as_str());
            }
            None => {
                assert_eq!(name.kind, Kind::Monitor, "{name}");
                assert_eq!(name.cluster, deployment.cluster);
                monitors += 1;
            }
        }
    }
    assert!(expected.is_empty(), "no certificate: {expected:?}");
    assert_eq!(monitors, 1);
}

#[test]
fn a_node_sees_its_own_key_only() {
    clusters().for_each(|cluster| keeps_keys_apart(&cluster));
}

fn keeps_keys_apart(cluster: &Rendered) {
    let deployment = cluster.deployment();
    let certificates = cluster.of_kind("Certificate");
    // One for each node, the authority, and the monitor.
    assert_eq!(certificates.len(), deployment.nodes.len() + 2);
    for (pod_name, pod) in cluster.pods() {
        let set = pod_name.rsplit_once('-').unwrap().0;
        let volumes = items(&pod["spec"]["volumes"]);
        let volume = |name: &str| volumes.iter().find(|it| it["name"] == name).unwrap();
        let sources = items(&volume("secrets")["projected"]["sources"]);
        let mut mounted = BTreeSet::new();
        for source in sources {
            let secret = &source["secret"];
            let owner = text_of(&secret["name"]).strip_suffix("-tls").unwrap();
            mounted.insert(owner.to_owned());
            let files = items(&secret["items"]).iter();
            let files = files.map(|it| (text_of(&it["key"]), text_of(&it["path"])));
            let expected = FILES.map(|file| (file, format!("{owner}/{file}")));
            let expected = expected.iter().map(|(key, path)| (*key, path.as_str()));
            assert!(files.eq(expected), "{secret}");
        }
        // Those of its set, and no others.
        let pods = cluster.pods().into_keys();
        let expected = pods.filter(|it| it.rsplit_once('-').unwrap().0 == set);
        assert_eq!(mounted, expected.collect(), "{pod_name}");
        for volume in [
            &volume("secrets")["projected"],
            &volume("monitor")["secret"],
        ] {
            assert_eq!(volume["defaultMode"], 0o440, "{pod_name}");
        }
        assert_eq!(
            volume("monitor")["secret"]["secretName"],
            "ionian-monitor-tls"
        );
        let mounts = |container: &Value| -> BTreeMap<String, String> {
            let mounts = items(&container["volumeMounts"]).iter();
            let texts = |it: &Value, key: &str| text_of(&it[key]).to_owned();
            mounts
                .map(|it| (texts(it, "name"), texts(it, "mountPath")))
                .collect()
        };
        let (node, beside) = (mounts(container(pod)), mounts(sidecar(pod)));
        assert!(!node.contains_key("secrets"), "{node:?}");
        assert!(!node.contains_key("monitor"), "{node:?}");
        assert_eq!(
            (&*beside["secrets"], &*beside["monitor"]),
            ("/secrets", "/monitor")
        );
        assert_eq!((&*node["tls"], &*beside["tls"]), ("/tls", "/tls"));
        assert_eq!(volume("tls")["emptyDir"]["medium"], "Memory");
        assert_eq!(argument(pod, "--tls"), Some("/tls/node"));
        // It continues beside the node.
        assert_eq!(sidecar(pod)["restartPolicy"], "Always");
    }
}

/// The script of the sidecar, which is killed with the test.
struct Copier(Child);

impl Copier {
    fn start(script: &str, pod: &str) -> Copier {
        let mut command = Command::new("sh");
        command.args(["-euc", script]).env("POD_NAME", pod);
        Copier(command.spawn().unwrap())
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn copies_of_secrets_are_accepted_and_follow_them() {
    clusters().for_each(|cluster| copies(&cluster));
}

fn copies(cluster: &Rendered) {
    let pods = cluster.pods();
    let (name, pod) = pods.first_key_value().unwrap();
    let command = items(&sidecar(pod)["command"]);
    assert_eq!(command[..2], ["sh", "-euc"]);
    let directory = Directory::new();
    let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    let (file, out) = (path("cluster.toml"), path("certs"));
    fs::write(&file, cluster.file()).unwrap();
    works(&["certs", "create", "--config", &file, "--out", &out]);
    // As the kubelet projects Secrets, for the group of the pod.
    let project = || {
        let node = (format!("nodes/{name}"), format!("secrets/{name}"));
        for (from, to) in [node, ("monitor".to_owned(), "monitor".to_owned())] {
            let to = directory.path(&to);
            fs::create_dir_all(&to).unwrap();
            for file in FILES {
                let _ = fs::remove_file(to.join(file));
                fs::copy(
                    directory.path("certs").join(&from).join(file),
                    to.join(file),
                )
                .unwrap();
                fs::set_permissions(to.join(file), Permissions::from_mode(0o440)).unwrap();
            }
        }
    };
    let load = |folder: &str| {
        let files = Files::within(&directory.path(folder));
        CertificateSet::load(&files, &Expected::node("ionian", Some(name)), &|_| ())
    };
    project();
    let refused = load(&format!("secrets/{name}")).unwrap_err().to_string();
    assert!(refused.contains("mode 0440"), "{refused}");

    let script = text_of(&command[2])
        .replace("\"/secrets/", &format!("\"{}/", path("secrets")))
        .replace("copy /monitor", &format!("copy {}", path("monitor")))
        .replace("\"/tls/", &format!("\"{}/", path("tls")))
        .replace("to=/tls/", &format!("to={}/", path("tls")))
        .replace("sleep 10", "sleep 0.1");
    let _copier = Copier::start(&script, name);
    let first = eventually("the node's files are there", || load("tls/node").ok());
    eventually("the monitor's files are there", || {
        fs::exists(directory.path("tls/monitor/tls.key"))
            .unwrap()
            .then_some(())
    });
    for file in FILES {
        let copy = directory.path("tls/node").join(file);
        assert_eq!(
            fs::metadata(copy).unwrap().permissions().mode() & 0o777,
            0o400
        );
    }
    works(&["certs", "renew", "--config", &file, "--out", &out]);
    project();
    let second = eventually("the new files are there", || {
        let set = load("tls/node").ok()?;
        (set.certificate() != first.certificate()).then_some(set)
    });
    assert_eq!(second.name(), first.name());
}

/// The folder as Kustomize wants it, which takes no absolute paths.
fn relative(from: &Path, to: &Path) -> String {
    let up = |path: &Path| {
        let parts = path
            .components()
            .filter(|it| matches!(it, Component::Normal(_)));
        "../".repeat(parts.count())
    };
    format!("{}{}", up(from), to.strip_prefix("/").unwrap().display())
}

#[test]
fn a_cluster_can_have_both_components() {
    let directory = Directory::new();
    let folder = directory.path("own");
    fs::create_dir_all(&folder).unwrap();
    let from = fs::canonicalize(&folder).unwrap();
    let to = fs::canonicalize(KUBERNETES).unwrap();
    let path = |name: &str| relative(&from, &to.join(name));
    let own = format!(
        "resources:\n  - {}\ncomponents:\n  - {}\n  - {}\nimages:\n  - name: ionian\n    \
         newName: registry.example.com/ionian\n",
        path("base"),
        path("components/monitoring"),
        path("components/tls-cert-manager"),
    );
    fs::write(folder.join("kustomization.yaml"), own).unwrap();
    let Some(cluster) = render(&folder) else {
        return;
    };
    cluster.the_only("ServiceMonitor");
    for pod in cluster.pods().values() {
        assert_eq!(argument(pod, "--tls"), Some("/tls/node"));
        let image = text_of(&container(pod)["image"]);
        assert_eq!(image, "registry.example.com/ionian:0.1.0");
    }
}
