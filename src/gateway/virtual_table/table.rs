//! The virtual models in force, prepared for the choice of a member.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use config::{FallbackCause, VirtualModelSection, VirtualModelsSection, virtual_models};

/// A virtual model.
#[derive(Debug)]
pub struct VirtualModel {
    pub name: Arc<str>,
    pub members: Vec<Member>,
    pub rule: Rule,
}

/// A model behind a virtual model.
#[derive(Debug)]
pub struct Member {
    pub name: Arc<str>,
    /// Places conversations in a split. Equal in every process.
    pub hash: u64,
}

/// The way in which a virtual model chooses.
#[derive(Debug)]
pub enum Rule {
    AnyOf,
    /// The weight of each member.
    Split(Vec<f64>),
    Fallback {
        after: Option<Duration>,
        on: BTreeSet<FallbackCause>,
    },
    By(Vec<Condition>),
}

/// A rule of `by`.
#[derive(Debug)]
pub struct Condition {
    /// The place of its model in `members`.
    pub member: usize,
    pub vision: Option<bool>,
    pub tools: Option<bool>,
    pub context_above: Option<u64>,
}

impl VirtualModel {
    fn new(name: &str, section: &VirtualModelSection) -> VirtualModel {
        let mut members: Vec<Member> = Vec::new();
        let mut places = Vec::new();
        for (_, model) in section.members() {
            let known = members.iter().position(|member| *member.name == *model);
            places.push(known.unwrap_or(members.len()));
            if known.is_none() {
                members.push(Member::new(model));
            }
        }
        let rule = if let Some(weights) = &section.split {
            Rule::Split(weights.values().copied().collect())
        } else if section.fallback.is_some() {
            let all = || BTreeSet::from(FallbackCause::ALL);
            Rule::Fallback {
                after: section.after.map(config::Length::duration),
                on: section.on.clone().unwrap_or_else(all),
            }
        } else if let Some(rules) = &section.by {
            let conditions = rules.iter().zip(places);
            let conditions = conditions.map(|(rule, member)| Condition {
                member,
                vision: rule.vision,
                tools: rule.tools,
                context_above: rule.context_above.map(|tokens| tokens.0),
            });
            Rule::By(conditions.collect())
        } else {
            Rule::AnyOf
        };
        VirtualModel {
            name: name.into(),
            members,
            rule,
        }
    }

    /// The word for its rule.
    pub fn kind(&self) -> &'static str {
        match self.rule {
            Rule::AnyOf => "any_of",
            Rule::Split(_) => "split",
            Rule::Fallback { .. } => "fallback",
            Rule::By(_) => "by",
        }
    }

    pub fn is_fallback(&self) -> bool {
        matches!(self.rule, Rule::Fallback { .. })
    }
}

impl Member {
    fn new(name: &str) -> Member {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Member {
            name: name.into(),
            hash: hasher.finish(),
        }
    }
}

/// All virtual models of one configuration.
#[derive(Debug, Default)]
pub struct Table {
    pub models: BTreeMap<String, Arc<VirtualModel>>,
    /// The sections of `models`: of the configuration, and of administrators, which replace them.
    pub section: VirtualModelsSection,
    pub has_fallback: bool,
}

impl Table {
    /// Returns warnings about virtual models that are left out.
    pub fn new(
        configured: &VirtualModelsSection,
        kept: &VirtualModelsSection,
    ) -> (Table, Vec<String>) {
        let (section, warnings) = virtual_models::merged(configured, kept);
        let models: BTreeMap<String, Arc<VirtualModel>> = section
            .iter()
            .map(|(name, model)| (name.clone(), Arc::new(VirtualModel::new(name, model))))
            .collect();
        let table = Table {
            has_fallback: models.values().any(|model| model.is_fallback()),
            models,
            section,
        };
        (table, warnings)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The virtual model `v` with this section.
    pub(crate) fn model(text: &str) -> VirtualModel {
        VirtualModel::new("v", &reading::yaml(text).expect("a virtual model"))
    }

    #[test]
    fn a_model_of_several_rules_is_one_member() {
        let by = model("by: [{vision: true, model: a}, {tools: true, model: b}, {model: a}]");
        let names: Vec<&str> = by.members.iter().map(|member| &*member.name).collect();
        assert_eq!(names, ["a", "b"]);
        let Rule::By(conditions) = &by.rule else {
            panic!("{by:?}");
        };
        let places: Vec<usize> = conditions.iter().map(|rule| rule.member).collect();
        assert_eq!(places, [0, 1, 0]);
    }

    #[test]
    fn a_fallback_without_causes_falls_back_for_all_of_them() {
        let all = model("fallback: [a, b]");
        let Rule::Fallback { after, on } = &all.rule else {
            panic!("{all:?}");
        };
        assert_eq!((*after, on.len()), (None, FallbackCause::ALL.len()));
        let some = model("{fallback: [a, b], on: [context], after: 3s}");
        let Rule::Fallback { after, on } = &some.rule else {
            panic!("{some:?}");
        };
        assert_eq!(*after, Some(Duration::from_secs(3)));
        assert_eq!(on.iter().collect::<Vec<_>>(), [&FallbackCause::Context]);
    }
}
