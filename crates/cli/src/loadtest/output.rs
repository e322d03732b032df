//! Files of results. They are opened before a test, so that a path that cannot be written shows then.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tandem_loadtest::report;
use tandem_loadtest::results::Results;

use super::args::{LoadtestArgs, MergeArgs};
use super::requests::wrong;
use crate::console::say;
use crate::failure::Failure;

/// Where results go.
pub(super) struct Outputs {
    json: Option<(PathBuf, File)>,
    csv: Option<(PathBuf, File)>,
    html: Option<(PathBuf, File)>,
    requests: Option<BufWriter<File>>,
}

fn create(flag: &'static str, path: Option<&Path>) -> Result<Option<(PathBuf, File)>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let file =
        File::create(path).map_err(|error| wrong(flag, format!("{}: {error}", path.display())))?;
    Ok(Some((path.to_owned(), file)))
}

/// Writes a file of which the name was not tried before.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::mendable(format!("{}: {error}", path.display())))
}

impl Outputs {
    pub(super) fn create(args: &LoadtestArgs) -> Result<Self, Failure> {
        let requests = create("--requests-file", args.requests_file.as_deref())?;
        Ok(Self {
            json: create("--json", args.json.as_deref())?,
            csv: create("--csv", args.csv.as_deref())?,
            html: create("--html", args.html.as_deref())?,
            requests: requests.map(|(_, file)| BufWriter::new(file)),
        })
    }

    pub(super) fn of_merge(args: &MergeArgs) -> Result<Self, Failure> {
        Ok(Self {
            json: create("--json", args.json.as_deref())?,
            csv: create("--csv", args.csv.as_deref())?,
            html: create("--html", args.html.as_deref())?,
            requests: None,
        })
    }

    /// The file of requests.
    pub(super) fn requests(&mut self) -> Option<&mut (dyn Write + Send)> {
        let file = self.requests.as_mut()?;
        Some(file)
    }

    /// Prints the summary and writes the files.
    pub(super) fn write(self, results: &Results) -> Result<(), Failure> {
        say(report::text(results).trim_end());
        let write = |to: Option<(PathBuf, File)>, text: String| {
            let Some((path, mut file)) = to else {
                return Ok(());
            };
            file.write_all(text.as_bytes())
                .map_err(|error| Failure::fault(format!("{}: {error}", path.display())))
        };
        if self.json.is_some() {
            let json = serde_json::to_string_pretty(results).map_err(Failure::fault)?;
            write(self.json, json + "\n")?;
        }
        write(self.csv, report::csv(results))?;
        if self.html.is_some() {
            write(self.html, page(results))?;
        }
        Ok(())
    }
}

fn page(results: &Results) -> String {
    let name = "this test";
    report::html(&[report::Shown { name, results }], None)
}
