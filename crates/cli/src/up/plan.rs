//! Which processes there are, and the configuration file of each.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tandem_config::{Config, PROFILES, format_bytes};
use tandem_core::{WorkerId, WorkerRole};
use tandem_wire::identity::PeerRole;
use toml::{Table, Value};

use super::UpArgs;
use super::state::StateFolder;
use crate::failure::Failure;

const HEAD: &str = "# Written by `tandem up`, and again each time it starts this process.\n";
/// The gateway's share of the five seconds in which `up` ends.
const GATEWAY_DRAIN_MS: u64 = 1_500;

/// A fleet that is to be.
pub(super) struct Plan {
    listen: SocketAddr,
    /// The texts of `[admin]` and `[auth]`.
    doors: String,
    model: PathBuf,
    pki: PathBuf,
    gateway_config: PathBuf,
    /// The text of a `[policy]` table, or nothing.
    policy: String,
    workers: Vec<Member>,
    /// Whether clients need keys.
    keys: bool,
}

/// One process that is to be.
#[derive(Clone, Debug)]
pub(super) struct Member {
    role: PeerRole,
    /// Where it shall listen; port 0 until it has found one.
    listen: SocketAddr,
    /// The configuration file.
    path: PathBuf,
    /// The file's text but for the line with `listen`: before it and after it.
    text: (String, String),
}

impl Plan {
    /// The fleet that the command line asks for.
    pub(super) fn new(args: &UpArgs, model: &Path, state: &StateFolder) -> Result<Self, Failure> {
        let policy = args
            .policy
            .as_deref()
            .map(policy_of)
            .transpose()?
            .unwrap_or_default();
        let workers = roles(args)
            .into_iter()
            .map(|(id, role)| {
                let id = WorkerId::new(id).map_err(Failure::mendable)?;
                worker(args, model, state, id, role)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            listen: args.listen,
            doors: doors(args)?,
            model: model.to_owned(),
            pki: state.pki(),
            gateway_config: state.config(PeerRole::Gateway.file_stem()),
            policy,
            workers,
            keys: args.keys.is_some(),
        })
    }

    pub(super) fn listen(&self) -> SocketAddr {
        self.listen
    }

    pub(super) fn asks_for_keys(&self) -> bool {
        self.keys
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = Member> {
        self.workers.iter().cloned()
    }

    /// The gateway, once it is known where the workers are.
    pub(super) fn gateway(&self, workers: Vec<SocketAddr>) -> Member {
        let workers: Vec<Value> = workers
            .iter()
            .map(|w| Value::String(w.to_string()))
            .collect();
        let before = format!("{HEAD}[gateway]\n");
        let after = format!(
            "tokenizer = {}\nworkers = {}\ndrain_timeout_ms = {GATEWAY_DRAIN_MS}\n\n\
             {}[identity]\ndirectory = {}\n\n{}",
            quoted_path(&self.model),
            Value::Array(workers),
            self.doors,
            quoted_path(&self.pki),
            self.policy
        );
        Member {
            role: PeerRole::Gateway,
            listen: self.listen,
            path: self.gateway_config.clone(),
            text: (before, after),
        }
    }
}

impl Member {
    pub(super) fn role(&self) -> &PeerRole {
        &self.role
    }

    /// `gateway`, or the worker's id.
    pub(super) fn id(&self) -> &str {
        self.role.file_stem()
    }

