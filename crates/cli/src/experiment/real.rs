use super::ExperimentArgs;
use super::report::Report;
use crate::failure::Failure;
pub(super) fn run(_: &ExperimentArgs) -> Result<Report, Failure> {
    Err(Failure::fault("not yet"))
}
