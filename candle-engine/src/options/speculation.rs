//! The options of speculative decoding by prompt lookup.

use super::DeviceChoice;
use crate::error::EngineError;

/// Default number of proposed tokens on the CPU.
const TOKENS: usize = 8;
/// Upper bound; more than a step ever holds.
const TOKENS_MAX: usize = 64;
/// Upper bound; each length needs a separate index.
const LOOKUP_MAX: usize = 16;

/// Speculative decoding by prompt lookup: finds the last tokens of a sequence earlier in its prompt and completion, and proposes
/// the tokens that followed there. Proposals are verified together in one step. Completions do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speculation {
    /// Maximum number of tokens to propose per sequence and step; 0 disables speculation. `None` means 8 on the CPU, where the bits
    /// of a row do not depend on its batch, and 0 on GPUs, where they do.
    pub tokens: Option<usize>,
    /// Maximum number of last tokens to look up; longer matches are tried first.
    pub lookup_max: usize,
    /// Minimum number of last tokens to look up.
    pub lookup_min: usize,
}

impl Default for Speculation {
    fn default() -> Self {
        Self {
            tokens: None,
            lookup_max: 3,
            lookup_min: 2,
        }
    }
}

impl Speculation {
    /// Speculation disabled.
    pub const OFF: Self = Self {
        tokens: Some(0),
        lookup_max: 3,
        lookup_min: 2,
    };

    /// Maximum number of tokens to propose per step on these devices.
    pub(crate) fn tokens_on(&self, devices: &[DeviceChoice]) -> usize {
        let is_exact = devices.iter().all(|device| *device == DeviceChoice::Cpu);
        self.tokens.unwrap_or(if is_exact { TOKENS } else { 0 })
    }

    pub(super) fn validate(&self) -> Result<(), EngineError> {
        if let Some(tokens) = self.tokens.filter(|tokens| *tokens > TOKENS_MAX) {
            return Err(EngineError::option(
                "num_speculative_tokens",
                format!("{tokens} is not between 0 and {TOKENS_MAX}"),
            ));
        }
        for (name, tokens) in [
            ("prompt_lookup_max", self.lookup_max),
            ("prompt_lookup_min", self.lookup_min),
        ] {
            if !(1..=LOOKUP_MAX).contains(&tokens) {
                return Err(EngineError::option(
                    name,
                    format!("{tokens} is not between 1 and {LOOKUP_MAX}"),
                ));
            }
        }
        if self.lookup_min > self.lookup_max {
            Err(EngineError::option(
                "prompt_lookup_min",
                format!(
                    "{} is more than prompt_lookup_max, {}",
                    self.lookup_min, self.lookup_max
                ),
            ))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speculation_is_on_by_default_only_on_the_cpu() {
        let default = Speculation::default();
        assert_eq!(default.tokens_on(&[DeviceChoice::Cpu]), TOKENS);
        let mixed = [DeviceChoice::Cuda(0), DeviceChoice::Cpu];
        assert_eq!(default.tokens_on(&mixed), 0);
        let wanted = Speculation {
            tokens: Some(4),
            ..default
        };
        assert_eq!(wanted.tokens_on(&mixed), 4);
        assert_eq!(Speculation::OFF.tokens_on(&[DeviceChoice::Cpu]), 0);
    }

    #[test]
    fn invalid_speculation_settings_are_refused_by_option() {
        let with = |tokens, lookup_max, lookup_min| {
            let speculation = Speculation {
                tokens: Some(tokens),
                lookup_max,
                lookup_min,
            };
            speculation.validate().map_err(|error| error.to_string())
        };
        assert_eq!(with(8, 3, 2), Ok(()));
        for (refused, name) in [
            (with(65, 3, 2), "num_speculative_tokens"),
            (with(8, 17, 2), "prompt_lookup_max"),
            (with(8, 3, 0), "prompt_lookup_min"),
            (with(8, 3, 4), "prompt_lookup_min"),
        ] {
            let message = refused.expect_err("must be refused");
            assert!(message.starts_with(name), "{message}");
        }
    }
}
