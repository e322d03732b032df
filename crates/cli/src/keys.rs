//! `tandem keys`: API keys, of which a file keeps the hashes.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use rand::TryRngCore;
use rand::rngs::OsRng;
use tandem_config::{ApiKey, ConfigError, KeyEntry, KeyFile, Limits, Unreadable, parse_expiry};

use crate::console::{say, table};
use crate::failure::Failure;

/// Command line of `tandem keys`.
#[derive(Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a key: it is shown once, and its hash put at the end of the file.
    New(Box<NewArgs>),
    /// Show whose keys a file holds.
    List {
        /// The file of keys.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Args)]
struct NewArgs {
    /// Whose key it is.
    #[arg(long, required_unless_present = "admin")]
    tenant: Option<String>,
    /// A key for operators: shows the line for the admin table.
    #[arg(long, conflicts_with_all = ["tenant", "name", "file", "expires", "class", "model"])]
    admin: bool,
    /// What its owner calls it.
    #[arg(long)]
    name: Option<String>,
    /// The file of keys, made where there is none; without it the entry is shown too.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// When it ends: 2027-01-31, or 2027-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN", value_parser = parse_expiry)]
    expires: Option<u64>,
    /// An SLO class that it may ask for; several times for several [default: every one]
    #[arg(long)]
    class: Vec<String>,
    /// A model that it may use; several times for several [default: every one]
    #[arg(long)]
    model: Vec<String>,
    /// The SLO class of its requests that name none [default: the configuration's]
    #[arg(long, value_name = "CLASS")]
    default_class: Option<String>,
    /// Requests in a second.
    #[arg(long, value_name = "N")]
    requests_per_second: Option<u32>,
    /// Tokens in a minute, of prompts and answers.
    #[arg(long, value_name = "N")]
    tokens_per_minute: Option<u64>,
    /// Requests in flight at once.
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
}

/// Makes or shows keys.
pub(crate) fn run(args: KeysArgs) -> Result<(), Failure> {
    match args.what {
        What::New(new) => make(*new),
        What::List { file } => list(&file),
    }
}

fn make(args: NewArgs) -> Result<(), Failure> {
    let mut bytes = [0; ApiKey::RANDOM_BYTES];
    OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| Failure::fault(format!("no random numbers: {error}")))?;
    let key = ApiKey::from_random(bytes);
    let hash = ApiKey::hash_of(key.reveal());
    if args.admin {
        say(&format!(
            "{}\n# shown this once; in [admin] of the gateway's configuration:\nkey_hash = \"sha256:{hash}\"",
            key.reveal()
        ));
        return Ok(());
    }
    let list = |names: Vec<String>| Some(names).filter(|names| !names.is_empty());
    let entry = KeyEntry {
        id: key.id().to_owned(),
        tenant: args.tenant.unwrap_or_default(),
        name: args.name,
        hash,
        expires: args.expires,
        class: args.default_class,
        classes: list(args.class),
        models: list(args.model),
        limits: Limits {
            requests_per_second: args.requests_per_second,
            tokens_per_minute: args.tokens_per_minute,
            concurrency: args.concurrency,
        },
    };
    if let Some(expires) = entry.shown_expiry().filter(|_| is_past(entry.expires)) {
        return Err(Failure::mendable(format!(
            "--expires {expires}: is past; the key would open nothing"
        )));
    }
    let text = entry.to_toml();
    let entry_alone = KeyFile::parse(&text, Path::new("the new key"));
    entry_alone.map_err(|problems| Failure::from(ConfigError::from(problems)))?;
    match &args.file {
        Some(file) => {
            append(file, &text)?;
            say(&format!(
                "{}\n# shown this once; {} keeps its hash",
                key.reveal(),
                file.display()
            ));
        }
        None => say(&format!(
            "{}\n# shown this once; for the file of keys:\n{text}",
            key.reveal()
        )),
    }
    Ok(())
}

fn is_past(expires: Option<u64>) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |time| time.as_secs());
    expires.is_some_and(|expires| expires <= now)
}

/// Puts an entry at the end of a file, whole or not at all.
fn append(file: &Path, entry: &str) -> Result<(), Failure> {
    let fail = |error| {
        Failure::from(ConfigError::from(Unreadable {
            path: file.to_owned(),
            error,
        }))
    };
    let (old, mode) = match fs::read_to_string(file) {
        Ok(text) => {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(file).map_err(fail)?.permissions().mode() & 0o777;
            (text, mode)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (String::new(), 0o600),
        Err(error) => return Err(fail(error)),
    };
    let gap = if old.is_empty() { "" } else { "\n" };
    let end = if old.is_empty() || old.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let text = format!("{old}{end}{gap}{entry}");
    // A file that is wrong already is not made longer.
    KeyFile::parse(&text, file).map_err(|problems| Failure::from(ConfigError::from(problems)))?;
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let beside = PathBuf::from(name);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut out| out.write_all(text.as_bytes()).and_then(|()| out.sync_all()))
        .and_then(|()| fs::rename(&beside, file))
        .map_err(fail)
}

fn list(file: &Path) -> Result<(), Failure> {
    let keys = KeyFile::load(file)?.keys;
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let rows: Vec<_> = keys
        .iter()
        .map(|key| {
            let names = |names: &Option<Vec<String>>| {
                names
                    .as_ref()
                    .map_or_else(|| "all".to_owned(), |names| names.join(","))
            };
            [
                key.id.clone(),
                key.tenant.clone(),
                or_dash(key.name.clone()),
                key.shown_expiry().unwrap_or_else(|| "never".to_owned()),
                names(&key.classes),
                names(&key.models),
            ]
        })
        .collect();
    say(&table(
        ["ID", "TENANT", "NAME", "EXPIRES", "CLASSES", "MODELS"],
        &rows,
    ));
    Ok(())
}
