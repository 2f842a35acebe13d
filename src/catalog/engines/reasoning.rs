//! What a client wants of a model's reasoning, whichever API it uses, and an engine's switches for it. A wish for which
//! the engine has no switch is named.

use serde_json::Value;

/// How hard a model thinks: OpenAI's levels, and those that others have beyond.
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

    pub fn of(word: &str) -> Option<Effort> {
        Effort::ALL.into_iter().find(|it| it.word() == word)
    }

    /// The level of those three that every engine with levels has.
    fn common(self) -> Effort {
        self.clamp(Effort::Low, Effort::High)
    }
}

/// What a client wants; `None` is what the model does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasoningWish {
    pub thinks: Option<bool>,
    pub effort: Option<Effort>,
    pub budget_tokens: Option<u64>,
}

/// A part of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WishPart {
    Thinks,
    Effort,
    Budget,
}

/// A wish in an engine's fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasoningFields {
    /// Top-level fields.
    pub fields: Vec<(&'static str, Value)>,
    /// Of `chat_template_kwargs`.
    pub switches: Vec<(&'static str, Value)>,
    /// What the engine has no switch for.
    pub unmet: Vec<WishPart>,
}

/// An engine's switches for reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningSwitch {
    /// Where it takes a level.
    pub effort: EffortField,
    /// Templates are given `chat_template_kwargs`, with `enable_thinking` or `thinking` by the model's own template.
    pub template: bool,
    /// The field for the most tokens of a reasoning.
    pub budget: Option<&'static str>,
    /// A setting of the engine without which it refuses `budget`.
    pub budget_needs: Option<&'static str>,
}

/// Where an engine takes a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffortField {
    Nowhere,
    /// `reasoning_effort`, with low, medium and high.
    Common,
    /// `reasoning_effort` with every level, for engines that map the levels themselves.
    Every,
    /// `reasoning_effort` among `chat_template_kwargs`.
    OfTemplate,
}

impl ReasoningSwitch {
    pub const NONE: ReasoningSwitch = ReasoningSwitch {
        effort: EffortField::Nowhere,
        template: false,
        budget: None,
        budget_needs: None,
    };
    /// The embedded engine, which says itself what the model's template does not read.
    pub const CANDLE: ReasoningSwitch = ReasoningSwitch {
        effort: EffortField::Every,
        template: true,
        ..ReasoningSwitch::NONE
    };
    /// Programs of which nothing is known: OpenAI's own field, and no other.
    pub const OPENAI: ReasoningSwitch = ReasoningSwitch {
        effort: EffortField::Every,
        ..ReasoningSwitch::NONE
    };

    /// The wish in these fields. `has_budget`: the engine is set up as `budget_needs` says.
    pub fn fields(self, wish: &ReasoningWish, has_budget: bool) -> ReasoningFields {
        let mut known = ReasoningFields::default();
        // A level says that it thinks at all, unless another field says the opposite.
        let by_effort = wish.effort.map(|effort| effort != Effort::None);
        if let Some(thinks) = wish.thinks.or(by_effort) {
            match self.template {
                true => {
                    let both = ["enable_thinking", "thinking"];
                    let both = both.map(|name| (name, Value::Bool(thinks)));
                    known.switches.extend(both);
                }
                false if wish.thinks.is_some() => known.unmet.push(WishPart::Thinks),
                false => {}
            }
        }
        if let Some(effort) = wish.effort {
            let word = |effort: Effort| ("reasoning_effort", Value::from(effort.word()));
            match self.effort {
                EffortField::Every => known.fields.push(word(effort)),
                // The switch above is all that there is to say.
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
