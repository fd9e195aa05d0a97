//! A cluster of nodes with TLS that no supervisor has started, and the certificates of its clients.

use crate::cluster::{Directory, Nodes, deployment, eventually, ionian, works};
use crate::resp::Client;
use ionian_deployment::Deployment;
use ionian_tls::rustls::ClientConfig;
use ionian_tls::{ClientAuth, Expected, Files, Live};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

pub(crate) struct Secured {
    pub(crate) directory: Directory,
    pub(crate) deployment: Deployment,
    pub(crate) nodes: Nodes,
}

impl Secured {
    /// Starts three nodes with these flags; `flags_of` adds some for each.
    pub(crate) fn start(
        flags: &[&str],
        flags_of: impl Fn(&Directory, &str) -> Vec<String>,
    ) -> Secured {
        Secured::start_by(ionian, flags, flags_of)
    }

    /// The same with nodes that another program begins.
    pub(crate) fn start_by(
        program: fn() -> Command,
        flags: &[&str],
        flags_of: impl Fn(&Directory, &str) -> Vec<String>,
    ) -> Secured {
        let directory = Directory::new();
        let deployment = deployment("colocated", &["durability=disk"]);
        let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
        let (file, out) = (path("given.toml"), path("certs"));
        fs::write(&file, deployment.to_toml()).unwrap();
        works(&["certs", "create", "--config", &file, "--out", &out]);
        let spawn = |node: &ionian_deployment::Node| {
            let stderr = File::create(directory.path(&format!("{}.log", node.name))).unwrap();
            program()
                .args(["node", &node.name, "--config", &file])
                .args(["--data", &path("data")])
                .args(["--tls", &format!("{out}/nodes/{}", node.name)])
                .args(flags)
                .args(flags_of(&directory, &node.name))
                // If it ends with its memory in a file, that is there.
                .current_dir(directory.path(""))
                .stdin(Stdio::null())
                .stderr(stderr)
                .spawn()
                .unwrap()
        };
        let nodes = Nodes(deployment.nodes.iter().map(spawn).collect());
        Secured {
            directory,
            deployment,
            nodes,
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn pid(&self, node: usize) -> Pid {
        Pid::from_raw(self.nodes.0[node].id() as i32)
    }

    pub(crate) fn log(&self, node: usize) -> String {
        let name = &self.deployment.nodes[node].name;
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap()
    }

    pub(crate) fn gateway(&self, node: usize) -> &str {
        self.deployment.nodes[node].gateway.as_deref().unwrap()
    }

    pub(crate) fn port(&self, node: usize) -> u16 {
        let (_, port) = self.gateway(node).rsplit_once(':').unwrap();
        port.parse().unwrap()
    }

    /// The directory of the certificate of a client, which is made if there is none.
    pub(crate) fn certificate(&self, client: &str) -> PathBuf {
        let (file, out) = (self.path("given.toml"), self.path("certs"));
        let directory = PathBuf::from(format!("{out}/clients/{client}"));
        if !directory.exists() {
            works(&["certs", "client", client, "--config", &file, "--out", &out]);
        }
        directory
    }

    pub(crate) fn config(&self, client: &str) -> Arc<ClientConfig> {
        let files = Files::within(&self.certificate(client));
        let expected = Expected::any();
        let live = Live::open(files, expected, ClientAuth::None).unwrap();
        live.loaded().gateway_client.clone()
    }

    /// A client with this certificate that has an answer of the cluster.
    pub(crate) fn client(&self, node: usize, certificate: &str) -> Client {
        let config = self.config(certificate);
        eventually("the gateway serves the client", || {
            let mut client = Client::try_secured(self.port(node), config.clone()).ok()?;
            let answer = client.call(&["ACL", "WHOAMI"]).ok()?;
            (!format!("{answer:?}").contains("TRYAGAIN")).then_some(client)
        })
    }
}
