//! The section `virtual_models`: names that stand for several models, and the rule that chooses among them for a request.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;
use crate::values::{Length, TokenCount};

/// Largest number of members. A request looks at each of them, which takes about a microsecond for this many.
pub const MEMBERS_MAX: usize = 16;
/// Largest number of virtual models.
pub const VIRTUAL_MODELS_MAX: usize = 1_000;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 256;
const WEIGHT_MAX: f64 = 1e6;
/// A stream sends nothing while a member may still be replaced, so longer waits would meet the timeouts of proxies.
const AFTER_MAX: Length = Length::from_secs(3600);

/// The virtual models by name.
pub type VirtualModelsSection = BTreeMap<String, VirtualModelSection>;

/// One name for several models, with a single rule: `any_of`, `split`, `fallback` or `by`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VirtualModelSection {
    /// Models of equal use: a ready one serves the request. Without one, the model with the shortest expected wait is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any_of: Option<Vec<String>>,
    /// Models with their weights, such as `{a: 9, b: 1}`. A conversation stays with its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<BTreeMap<String, f64>>,
    /// Models in the order of preference: the next one serves a request that the one before it cannot serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<String>>,
    /// With `fallback`: the longest wait for a model before the next one is used, at most 1h; null: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Length>,
    /// With `fallback`: the causes that lead to the next model; null: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<BTreeSet<FallbackCause>>,
    /// Rules by properties of the request. The first rule that matches names the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Vec<RequestRule>>,
}

/// A cause that leads to the next model of a `fallback`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum FallbackCause {
    /// The pool refuses the request: no room, a full queue, a failed load.
    Refused,
    /// The engine fails before the first token.
    Failed,
    /// The prompt is longer than the context of the model.
    Context,
    /// A remote endpoint fails, or refuses the request as too many.
    Remote,
}

impl FallbackCause {
    pub const ALL: [FallbackCause; 4] = [
        FallbackCause::Refused,
        FallbackCause::Failed,
        FallbackCause::Context,
        FallbackCause::Remote,
    ];

    pub fn name(self) -> &'static str {
        match self {
            FallbackCause::Refused => "refused",
            FallbackCause::Failed => "failed",
            FallbackCause::Context => "context",
            FallbackCause::Remote => "remote",
        }
    }
}

/// A rule of `by`. It matches a request that meets all its conditions; without conditions it matches every request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RequestRule {
    /// The model for matching requests.
    pub model: String,
    /// True: the request has an image; false: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vision: Option<bool>,
    /// True: the request offers tools; false: it offers none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// The estimated tokens of prompt and response are more than this, such as `32k`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_above: Option<TokenCount>,
}

impl RequestRule {
    fn matches_all(&self) -> bool {
        self.vision.is_none() && self.tools.is_none() && self.context_above.is_none()
    }
}

impl VirtualModelSection {
    /// The word for its rule: `any_of`, `split`, `fallback` or `by`.
    pub fn kind(&self) -> &'static str {
        self.kinds().first().copied().unwrap_or("any_of")
    }

    fn kinds(&self) -> Vec<&'static str> {
        let kinds = [
            ("any_of", self.any_of.is_some()),
            ("split", self.split.is_some()),
            ("fallback", self.fallback.is_some()),
            ("by", self.by.is_some()),
        ];
        let kinds = kinds.into_iter().filter(|(_, is_set)| *is_set);
        kinds.map(|(name, _)| name).collect()
    }

    /// The members with the key of each below the virtual model's, in order. A model of several rules appears several times.
    pub fn members(&self) -> Vec<(String, &str)> {
        let mut members = Vec::new();
        for (kind, list) in [("any_of", &self.any_of), ("fallback", &self.fallback)] {
            let list = list.iter().flatten().enumerate();
            members.extend(list.map(|(nth, name)| (format!("{kind}[{nth}]"), name.as_str())));
        }
        let split = self.split.iter().flatten();
        members.extend(split.map(|(name, _)| (format!("split.{name}"), name.as_str())));
        let rules = self.by.iter().flatten().enumerate();
        members.extend(rules.map(|(nth, rule)| (format!("by[{nth}].model"), rule.model.as_str())));
        members
    }
}

