//! The service that requests get: their class, their tokens, and the measured cost of a token.

/// The class of a request. The gateway maps `service_tier` and `priority` to it, within what the group allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceClass {
    /// Served while no other request waits for the model.
    Flex,
    #[default]
    Default,
    /// Served first within the reserved share of the group; beyond it like `Default`.
    Priority,
}

impl ServiceClass {
    pub fn is_flex(self) -> bool {
        self == ServiceClass::Flex
    }
}

/// Tokens of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub prompt: u64,
    pub output: u64,
}

impl Tokens {
    pub const ZERO: Tokens = Tokens {
        prompt: 0,
        output: 0,
    };

    /// The part of these tokens beyond the others.
    pub fn less(self, others: Tokens) -> Tokens {
        Tokens {
            prompt: self.prompt.saturating_sub(others.prompt),
            output: self.output.saturating_sub(others.output),
        }
    }
}

/// Saturates.
impl core::ops::Add for Tokens {
    type Output = Tokens;

    fn add(self, other: Tokens) -> Tokens {
        Tokens {
            prompt: self.prompt.saturating_add(other.prompt),
            output: self.output.saturating_add(other.output),
        }
    }
}

/// The largest accepted cost of a token: ten seconds of a seat.
const COST_MAX_US: u64 = 10_000_000;

/// The measured cost of a model's tokens, in microseconds of a seat: prefill for prompts, decode for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenCosts {
    prompt_us: u64,
    output_us: u64,
}

impl TokenCosts {
    /// Figures outside of 1 µs to 10 s are measurements of something else, and count as the nearest bound.
    pub fn new(prompt_us: u64, output_us: u64) -> TokenCosts {
        TokenCosts {
            prompt_us: prompt_us.clamp(1, COST_MAX_US),
            output_us: output_us.clamp(1, COST_MAX_US),
        }
    }

    pub fn prompt_us(&self) -> u64 {
        self.prompt_us
    }

    pub fn output_us(&self) -> u64 {
        self.output_us
    }

    /// The service, in nanoseconds of a seat. Saturates.
    pub(crate) fn service_ns(&self, tokens: Tokens) -> u64 {
        let prompt = tokens.prompt.saturating_mul(self.prompt_us);
        let output = tokens.output.saturating_mul(self.output_us);
        prompt.saturating_add(output).saturating_mul(1_000)
    }
}
