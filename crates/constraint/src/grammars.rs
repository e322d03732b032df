//! Constraints compiled for one model.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value};
use tandem_text::TextModel;

use crate::error::reason;
use crate::{Constraint, ConstraintError, Kind, Matching, multiples, vocabulary};

/// Bounds of the work that one constraint may ask for.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: 2_000,
    // About 10 ms.
    initial_lexer_fuel: 500_000,
    // For each token: about 15 ms and 3 ms at most.
    step_lexer_fuel: 200_000,
    step_max_items: 50_000,
    // At one to two kilobytes.
    max_lexer_states: 50_000,
    max_grammar_size: 200_000,
    precompute_large_lexemes: true,
    verbose_errors: false,
};
/// Compiling recurses; no more of this is touched than is needed.
const STACK: usize = 256 << 20;
/// Compiled constraints that are kept, at most, and bytes of their texts.
const KEPT: usize = 32;
const KEPT_BYTES: usize = 64 << 10;
/// Between a JSON document's tokens at most a blank, or a new line and an indentation: a small model
/// would otherwise find nothing more likely than one blank after another.
const WHITESPACE: &str = r" |\n[ \t]{0,32}";

/// Compiles constraints for one model's vocabulary. Meant to be shared.
pub struct Grammars {
    text: Arc<TextModel>,
    /// Made when the first constraint comes.
    factory: OnceLock<Result<ParserFactory, ConstraintError>>,
    /// The one used last comes last.
    kept: Mutex<VecDeque<(Constraint, Matching)>>,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl Grammars {
    /// For this model. Quick: the vocabulary is looked at when the first constraint comes.
    #[must_use]
    pub fn new(text: Arc<TextModel>) -> Self {
        Self {
            text,
            factory: OnceLock::new(),
            kept: Mutex::default(),
        }
    }

    /// Whether a constraint can be used. As [`Grammars::compile`], of which it keeps the result for
    /// whoever asks next.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, constraint: &Constraint) -> Result<(), ConstraintError> {
        self.compile(constraint).map(drop)
    }

    /// An answer's beginning under a constraint.
    ///
    /// Blocks: most constraints take a few milliseconds (the first of a model some 100 ms more), the
    /// largest allowed ones a second. Not for a thread that others wait for.
    ///
    /// # Errors
    /// What is wrong with the constraint.
    pub fn compile(&self, constraint: &Constraint) -> Result<Matching, ConstraintError> {
        constraint.check_size()?;
        if let Some(matching) = self.kept(constraint) {
            return Ok(matching);
        }
        let matching = with_a_deep_stack(|| self.compile_anew(constraint))?;
        self.keep(constraint, &matching);
        Ok(matching)
    }

    fn compile_anew(&self, constraint: &Constraint) -> Result<Matching, ConstraintError> {
        let grammar = grammar(constraint)?;
        let factory = self.factory.get_or_init(|| factory(&self.text));
        let factory = factory.as_ref().map_err(Clone::clone)?;
        let matcher = Matcher::new(factory.create_parser(grammar));
        let refused = |why: String| ConstraintError::Refused {
            kind: constraint.kind(),
            why,
        };
        if let Some(error) = matcher.get_error() {
            return Err(refused(reason(&error)));
        }
        let matching = Matching::new(matcher);
        match matching.clone().allowed() {
            Ok(_) => Ok(matching),
            Err(error) => Err(refused(format!("no answer can begin by it ({error})"))),
        }
    }

    fn kept(&self, constraint: &Constraint) -> Option<Matching> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == constraint)?;
        let found = kept.remove(at)?;
        let matching = found.1.clone();
        kept.push_back(found);
        Some(matching)
    }

    fn keep(&self, constraint: &Constraint, matching: &Matching) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| known != constraint);
        kept.push_back((constraint.clone(), matching.clone()));
        let bytes = |kept: &VecDeque<(Constraint, Matching)>| -> usize {
            kept.iter().map(|(c, _)| c.text().len()).sum()
        };
        while kept.len() > KEPT || bytes(&kept) > KEPT_BYTES {
            kept.pop_front();
        }
    }
}

fn factory(text: &TextModel) -> Result<ParserFactory, ConstraintError> {
    let unusable = |error: &dyn ToString| ConstraintError::Unusable(reason(&error.to_string()));
    let environment = vocabulary::environment(text)?;
    let slices = SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
        .map_err(|error| unusable(&error))?;
    factory.quiet();
    *factory.limits_mut() = LIMITS;
    Ok(factory)
}

fn grammar(constraint: &Constraint) -> Result<TopLevelGrammar, ConstraintError> {
    Ok(match constraint {
        Constraint::JsonSchema(schema) => TopLevelGrammar::from_json_schema(json_schema(schema)?),
        Constraint::Regex(regex) => TopLevelGrammar::from_regex(regex),
        Constraint::Lark(grammar) => {
            multiples::check_lark(grammar)?;
            TopLevelGrammar::from_lark(grammar.clone())
        }
    })
}

/// Reads a schema; where it does not say how it wants its documents spaced, it is told.
fn json_schema(schema: &str) -> Result<Value, ConstraintError> {
    let value = serde_json::from_str(schema);
    let mut object = match value.map_err(|e| ConstraintError::NotJson(e.to_string()))? {
        Value::Object(object) => object,
        Value::Bool(true) => Map::new(),
        Value::Bool(false) => {
            return Err(ConstraintError::Refused {
                kind: Kind::JsonSchema,
                why: "no document is valid by it".to_owned(),
            });
        }
        Value::Null => return Err(ConstraintError::NotASchema("null")),
        Value::Number(_) => return Err(ConstraintError::NotASchema("a number")),
        Value::String(_) => return Err(ConstraintError::NotASchema("a string")),
        Value::Array(_) => return Err(ConstraintError::NotASchema("an array")),
    };
    let options = serde_json::json!({ "whitespace_pattern": WHITESPACE });
    object.entry("x-guidance").or_insert(options);
    let schema = Value::Object(object);
    multiples::check_schema(&schema)?;
    Ok(schema)
}

fn with_a_deep_stack<T: Send>(
    work: impl FnOnce() -> Result<T, ConstraintError> + Send,
) -> Result<T, ConstraintError> {
    let unusable = |why: &str| Err(ConstraintError::Unusable(why.to_owned()));
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("tandem-grammar".to_owned());
        match builder.stack_size(STACK).spawn_scoped(scope, work) {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| unusable("it broke the compiler")),
            Err(error) => unusable(&format!("cannot start a thread: {error}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Arc<TextModel> {
        let path = tandem_text::testing::model_file();
        Arc::new(TextModel::load(&path).unwrap())
    }

    #[test]
    fn the_latest_constraints_are_kept_and_no_more() {
        let grammars = Grammars::new(model());
        let regex = |n: usize| Constraint::Regex(format!("a{{{n}}}"));
        let kept = |n: usize| {
            let kept = grammars.kept.lock().unwrap();
            kept.iter().any(|(known, _)| *known == regex(n))
        };
        for n in 1..=KEPT {
            grammars.check(&regex(n)).unwrap();
        }
        grammars.check(&regex(1)).unwrap();
        grammars.check(&regex(KEPT + 1)).unwrap();
        assert_eq!(grammars.kept.lock().unwrap().len(), KEPT);
        assert!(kept(1) && kept(3) && kept(KEPT + 1));
        assert!(!kept(2), "the one that was used least lately");
    }
}
