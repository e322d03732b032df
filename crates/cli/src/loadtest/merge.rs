//! `tandem loadtest merge`: the parts of one test, added up.

use tandem_loadtest::results::{Results, merge};

use super::args::MergeArgs;
use super::output::Outputs;
use super::verdict::Meant;
use super::{saved, verdict};
use crate::failure::Failure;

/// Does it.
pub(super) fn run(args: &MergeArgs) -> Result<(), Failure> {
    let assertions = verdict::parse(&args.asserts)?;
    let parts = args.parts.iter().map(|path| saved::results(path));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let mut sum = merge(&parts).map_err(Failure::mendable)?;
    verdict::check_classes(&assertions, &sum.slos, &classes(&sum))?;
    sum.assertions = verdict::check(&assertions, &sum);
    Outputs::of_merge(args)?.write(&sum)?;
    verdict::verdict(&sum, &assertions, Meant::default())
}

/// The classes of which there are figures, or limits.
fn classes(results: &Results) -> Vec<String> {
    let runs = results.runs.iter();
    let named = runs.flat_map(|run| run.phases.measured.classes.keys());
    named.chain(results.slos.classes.keys()).cloned().collect()
}
