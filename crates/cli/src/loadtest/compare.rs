//! `tandem loadtest compare`: two saved results side by side.

use tandem_loadtest::compare::{Rules, compare};
use tandem_loadtest::report;
use tandem_loadtest::units::share;

use super::args::CompareArgs;
use super::requests::wrong;
use super::{output, saved};
use crate::console::say;
use crate::failure::Failure;

/// Does it.
pub(super) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let rules = rules(args)?;
    let (a, b) = (saved::results(&args.a)?, saved::results(&args.b)?);
    let found = compare(&a, &b, rules).map_err(|error| {
        let (a, b) = (args.a.display(), args.b.display());
        Failure::mendable(format!("{a} and {b}: {error}"))
    })?;
    say(&format!(
        "A           {}\nB           {}",
        args.a.display(),
        args.b.display()
    ));
    say(report::comparison(&found).trim_end());
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&found).map_err(Failure::fault)?;
        output::write(path, &(json + "\n"))?;
    }
    if args.fail_on_worse && found.is_worse() {
        let b = args.b.display();
        return Err(Failure::fault(format!(
            "{b} is worse than {}",
            args.a.display()
        )));
    }
    Ok(())
}

fn rules(args: &CompareArgs) -> Result<Rules, Failure> {
    let of = |name: &'static str, text: &str| share(text).map_err(|error| wrong(name, error));
    let confidence = of("--confidence", &args.confidence)?;
    if !(0.5..1.0).contains(&confidence) {
        let found = &args.confidence;
        return Err(wrong(
            "--confidence",
            format!("{found}: want 50% or more, and less than 100%"),
        ));
    }
    Ok(Rules {
        confidence,
        least: of("--least", &args.least)?,
    })
}
