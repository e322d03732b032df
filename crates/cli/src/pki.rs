//! `tandem pki`: the cluster's authority and the certificates of its gateways and workers.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use tandem_core::WorkerId;
use tandem_wire::identity::{Authority, Certificate, PeerRole, Terms};

use crate::console::{say, table};
use crate::failure::Failure;

/// Command line of `tandem pki`.
#[derive(Args)]
pub(crate) struct PkiArgs {
    /// The folder of ca.pem, ca.key and a .pem and a .key for each process.
    #[arg(long, global = true, value_name = "DIR", default_value = "pki")]
    dir: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make the cluster's authority. Whoever has its key can let processes in.
    Init {
        /// For how long it is valid.
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make a certificate for a process.
    Issue {
        /// What the process is.
        #[arg(long)]
        role: Role,
        /// The worker's id, or a name for the gateway's files.
        #[arg(long)]
        name: String,
        /// For how long it is valid.
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
        /// A further name or address that the certificate shall hold; several times for several.
        #[arg(long)]
        san: Vec<String>,
    },
    /// Make a certificate anew before it ends, for the same role and names.
    Renew {
        /// The name of its files, without the ending.
        name: String,
        /// For how long it is valid [default: as long as the last one was]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: Option<u32>,
        /// With another key; otherwise the key stays.
        #[arg(long)]
        new_key: bool,
    },
    /// Show what certificates say.
    Show {
        /// The name of its files, without the ending; all of the folder where it is missing.
        name: Option<String>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Gateway,
    Worker,
}

/// Makes or shows certificates.
pub(crate) fn run(args: &PkiArgs) -> Result<(), Failure> {
    let dir = &args.dir;
    match &args.what {
        What::Init { days } => {
            Authority::create(dir, *days).map_err(Failure::mendable)?;
            let shown = dir.display();
            say(&format!(
                "made {shown}/ca.pem and {shown}/ca.key; keep the key away from gateways and workers"
            ));
            Ok(())
        }
        What::Issue {
            role,
            name,
            days,
            san,
        } => {
            let role = match role {
                Role::Gateway => PeerRole::Gateway,
                Role::Worker => {
                    PeerRole::Worker(WorkerId::new(name.as_str()).map_err(Failure::mendable)?)
                }
            };
            let terms = Terms {
                days: *days,
                names: san.clone(),
            };
            let authority = authority(dir)?;
            authority
                .issue_new(name, &role, &terms)
                .map_err(Failure::mendable)?;
            shows(dir, std::slice::from_ref(name))
        }
        What::Renew {
            name,
            days,
            new_key,
        } => {
            let authority = authority(dir)?;
            authority
                .renew(name, *days, *new_key)
                .map_err(Failure::mendable)?;
            shows(dir, std::slice::from_ref(name))
        }
        What::Show { name: Some(name) } => shows(dir, std::slice::from_ref(name)),
        What::Show { name: None } => shows(dir, &all(dir)?),
    }
}

/// The authority of a folder; what makes one where there is none.
fn authority(dir: &Path) -> Result<Authority, Failure> {
    let say = |error| {
        let there = dir.join("ca.pem").exists();
        let hint = format!("; tandem pki --dir {} init makes one", dir.display());
        Failure::mendable(format!("{error}{}", if there { "" } else { &hint }))
    };
    Authority::open(dir).map_err(say)
}

/// The names of all certificates in the folder.
fn all(dir: &Path) -> Result<Vec<String>, Failure> {
    let fail = |error| Failure::mendable(format!("{}: {error}", dir.display()));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|ending| ending == "pem") {
            names.extend(
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}

fn shows(dir: &Path, names: &[String]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    // One that cannot be read hides none of the others.
    let mut unreadable = Vec::new();
    for name in names {
        let path = dir.join(format!("{name}.pem"));
        let certificate = match Certificate::read(&path) {
            Ok(certificate) => certificate,
            Err(error) => {
                unreadable.push(error.to_string());
                continue;
            }
        };
        rows.push([
            name.clone(),
            certificate.role(),
            certificate.from(),
            certificate.until(),
            certificate.names.join(","),
            certificate.fingerprint.clone(),
        ]);
    }
    if !rows.is_empty() {
        let head = ["NAME", "ROLE", "FROM", "UNTIL", "NAMES", "SHA256"];
        say(&table(head, &rows));
    }
    match unreadable.is_empty() {
        true => Ok(()),
        false => Err(Failure::mendable_all(unreadable)),
    }
}
