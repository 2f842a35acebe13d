//! A grammar on its way through one answer: which tokens may come next. What it may compute for the whole answer is bounded,
//! and with that its memory.

use super::compiler::{fuel_of_last_mask, readable};
use crate::api_error::ApiError;
use llguidance::Matcher;

/// What the masks of one answer may cost together, in the library's unit: about a second of a core, which leaves some hundred
/// MiB behind. One mask may cost 200,000; most cost next to nothing, because their states are known.
const ANSWER_FUEL_MAX: u64 = 16_000_000;

/// A grammar on its way through one answer.
#[derive(Clone)]
pub(crate) struct Constraint {
    matcher: Matcher,
    /// The end of an answer, as the grammar has it.
    end: u32,
    fuel_left: u64,
}

impl Constraint {
    pub(super) fn new(matcher: Matcher, end: u32) -> Self {
        Self {
            matcher,
            end,
            fuel_left: ANSWER_FUEL_MAX,
        }
    }

    /// A copy with a memory of its own, for another thread; a clone shares what it computes.
    pub fn apart(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            ..*self
        }
    }

    /// Takes away the tokens that may not come next. `ends` may come where the answer may end. Whether any token but an end
    /// is left; if not, the answer is whole.
    ///
    /// # Errors
    /// When the grammar has become too complex.
    pub fn mask(&mut self, logits: &mut [f32], ends: &[u32]) -> Result<bool, ApiError> {
        let allowed = self.matcher.compute_mask_or_eos();
        let allowed = allowed.map_err(|error| lost(&error.to_string()))?;
        let spent = fuel_of_last_mask(&self.matcher);
        let left = self.fuel_left.checked_sub(spent);
        self.fuel_left = left.ok_or_else(|| lost("its expressions are too complex"))?;
        let may_end = allowed.is_allowed(self.end);
        let mut goes_on = false;
        for (token, logit) in (0u32..).zip(logits.iter_mut()) {
            let is_end = ends.contains(&token);
            if allowed.is_allowed(token) {
                goes_on |= !is_end;
            } else if !(is_end && may_end) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(goes_on)
    }

    /// Goes on by a token that is no end.
    ///
    /// # Errors
    /// When the grammar has too many ways on from there, which is the request's.
    pub fn accept(&mut self, token: u32) -> Result<(), ApiError> {
        let gone = self.matcher.consume_token(token);
        gone.map_err(|error| lost(&error.to_string()))
    }

    /// Nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

fn lost(reason: &str) -> ApiError {
    let reason = readable(reason);
    ApiError::invalid(format!("the grammar cannot be followed any more: {reason}"))
}
