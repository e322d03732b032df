//! A server that answers at stated times, to hold load tools against: no model, no queue, tokens are words.
//!
//!     tandem-known-server [ADDRESS] [first=20ms] [gap=20ms] [bundle=1]
//!
//! `first`: to the first token; `gap`: between events; `bundle`: tokens of an event. The model is `known`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tandem_loadtest::known_server::{Behaviour, KnownServer, Script};
use tandem_loadtest::units::duration;

type Error = Box<dyn std::error::Error>;

struct Settings {
    address: String,
    first: Duration,
    gap: Duration,
    bundle: u32,
}

const USAGE: &str = "usage: tandem-known-server [ADDRESS] [first=20ms] [gap=20ms] [bundle=1]\n\
                     first: to the first token; gap: between events; bundle: tokens of an event";

fn settings() -> Result<Settings, Error> {
    let mut settings = Settings {
        address: "127.0.0.1:8000".to_owned(),
        first: Duration::from_millis(20),
        gap: Duration::from_millis(20),
        bundle: 1,
    };
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("first", time)) => settings.first = duration(time)?,
            Some(("gap", time)) => settings.gap = duration(time)?,
            Some(("bundle", tokens)) => settings.bundle = tokens.parse::<u32>()?.max(1),
            Some((name, _)) => return Err(format!("{name}: want first, gap or bundle").into()),
            None if argument == "--help" || argument == "-h" => return Err(USAGE.into()),
            None if argument.parse::<SocketAddr>().is_ok() => settings.address = argument,
            None => {
                return Err(
                    format!("{argument}: want an address such as 127.0.0.1:8000\n{USAGE}").into(),
                );
            }
        }
    }
    Ok(settings)
}

#[allow(clippy::print_stderr, reason = "says what is wrong")]
fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "says where it listens")]
async fn serve() -> Result<(), Error> {
    let Settings {
        address,
        first,
        gap,
        bundle,
    } = settings()?;
    tandem_loadtest::raise_descriptors();
    let server = KnownServer::start(
        &address,
        Behaviour {
            models: vec!["known".to_owned()],
            key: None,
            chunk_usage: true,
            notes: false,
            answer: Box::new(move |asked| Script {
                first,
                gap,
                tokens: asked.max_tokens,
                tokens_per_event: bundle,
                fault: None,
            }),
        },
    )
    .await?;
    println!("listening on http://{}", server.address());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
