//! The state of a grammar within one completion: which tokens may come next. The work for a completion is bounded, and with it the
//! memory.

use super::compiler::{fuel_of_last_mask, readable};
use crate::api_error::ApiError;
use llguidance::Matcher;

/// Fuel limit for all masks of one completion: about a second of one core, which retains a few hundred MiB. One mask may cost
/// 200,000; most cost almost nothing, because their states are cached.
const RESPONSE_FUEL_MAX: u64 = 16_000_000;

/// The state of a grammar within one completion.
#[derive(Clone)]
pub(crate) struct Constraint {
    matcher: Matcher,
    /// The grammar's token for the end of a completion.
    end: u32,
    fuel_left: u64,
}

impl Constraint {
    pub(super) fn new(matcher: Matcher, end: u32) -> Self {
        Self {
            matcher,
            end,
            fuel_left: RESPONSE_FUEL_MAX,
        }
    }

    /// Returns an independent copy for another thread. A clone would share its cached states.
    pub fn apart(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            ..*self
        }
    }

    /// Masks the tokens that may not come next. The tokens in `ends` remain if the completion may end. Returns true if any token
    /// other than those is allowed; otherwise the completion is finished.
    ///
    /// # Errors
    /// If the grammar has become too complex.
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

    /// Advances by a token that is not an end token.
    ///
    /// # Errors
    /// If the grammar is too complex at this point, which is the request's fault.
    pub fn accept(&mut self, token: u32) -> Result<(), ApiError> {
        let gone = self.matcher.consume_token(token);
        gone.map_err(|error| lost(&error.to_string()))
    }

    /// Returns true if nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

fn lost(reason: &str) -> ApiError {
    let reason = readable(reason);
    ApiError::invalid(format!("the grammar can no longer be followed: {reason}"))
}
