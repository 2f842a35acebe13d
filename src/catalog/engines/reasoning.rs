//! A client's settings for a model's reasoning, independent of the API, and their translation to an engine's fields. Settings that
//! the engine does not support are reported.

use serde_json::Value;

/// The reasoning effort: OpenAI's levels, and the additional levels of other APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl Effort {
    pub const ALL: [Effort; 7] = [
        Effort::None,
        Effort::Minimal,
        Effort::Low,
        Effort::Medium,
        Effort::High,
        Effort::Xhigh,
        Effort::Max,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Effort::None => "none",
            Effort::Minimal => "minimal",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::Xhigh => "xhigh",
            Effort::Max => "max",
        }
    }

    pub fn parse(word: &str) -> Option<Effort> {
        Effort::ALL.into_iter().find(|effort| effort.word() == word)
    }

    /// The nearest of the three levels that every engine with levels supports.
    fn common(self) -> Effort {
        self.clamp(Effort::Low, Effort::High)
    }
}

/// A client's reasoning settings; `None` is the model's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasoningWish {
    pub thinks: Option<bool>,
    pub effort: Option<Effort>,
    pub budget_tokens: Option<u64>,
}

/// A single setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WishPart {
    Thinks,
    Effort,
    Budget,
}

/// Reasoning settings as an engine's fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasoningFields {
    /// Top-level fields.
    pub fields: Vec<(&'static str, Value)>,
    /// Keys of `chat_template_kwargs`.
    pub switches: Vec<(&'static str, Value)>,
    /// Settings that the engine does not support.
    pub unmet: Vec<WishPart>,
}

/// An engine's fields for reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningSwitch {
    /// The field for the effort.
    pub effort: EffortField,
    /// The engine passes `chat_template_kwargs` to the template, which reads `enable_thinking` or `thinking`.
    pub template: bool,
    /// The field that limits the tokens of the reasoning.
    pub budget: Option<&'static str>,
    /// An engine setting without which `budget` is refused.
    pub budget_needs: Option<&'static str>,
}

/// The place of an effort level in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffortField {
    Nowhere,
    /// `reasoning_effort` with low, medium and high.
    Common,
    /// `reasoning_effort` with every level, for engines that map the levels.
    Every,
    /// `reasoning_effort` as a key of `chat_template_kwargs`.
    OfTemplate,
}

impl ReasoningSwitch {
    pub const NONE: ReasoningSwitch = ReasoningSwitch {
        effort: EffortField::Nowhere,
        template: false,
        budget: None,
        budget_needs: None,
    };
    /// The embedded engine, which reports settings that the model's template does not read.
    pub const CANDLE: ReasoningSwitch = ReasoningSwitch {
        effort: EffortField::Every,
        template: true,
        ..ReasoningSwitch::NONE
    };
    /// Unknown programs: only OpenAI's own field.
    pub const OPENAI: ReasoningSwitch = ReasoningSwitch {
        effort: EffortField::Every,
        ..ReasoningSwitch::NONE
    };

    /// Converts the settings. `has_budget`: the engine has the setting named in `budget_needs`.
    pub fn fields(self, wish: &ReasoningWish, has_budget: bool) -> ReasoningFields {
        let mut known = ReasoningFields::default();
        // A level implies that the model reasons, unless another field contradicts it.
        let by_effort = wish.effort.map(|effort| effort != Effort::None);
        if let Some(thinks) = wish.thinks.or(by_effort) {
            if self.template {
                let both = ["enable_thinking", "thinking"];
                let both = both.map(|name| (name, Value::Bool(thinks)));
                known.switches.extend(both);
            } else if wish.thinks.is_some() {
                known.unmet.push(WishPart::Thinks)
            }
        }
        if let Some(effort) = wish.effort {
            let word = |effort: Effort| ("reasoning_effort", Value::from(effort.word()));
            match self.effort {
                EffortField::Every => known.fields.push(word(effort)),
                // The template's switch above is enough.
                EffortField::Common | EffortField::OfTemplate if effort == Effort::None => {}
                EffortField::Common => known.fields.push(word(effort.common())),
                EffortField::OfTemplate => known.switches.push(word(effort.common())),
                EffortField::Nowhere => known.unmet.push(WishPart::Effort),
            }
        }
        if let Some(tokens) = wish.budget_tokens {
            match self.budget.filter(|_| has_budget) {
                Some(name) => known.fields.push((name, Value::from(tokens))),
                None => known.unmet.push(WishPart::Budget),
            }
        }
        known
    }
}