/// The virtual models of the configuration and of `kept`, which administrators have set and which replace the configured ones with
/// the same name. A virtual model of `kept` that does not fit is left out, with a warning.
pub fn merged(
    configured: &VirtualModelsSection,
    kept: &VirtualModelsSection,
) -> (VirtualModelsSection, Vec<String>) {
    let mut all = configured.clone();
    all.extend(kept.clone());
    if problems(&all).is_empty() {
        return (all, Vec::new());
    }
    let mut all = configured.clone();
    let mut warnings = Vec::new();
    for (name, model) in kept {
        let before = all.insert(name.clone(), model.clone());
        if let Some(problem) = problems(&all).first() {
            warnings.push(format!(
                "the virtual model {name}, which was set with the API, is left out: {problem}; change it or remove it"
            ));
            match before {
                Some(before) => drop(all.insert(name.clone(), before)),
                None => drop(all.remove(name)),
            }
        }
    }
    (all, warnings)
}

/// Virtual models that cannot be used.
pub fn problems(section: &VirtualModelsSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let count = section.len();
    if count > VIRTUAL_MODELS_MAX {
        let message = format!("has {count} virtual models; allowed: at most {VIRTUAL_MODELS_MAX}");
        problems.push(Problem::new("virtual_models", message));
    }
    for (name, model) in section {
        let mut wrong = |key: &str, message: String| {
            let dot = if key.is_empty() { "" } else { "." };
            problems.push(Problem::new(
                format!("virtual_models.{name}{dot}{key}"),
                message,
            ));
        };
        if !is_name(name) {
            wrong(
                "",
                format!(
                    "is not a name for a virtual model; use `name` or `organisation/name` of letters, digits, `.`, `_` and `-`, at most {NAME_BYTES_MAX} bytes"
                ),
            );
        }
        match model.kinds().as_slice() {
            [] => wrong(
                "",
                "has no rule; set one of any_of, split, fallback and by".to_owned(),
            ),
            [_] => {}
            several => wrong(
                several[1],
                format!("is set in addition to {}; keep one of them", several[0]),
            ),
        }
        for (key, is_set) in [("after", model.after.is_some()), ("on", model.on.is_some())] {
            if is_set && model.fallback.is_none() {
                wrong(
                    key,
                    "applies to fallback only; remove it, or use fallback".to_owned(),
                );
            }
        }
        if let Some(after) = model.after
            && (after == Length::from_secs(0) || after > AFTER_MAX)
        {
            wrong(
                "after",
                format!("is {after}; allowed: more than 0s, at most {AFTER_MAX}"),
            );
        }
        if model.on.as_ref().is_some_and(BTreeSet::is_empty) && model.after.is_none() {
            wrong(
                "on",
                "is empty and there is no `after`, so the first model would serve all requests; list causes, or omit it for all causes".to_owned(),
            );
        }
        members_problems(section, (name, model), &mut wrong);
    }
    problems
}

fn members_problems(
    section: &VirtualModelsSection,
    (name, model): (&str, &VirtualModelSection),
    wrong: &mut impl FnMut(&str, String),
) {
    let members = model.members();
    let kind = model.kind();
    match members.len() {
        0 if !model.kinds().is_empty() => {
            wrong(kind, "is empty; list at least one model".to_owned())
        }
        count if count > MEMBERS_MAX => {
            wrong(
                kind,
                format!("has {count} members; allowed: at most {MEMBERS_MAX}"),
            );
            return;
        }
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for (key, member) in &members {
        if *member == name {
            wrong(
                key,
                format!("is `{member}`, the virtual model itself; name a model"),
            );
        } else if section.contains_key(*member) {
            wrong(
                key,
                format!("is `{member}`, which is a virtual model; name the models behind it"),
            );
        } else if member.is_empty() {
            wrong(key, "is empty; name a model".to_owned());
        } else if !seen.insert(*member) && kind != "by" {
            wrong(
                key,
                format!("is `{member}`, which is listed before; remove one"),
            );
        }
    }
    for (member, weight) in model.split.iter().flatten() {
        let is_allowed = weight.is_finite() && *weight > 0.0 && *weight <= WEIGHT_MAX;
        if !is_allowed {
            wrong(
                &format!("split.{member}"),
                format!(
                    "is {weight}; allowed: more than 0, at most {WEIGHT_MAX}; remove the model to give it no requests"
                ),
            );
        }
    }
    let rules = model.by.as_deref().unwrap_or_default();
    let general = rules.iter().position(RequestRule::matches_all);
    if let Some(nth) = general.filter(|nth| nth + 1 < rules.len()) {
        wrong(
            &format!("by[{nth}]"),
            "has no condition, so the rules after it are never used; put it last".to_owned(),
        );
    }
}

/// Returns true if a model could have this name, without a tag: `:` separates tags and adapters.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|letter: char| letter.is_ascii_alphanumeric())
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    name.len() <= NAME_BYTES_MAX && name.split('/').count() <= 2 && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests;