    pub(super) fn is_gateway(&self) -> bool {
        self.role == PeerRole::Gateway
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on it listens there: a restart must not move it.
    pub(super) fn settle(&mut self, listen: SocketAddr) {
        self.listen = listen;
    }

    /// Writes its configuration file.
    pub(super) fn write(&self) -> Result<(), Failure> {
        fs::write(&self.path, self.to_toml())
            .map_err(|error| Failure::mendable(format!("{}: {error}", self.path.display())))
    }

    fn to_toml(&self) -> String {
        let (before, after) = &self.text;
        format!("{before}listen = \"{}\"\n{after}", self.listen)
    }
}

/// Who may come in, and where operators do.
fn doors(args: &UpArgs) -> Result<String, Failure> {
    let mut text = format!("[admin]\nlisten = \"{}\"\n\n", args.admin_listen());
    if let Some(keys) = &args.keys {
        // What is wrong with it shows here, before anything is started.
        tandem_config::KeyFile::load(keys)?;
        let path = std::path::absolute(keys)
            .map_err(|error| Failure::mendable(format!("{}: {error}", keys.display())))?;
        let _ = write!(text, "[auth]\nkeys = {}\n\n", quoted_path(&path));
    } else if args.open {
        text.push_str("[auth]\nmode = \"open\"\n\n");
    }
    Ok(text)
}

fn roles(args: &UpArgs) -> Vec<(String, WorkerRole)> {
    if let Some(count) = args.aggregated {
        let worker = |n| (format!("worker-{n}"), WorkerRole::Both);
        return (0..count).map(worker).collect();
    }
    let of = |role: WorkerRole, count| (0..count).map(move |n| (format!("{role}-{n}"), role));
    of(WorkerRole::Prefill, args.prefill)
        .chain(of(WorkerRole::Decode, args.decode))
        .collect()
}

fn worker(
    args: &UpArgs,
    model: &Path,
    state: &StateFolder,
    id: WorkerId,
    role: WorkerRole,
) -> Result<Member, Failure> {
    let before = format!("{HEAD}[worker]\nid = \"{id}\"\nrole = \"{role}\"\n");
    let mut after = format!("model = {}\n", quoted_path(model));
    let numbers = [
        ("page_tokens", args.page_tokens.map(u32::from)),
        ("chunk_tokens", args.chunk_tokens),
        ("max_batch", args.max_batch),
        ("threads", args.threads.map(u32::from)),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            let _ = writeln!(after, "{key} = {number}");
        }
    }
    if let Some(bytes) = args.kv_memory {
        let _ = writeln!(after, "kv_memory = \"{}\"", format_bytes(bytes));
    }
    if let Some(profile) = &args.timed {
        after.push_str(&engine(profile, args.time_scale)?);
    }
    let _ = write!(
        after,
        "\n[fabric]\nprovider = {}\n\n[identity]\ndirectory = {}\n",
        Value::String(args.provider.clone()),
        quoted_path(&state.pki())
    );
    let path = state.config(id.as_str());
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let member = Member {
        role: PeerRole::Worker(id),
        listen,
        path,
        text: (before, after),
    };
    member.write()?;
    // What the command line got wrong shows here, before anything is started.
    Config::load(&member.path)?;
    Ok(member)
}

/// The text of a timed `[engine]` of a profile that there is.
fn engine(profile: &str, time_scale: Option<f64>) -> Result<String, Failure> {
    let named = PROFILES.iter().any(|(name, _)| *name == profile);
    let is_path = profile.contains('/') || profile.ends_with(".toml");
    let profile = if is_path && !named {
        let path = std::path::absolute(profile)
            .map_err(|error| Failure::mendable(format!("{profile}: {error}")))?;
        path.display().to_string()
    } else {
        profile.to_owned()
    };
    let mut text = format!(
        "\n[engine]\nkind = \"timed\"\nprofile = {}\n",
        Value::String(profile)
    );
    if let Some(scale) = time_scale {
        let _ = writeln!(text, "time_scale = {}", Value::Float(scale));
    }
    Ok(text)
}

/// The `[policy]` of a file, checked, as text.
fn policy_of(path: &Path) -> Result<String, Failure> {
    let none = || Failure::mendable(format!("{}: has no [policy]", path.display()));
    Config::load(path)?.policy.ok_or_else(none)?;
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::mendable(format!("{}: {error}", path.display())))?;
    let mut table: Table = text.parse().map_err(Failure::mendable)?;
    table.retain(|name, _| name == "policy");
    Ok(table.to_string())
}

fn quoted_path(path: &Path) -> Value {
    Value::String(path.display().to_string())
}
