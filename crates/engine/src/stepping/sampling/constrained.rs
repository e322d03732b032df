//! What a constraint lets come next.

use tandem_constraint::{Allowed, Constraint, ConstraintError, Matching};

/// How far a sequence is bound.
pub(super) enum Constrained {
    /// It may say anything.
    Free,
    /// Its constraint is being compiled.
    Waits,
    /// It follows one.
    By(Box<Following>),
}

/// An answer under a constraint.
pub(super) struct Following {
    matching: Matching,
    /// What may come next, where it has been computed.
    next: Option<Result<Allowed, ConstraintError>>,
}

impl Constrained {
    pub(super) fn by(constraint: Option<&Constraint>) -> Self {
        constraint.map_or(Self::Free, |_| Self::Waits)
    }

    pub(super) fn follow(&mut self, matching: Matching) {
        let next = None;
        *self = Self::By(Box::new(Following { matching, next }));
    }

    /// Whether a constraint lets the answer end here.
    pub(super) fn may_end(&mut self) -> bool {
        match self {
            Self::By(following) => following.matching.may_end().unwrap_or(false),
            Self::Free | Self::Waits => false,
        }
    }
}

impl Following {
    pub(super) fn look_ahead(&mut self) {
        let Self { matching, next } = self;
        next.get_or_insert_with(|| matching.allowed());
    }

    /// Bars what may not come next. Where the answer may end, it also may by one of `ends`.
    pub(super) fn bar_others(
        &mut self,
        logits: &mut [f32],
        ends: &[u32],
    ) -> Result<(), ConstraintError> {
        self.look_ahead();
        let allowed = self
            .next
            .take()
            .unwrap_or_else(|| self.matching.allowed())?;
        let spared: Vec<(u32, f32)> = match !ends.is_empty() && self.matching.may_end()? {
            true => ends.iter().map(|t| (*t, logits[*t as usize])).collect(),
            false => Vec::new(),
        };
        allowed.bar_others(logits);
        for (token, logit) in spared {
            logits[token as usize] = logit;
        }
        Ok(())
    }

    pub(super) fn take(&mut self, token: u32) -> Result<(), ConstraintError> {
        self.next = None;
        self.matching.take(&[token])
    }

    pub(super) fn is_complete(&self) -> bool {
        self.matching.is_complete()
    }
}
