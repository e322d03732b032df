//! `tandem loadtest report`: a page of saved results.

use tandem_loadtest::report::{Shown, html};

use super::args::ReportArgs;
use super::{output, saved};
use crate::failure::Failure;

/// Does it.
pub(super) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let results = args.results.iter().map(|path| saved::results(path));
    let results = results.collect::<Result<Vec<_>, _>>()?;
    let requests = args.requests.as_deref();
    let slowest = requests.map(saved::slowest).transpose()?;
    let names: Vec<String> = args
        .results
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let tests: Vec<Shown<'_>> = names
        .iter()
        .zip(&results)
        .map(|(name, results)| Shown { name, results })
        .collect();
    let named = requests.map(|path| path.display().to_string());
    let slowest = named.as_deref().zip(slowest.as_deref());
    output::write(&args.html, &html(&tests, slowest))
}
