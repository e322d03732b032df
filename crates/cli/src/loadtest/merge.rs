//! `tandem loadtest merge`: the parts of one test, added up.

use std::path::Path;

use tandem_loadtest::results::{FORMAT, Results, merge};

use super::args::MergeArgs;
use super::output::Outputs;
use super::verdict;
use crate::failure::Failure;

/// Does it.
pub(super) fn run(args: &MergeArgs) -> Result<(), Failure> {
    let assertions = verdict::parse(&args.asserts)?;
    let parts = args.parts.iter().map(|path| read(path));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let mut sum = merge(&parts).map_err(Failure::mendable)?;
    verdict::check_classes(&assertions, &sum.slos, &classes(&sum))?;
    sum.assertions = verdict::check(&assertions, &sum);
    Outputs::of_merge(args)?.write(&sum)?;
    verdict::verdict(&sum, &assertions, false)
}

/// The classes of which there are figures, or limits.
fn classes(results: &Results) -> Vec<String> {
    let runs = results.runs.iter();
    let named = runs.flat_map(|run| run.phases.measured.classes.keys());
    named.chain(results.slos.classes.keys()).cloned().collect()
}

fn read(path: &Path) -> Result<Results, Failure> {
    let wrong = |error: String| Failure::mendable(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    let format = value["format"].as_str().unwrap_or("none");
    if format != FORMAT {
        return Err(wrong(format!("its format is {format}, want {FORMAT}")));
    }
    serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
}
