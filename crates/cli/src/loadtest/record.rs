//! `tandem loadtest record`: a gateway's log as a trace that `--trace` replays.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use clap::Args;
use tandem_loadtest::recorder::{Counts, Recording};

use crate::console::{complain, say};
use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct RecordArgs {
    /// Logs of one gateway or several, of the format "json"; with log_prefix_hashes in the gateway's table telemetry the
    /// trace has the prompts' shared beginnings.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Write the trace here [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// With requests that failed, or whose client left.
    #[arg(long)]
    all: bool,
}

/// Does it.
pub(super) fn run(args: &RecordArgs) -> Result<(), Failure> {
    let recording = Recording::read(&args.logs, args.all).map_err(Failure::mendable)?;
    let found = summary(recording.counts());
    let Some(path) = &args.output else {
        let written = recording.write(BufWriter::new(io::stdout().lock()));
        if written.is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe) {
            return Err(Failure::fault("standard output cannot be written"));
        }
        complain(&found);
        return Ok(());
    };
    let named = |error: io::Error| format!("{}: {error}", path.display());
    let file = File::create(path).map_err(|error| Failure::mendable(named(error)))?;
    let written = recording.write(BufWriter::new(file));
    written.map_err(|error| Failure::fault(named(error)))?;
    say(&format!("{}: {found}", path.display()));
    Ok(())
}

fn summary(counts: Counts) -> String {
    let mut text = format!(
        "{} requests in {} s",
        counts.requests,
        counts.length_ms as f64 / 1e3
    );
    if counts.unnamed == counts.requests {
        text +=
            ", no shared beginnings ([telemetry] log_prefix_hashes = true would have them logged)";
    } else {
        text += &format!(
            ", {} of {} blocks shared with earlier ones",
            counts.shared_blocks, counts.blocks
        );
        if counts.unnamed > 0 {
            text += &format!(" ({} requests name no blocks)", counts.unnamed);
        }
    }
    for (count, what) in [
        (counts.failed, "that failed (--all takes them)"),
        (counts.unread, "whose prompt was never read"),
        (counts.further, "that are further answers to others"),
    ] {
        if count > 0 {
            text += &format!("; left out {count} {what}");
        }
    }
    match counts.other_lines {
        0 => text,
        lines => text + &format!("; {lines} other lines"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_and_what_was_left_out_is_one_line() {
        let counts = Counts {
            requests: 3,
            failed: 2,
            other_lines: 9,
            unnamed: 3,
            length_ms: 1500,
            ..Counts::default()
        };
        assert_eq!(
            summary(counts),
            "3 requests in 1.5 s, no shared beginnings ([telemetry] log_prefix_hashes = true would have them logged); \
             left out 2 that failed (--all takes them); 9 other lines"
        );
        let named = Counts {
            unnamed: 1,
            blocks: 8,
            shared_blocks: 5,
            failed: 0,
            other_lines: 0,
            ..counts
        };
        assert_eq!(
            summary(named),
            "3 requests in 1.5 s, 5 of 8 blocks shared with earlier ones (1 requests name no blocks)"
        );
    }
}
