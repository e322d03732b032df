//! `[policy.prefill]` and `[policy.decode]`.

use tandem_core::pairing::Stage;
use tandem_policies::{Picker, Rule, Scorer, StageSettings};

use crate::section::Section;

/// A picker before its temperature is known.
#[derive(Clone, Copy, PartialEq)]
enum Named {
    Highest,
    Softmax,
    WeightedRandom,
    PowerOfTwo,
}

const PICKERS: [(&str, Named); 4] = [
    ("highest", Named::Highest),
    ("softmax", Named::Softmax),
    ("weighted_random", Named::WeightedRandom),
    ("power_of_two", Named::PowerOfTwo),
];

/// What to do without where `choose = "scored"` needs it.
const NEEDS_WEIGHTS: &str =
    "`choose = \"scored\"` needs `weights`: scorers and how much each counts";

/// A stage without a table of its own: `choose` is what `[policy]` says for both.
pub(super) fn untold(policy: &mut Section<'_, '_>, choose: Option<Rule>) -> StageSettings {
    let choose = choose.unwrap_or_default();
    if choose == Rule::Scored {
        policy.refuse(None, NEEDS_WEIGHTS);
    }
    StageSettings {
        choose,
        ..StageSettings::default()
    }
}

/// A stage's table; `both` is what `[policy]` says for both stages.
pub(super) fn read(
    section: &mut Section<'_, '_>,
    both: Option<Rule>,
    stage: Stage,
) -> StageSettings {
    let choose = section.choice("choose", &Rule::NAMES);
    let choose = choose.or(both).unwrap_or_default();
    let picker_line = section.line_of("picker");
    let weights_line = section.line_of("weights");
    let temperature_line = section.line_of("temperature");
    let picker = section.choice("picker", &PICKERS);
    let temperature = section.real("temperature", 0.001..=1000.0);
    let weights = section
        .table("weights", |t| weights(t, stage))
        .unwrap_or_default();
    let want = "a table of at most 6 labels, such as { pool = \"a\" }";
    let labels = section
        .read("labels", want, super::labels)
        .unwrap_or_default();
    let scored = choose == Rule::Scored;
    for (key, line) in [("picker", picker_line), ("weights", weights_line)] {
        if line.is_some() && !scored {
            let message = format!(
                "{key}: only `choose = \"scored\"` has it, and this is `{}`",
                choose.as_str()
            );
            section.refuse(line, &message);
        }
    }
    if scored && weights.is_empty() {
        section.refuse(None, NEEDS_WEIGHTS);
    }
    let softmax = picker == Some(Named::Softmax);
    if temperature_line.is_some() && !softmax {
        let message = "temperature: only `picker = \"softmax\"` has it";
        section.refuse(temperature_line, message);
    }
    StageSettings {
        choose,
        picker: match picker.unwrap_or(Named::Highest) {
            Named::Highest => Picker::Highest,
            Named::Softmax => Picker::Softmax {
                temperature: temperature.unwrap_or(1.0),
            },
            Named::WeightedRandom => Picker::WeightedRandom,
            Named::PowerOfTwo => Picker::PowerOfTwo,
        },
        weights,
        labels,
    }
}

fn weights(section: &mut Section<'_, '_>, stage: Stage) -> Vec<(Scorer, f32)> {
    let fitting = Scorer::NAMES.iter().filter(|(_, s)| s.fits(stage));
    fitting
        .filter_map(|(name, scorer)| Some((*scorer, section.real(name, 0.0..=1000.0)?)))
        .collect()
}
