//! `tandem status`: a running gateway's view of its workers.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use crate::console::{is_terminal, say, table, try_say};
use crate::failure::Failure;
use crate::http::{self, Answer, Ask, Site, Trust};

/// Command line of `tandem status`.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// The gateway.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// An API key, where the gateway asks for one [default: $TANDEM_API_KEY]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    trust: Trust,
    /// All that the gateway says, as JSON.
    #[arg(long)]
    json: bool,
    /// Again every second: in place on a terminal, one after the other elsewhere.
    #[arg(long)]
    watch: bool,
}

/// Between two looks with `--watch`.
const EVERY: Duration = Duration::from_secs(1);
/// To the terminal's upper left corner, and nothing below it.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// What a gateway serves at `/tandem/status`, as far as it is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) model: Option<String>,
    pub(crate) gateway: Gateway,
    pub(crate) workers: Vec<Worker>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Gateway {
    pub(crate) in_flight: u64,
    pub(crate) queued: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    pub(crate) id: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) address: String,
    pub(crate) state: String,
    pub(crate) provider: Option<String>,
    pub(crate) software: Option<bool>,
    pub(crate) model: Option<String>,
    pub(crate) pages: Option<Pages>,
    pub(crate) queued: Option<u64>,
    pub(crate) running: Option<u64>,
    pub(crate) weight: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pages {
    pub(crate) total: u64,
    pub(crate) free: u64,
}

/// Asks, and prints a table.
pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let site = Site::of(&args.url, &args.trust).map_err(Failure::mendable)?;
    let key = http::key(args.key.as_deref(), "TANDEM_API_KEY").map_err(Failure::mendable)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("cannot start: {error}")))?;
    let look = || runtime.block_on(look(args, &site, key.as_deref()));
    if !args.watch {
        say(&look()?);
        return Ok(());
    }
    // Whoever watches waits for a gateway that is away to be back.
    loop {
        let seen = look().unwrap_or_else(|failure| failure.to_string());
        let clear = if is_terminal() { CLEAR } else { "" };
        if !try_say(&format!("{clear}{seen}")) {
            return Ok(());
        }
        std::thread::sleep(EVERY);
    }
}

async fn look(args: &StatusArgs, site: &Site, key: Option<&str>) -> Result<String, Failure> {
    let url = &args.url;
    let fault = |reason| Failure::fault(format!("no gateway at {url}: {reason}"));
    let answer = ask(site, key).await.map_err(fault)?;
    let body = match (answer.code, key) {
        (401, None) => {
            let what = "asks for a key: give --key, or TANDEM_API_KEY in the environment";
            return Err(Failure::mendable(format!("{url} {what}")));
        }
        (401, Some(_)) => return Err(Failure::mendable(format!("{url} does not know this key"))),
        _ => body(answer).map_err(fault)?,
    };
    if args.json {
        return Ok(body);
    }
    Ok(show(&read(&body).map_err(fault)?))
}

/// The gateway's status; the error says what failed, without the address.
pub(crate) async fn fetch(site: &Site) -> Result<Status, String> {
    read(&body(ask(site, None).await?)?)
}

async fn ask(site: &Site, key: Option<&str>) -> Result<Answer, String> {
    http::ask(site, Ask::get("/tandem/status").with_key(key)).await
}

fn body(answer: Answer) -> Result<String, String> {
    match answer.code {
        200 => Ok(answer.body),
        code => Err(format!("/tandem/status answers {code}")),
    }
}

fn read(body: &str) -> Result<Status, String> {
    serde_json::from_str(body).map_err(|error| format!("/tandem/status: {error}"))
}

fn show(status: &Status) -> String {
    let model = status.model.as_deref().unwrap_or("none yet");
    let Gateway { in_flight, queued } = status.gateway;
    let head = [
        "WORKER",
        "ROLE",
        "STATE",
        "ADDRESS",
        "PROVIDER",
        "FREE/PAGES",
        "QUEUED",
        "RUNNING",
        "WEIGHT",
        "MODEL",
    ];
    let rows: Vec<_> = status.workers.iter().map(row).collect();
    format!(
        "model {model}, {in_flight} requests in flight, {queued} queued\n{}",
        table(head, &rows)
    )
}

fn row(worker: &Worker) -> [String; 10] {
    let number = |n: Option<u64>| text(n.map(|n| n.to_string()));
    [
        text(worker.id.clone()),
        text(worker.role.clone()),
        worker.state.clone(),
        worker.address.clone(),
        worker.provider(),
        text(
            worker
                .pages
                .as_ref()
                .map(|pages| format!("{}/{}", pages.free, pages.total)),
        ),
        number(worker.queued),
        number(worker.running),
        number(worker.weight),
        text(worker.model.clone()),
    ]
}

impl Worker {
    /// Its name, and that it is software where it is.
    pub(crate) fn provider(&self) -> String {
        match (&self.provider, self.software) {
            (Some(name), Some(true)) => format!("{name} (software)"),
            (name, _) => text(name.clone()),
        }
    }
}

fn text(value: Option<String>) -> String {
    value
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_shown_as_a_table_whatever_is_missing() {
        let json = r#"{"model": "m", "gateway": {"in_flight": 3, "queued": 1, "new": true},
            "workers": [
              {"id": "decode-0", "role": "decode", "address": "127.0.0.1:7101", "state": "ready",
               "incarnation": 17, "provider": "tcp", "software": true, "model": "m",
               "pages": {"total": 728, "free": 700, "leased": 28}, "queued": 0, "running": 2, "weight": 50},
              {"address": "127.0.0.1:7102", "state": "connecting", "id": null}]}"#;
        let shown = show(&serde_json::from_str(json).unwrap());
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "model m, 3 requests in flight, 1 queued");
        assert!(lines[2].contains("decode  ready"), "{shown}");
        assert!(lines[2].contains("tcp (software)  700/728"), "{shown}");
        assert!(
            lines[3].starts_with("-         -       connecting  127.0.0.1:7102"),
            "{shown}"
        );
    }
}
