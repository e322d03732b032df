//! One answer under a constraint.

use llguidance::Matcher;
use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;

use crate::ConstraintError;
use crate::error::reason;

/// One answer under a constraint: what it is so far, and so what may come next. A clone goes its own
/// way.
pub struct Matching(Matcher);

impl Clone for Matching {
    fn clone(&self) -> Self {
        // Not with shared lexer states, which are bounded: an answer's bounds are its own.
        Self(self.0.deep_clone())
    }
}

/// The tokens that may come next.
pub struct Allowed(SimpleVob);

impl Matching {
    pub(crate) const fn new(matcher: Matcher) -> Self {
        Self(matcher)
    }

    /// Which tokens may come next, the end tokens among them where the answer may end. Takes from some
    /// 10 µs to a few milliseconds.
    ///
    /// # Errors
    /// [`ConstraintError::Lost`]: it takes more than it may, or no token can go on.
    pub fn allowed(&mut self) -> Result<Allowed, ConstraintError> {
        self.0.compute_mask().map(Allowed).map_err(lost)
    }

    /// Whether the answer may end here.
    ///
    /// # Errors
    /// [`ConstraintError::Lost`].
    pub fn may_end(&mut self) -> Result<bool, ConstraintError> {
        self.0.is_accepting().map_err(lost)
    }

    /// The answer goes on with these tokens.
    ///
    /// # Errors
    /// [`ConstraintError::Lost`]: one of them may not come next.
    pub fn take(&mut self, tokens: &[u32]) -> Result<(), ConstraintError> {
        self.0.consume_tokens(tokens).map_err(lost)
    }

    /// Whether the answer is complete: it may end here, and nothing else.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(
            self.0.stop_reason(),
            StopReason::NoExtension | StopReason::EndOfSentence
        )
    }
}

fn lost(error: impl ToString) -> ConstraintError {
    ConstraintError::Lost(reason(&error))
}

impl Allowed {
    /// Whether this token is among them.
    #[must_use]
    pub fn allows(&self, token: u32) -> bool {
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }

    /// Makes all others impossible.
    pub fn bar_others(&self, logits: &mut [f32]) {
        let words = self.0.as_slice().iter().copied();
        let words = words.chain(std::iter::repeat(0));
        for (logits, word) in logits.chunks_mut(32).zip(words) {
            for (bit, logit) in logits.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}
