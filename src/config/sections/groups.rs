//! The section `groups`: callers in a tree, with their shares, classes, models and limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::Limit;
use super::quota::QuotaSection;
use crate::problems::Problem;
use pool::{
    GROUP_DEPTH_MAX, GROUPS_MAX, Group, GroupId, GroupsError, Priority, ServiceClass, WEIGHT_MAX,
};

const NAME_BYTES_MAX: usize = 64;
/// More members are a mistake.
const MEMBERS_MAX: usize = 100_000;

/// The groups by name.
pub type GroupsSection = BTreeMap<String, GroupSection>;

/// A group of callers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupSection {
    /// The group that contains this one; null: it is at the top.
    pub parent: Option<String>,
    /// The share among the groups with the same parent, 1 to 1000 (F1).
    pub weight: u32,
    /// The part of the pool's service in thousandths, 0 to 1000, that requests of the class `priority` get before all others (F5).
    pub reserved_permille: u32,
    /// The highest class of requests; null: that of the parent. At the top it is `priority` with a reserved share, otherwise `default`.
    pub class_max: Option<ClassName>,
    /// The highest model priority that members may request, 0 to 1000000; the smallest value of the group and of those above it counts.
    /// Null: no limit.
    pub priority_max: Option<u32>,
    /// Models by name, with `*` for any characters. Members may only use models that their key and all groups above it allow.
    pub models: Vec<String>,
    /// Limits for all members together, in addition to the limits of each key.
    pub limits: Limit,
    /// The use of all members in a month; null: no quota.
    pub quota: Option<QuotaSection>,
    /// API keys, each by its id such as `k3`, or by its name.
    pub keys: Vec<String>,
    /// Values of the sign-on claim `auth.oidc.groups_claim`. A person with several belongs to the first group by name.
    pub claims: Vec<String>,
}

impl Default for GroupSection {
    fn default() -> GroupSection {
        GroupSection {
            parent: None,
            weight: 1,
            reserved_permille: 0,
            class_max: None,
            priority_max: None,
            models: vec!["*".to_owned()],
            limits: Limit::default(),
            quota: None,
            keys: Vec::new(),
            claims: Vec::new(),
        }
    }
}

/// A class of requests.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ClassName {
    Flex,
    Default,
    Priority,
}

impl From<ClassName> for ServiceClass {
    fn from(name: ClassName) -> ServiceClass {
        match name {
            ClassName::Flex => ServiceClass::Flex,
            ClassName::Default => ServiceClass::Default,
            ClassName::Priority => ServiceClass::Priority,
        }
    }
}

/// The groups for the core. `id` gives each name its number.
///
/// # Errors
/// The error of the first group that is wrong.
pub fn core_groups(
    section: &GroupsSection,
    mut id: impl FnMut(&str) -> GroupId,
) -> Result<Vec<Group>, GroupsError> {
    let groups = section.iter().map(|(name, group)| Group {
        id: id(name),
        name: name.clone(),
        parent: group.parent.as_deref().map(&mut id),
        weight: group.weight,
        reserved_permille: group.reserved_permille,
    });
    let groups: Vec<Group> = groups.collect();
    pool::Groups::new(groups.clone(), [])?;
    Ok(groups)
}

/// The group and those above it, nearest first. Ends at a cycle.
pub fn lineage<'a>(
    section: &'a GroupsSection,
    name: &'a str,
) -> impl Iterator<Item = (&'a str, &'a GroupSection)> {
    let first = section.get_key_value(name);
    let next = |&(_, group): &(&'a String, &'a GroupSection)| {
        section.get_key_value(group.parent.as_deref()?)
    };
    let groups = std::iter::successors(first, next).take(GROUP_DEPTH_MAX);
    groups.map(|(name, group)| (name.as_str(), group))
}

/// The path of the group from the top, as in `physics/lab`.
pub fn path(section: &GroupsSection, name: &str) -> String {
    let mut names: Vec<&str> = lineage(section, name).map(|(name, _)| name).collect();
    names.reverse();
    names.join("/")
}

/// The highest class that members of the group may use.
pub fn class_max(section: &GroupsSection, name: &str) -> ServiceClass {
    let mut has_reserve = false;
    for (_, group) in lineage(section, name) {
        has_reserve |= group.reserved_permille > 0;
        if let Some(class) = group.class_max {
            return class.into();
        }
    }
    if has_reserve {
        ServiceClass::Priority
    } else {
        ServiceClass::Default
    }
}

/// The highest model priority that members of the group may request, with the group that sets it: the smallest value of the group and
/// those above it. `None` if none of them has a value.
pub fn priority_max<'a>(section: &'a GroupsSection, name: &'a str) -> Option<(&'a str, Priority)> {
    let values =
        lineage(section, name).filter_map(|(name, group)| Some((name, group.priority_max?)));
    let least = values.min_by_key(|(_, value)| *value);
    least.map(|(name, value)| (name, Priority(value)))
}

/// The tree as text, one line for each group.
pub fn tree(section: &GroupsSection) -> Vec<String> {
    fn below(section: &GroupsSection, parent: Option<&str>, depth: usize, lines: &mut Vec<String>) {
        let is_below = |group: &GroupSection| group.parent.as_deref() == parent;
        let siblings = section.iter().filter(|(_, group)| is_below(group));
        let sum: u32 = siblings.clone().map(|(_, group)| group.weight).sum();
        for (name, group) in siblings {
            let members = [(group.keys.len(), "keys"), (group.claims.len(), "claims")];
            let members = members.iter().filter(|(count, _)| *count > 0);
            let members: String = members
                .map(|(count, of)| format!(", {count} {of}"))
                .collect();
            let reserved = match group.reserved_permille {
                0 => String::new(),
                permille => format!(", {permille}‰ reserved"),
            };
            let priority = match priority_max(section, name) {
                Some((_, most)) => format!(", priority up to {most}"),
                None => String::new(),
            };
            lines.push(format!(
                "{}{name}: weight {} of {sum}{reserved}{priority}{members}",
                "  ".repeat(depth),
                group.weight
            ));
            below(section, Some(name), depth + 1, lines);
        }
    }
    let mut lines = Vec::new();
    below(section, None, 0, &mut lines);
    lines
}

/// The groups with claims, which have no effect without a sign-on.
pub(crate) fn notice(section: &GroupsSection) -> Option<String> {
    let with_claims = section.iter().filter(|(_, group)| !group.claims.is_empty());
    let names: Vec<&str> = with_claims.map(|(name, _)| name.as_str()).collect();
    let (first, others) = names.split_first()?;
    let others = match others.len() {
        0 => String::new(),
        count => format!(" (and of {count} other groups)"),
    };
    Some(format!(
        "groups.{first}.claims{others} has no effect without auth.oidc"
    ))
}

/// The groups of the configuration and the `kept` ones, which administrators have set. A group that does not fit is left out, with a warning.
pub fn merged(configured: &GroupsSection, kept: &GroupsSection) -> (GroupsSection, Vec<String>) {
    let mut all = kept.clone();
    all.extend(configured.clone());
    if configured.len() + kept.len() == all.len() && problems(&all).is_empty() {
        return (all, Vec::new());
    }
    let mut all = configured.clone();
    let mut warnings = Vec::new();
    let mut left: Vec<&String> = kept.keys().collect();
    // Parents first: each round takes the groups whose parent is there.
    while !left.is_empty() {
        let is_ready = |name: &&String| {
            let parent = kept[*name].parent.as_ref();
            parent.is_none_or(|parent| all.contains_key(parent))
        };
        let (ready, later): (Vec<&String>, Vec<&String>) = left.into_iter().partition(is_ready);
        let is_stuck = ready.is_empty();
        for name in if is_stuck { later.clone() } else { ready } {
            let mut reason = None;
            if all.contains_key(name) {
                reason = Some("the configuration has a group of this name".to_owned());
            } else {
                all.insert(name.clone(), kept[name].clone());
                let found = problems(&all);
                if let Some(problem) = found.first() {
                    reason = Some(format!("{} {}", problem.key, problem.message));
                    all.remove(name);
                }
            }
            if let Some(reason) = reason {
                warnings.push(format!(
                    "the group {name}, which was set with the API, is left out: {reason}; change it or remove it"
                ));
            }
        }
        left = if is_stuck { Vec::new() } else { later };
    }
    (all, warnings)
}

/// Groups that cannot be used.
pub fn problems(section: &GroupsSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, group) in section {
        let mut wrong = |key: &str, message: String| {
            problems.push(Problem::new(format!("groups.{name}{key}"), message));
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            wrong(
                "",
                format!(
                    "is not a name for a group; use 1 to {NAME_BYTES_MAX} letters, digits, `-` and `_`"
                ),
            );
        }
        if !(1..=WEIGHT_MAX).contains(&group.weight) {
            let weight = group.weight;
            wrong(
                ".weight",
                format!("is {weight}; allowed: 1 to {WEIGHT_MAX}"),
            );
        }
        if group.reserved_permille > 1_000 {
            let permille = group.reserved_permille;
            wrong(
                ".reserved_permille",
                format!("is {permille}; allowed: 0 to 1000"),
            );
        }
        if let Some(priority) = group.priority_max.filter(|most| *most > Priority::MAX.0) {
            let most = Priority::MAX;
            wrong(
                ".priority_max",
                format!("is {priority}; allowed: 0 to {most}"),
            );
        }
        if let Some(parent) = group
            .parent
            .as_ref()
            .filter(|name| !section.contains_key(*name))
        {
            wrong(
                ".parent",
                format!(
                    "is `{parent}`, and there is no such group; name one of the groups, or null"
                ),
            );
        }
        if group.models.is_empty() {
            let message = "is empty, which would forbid every model; list patterns, or omit it for all models";
            wrong(".models", message.to_owned());
        }
        if group.keys.len() + group.claims.len() > MEMBERS_MAX {
            wrong(
                "",
                format!("has more than {MEMBERS_MAX} members; use claims for large groups"),
            );
        }
        problems.extend(group.limits.problems(&format!("groups.{name}.limits")));
        if let Some(quota) = &group.quota {
            problems.extend(quota.problems(&format!("groups.{name}.quota")));
        }
    }
    for (of, members) in [
        (
            "keys",
            (|group| &group.keys) as fn(&GroupSection) -> &Vec<String>,
        ),
        ("claims", |group| &group.claims),
    ] {
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, group) in section {
            for (nth, member) in members(group).iter().enumerate() {
                if let Some(other) = owners.insert(member, name) {
                    let key = format!("groups.{name}.{of}[{nth}]");
                    let message =
                        format!("is `{member}`, which already belongs to {other}; remove one");
                    problems.push(Problem::new(key, message));
                }
            }
        }
    }
    if problems.is_empty()
        && let Some(problem) = of_tree(section)
    {
        problems.push(problem);
    }
    problems
}

/// A problem that concerns several groups.
fn of_tree(section: &GroupsSection) -> Option<Problem> {
    let number = |name: &str| {
        let nth = section.keys().position(|known| known == name);
        GroupId(
            nth.and_then(|nth| u32::try_from(nth).ok())
                .unwrap_or(u32::MAX),
        )
    };
    let error = if section.len() > GROUPS_MAX {
        GroupsError::TooMany {
            groups: section.len(),
        }
    } else {
        core_groups(section, number).err()?
    };
    let key = match &error {
        GroupsError::Cycle { names } => format!("groups.{}.parent", names.first()?),
        GroupsError::TooDeep { name } => format!("groups.{name}.parent"),
        GroupsError::Reserved { .. } => {
            let mut reserving = section
                .iter()
                .filter(|(_, group)| group.reserved_permille > 0);
            format!("groups.{}.reserved_permille", reserving.next_back()?.0)
        }
        _ => "groups".to_owned(),
    };
    Some(Problem::new(key, format!("cannot be used: {error}")))
}

#[cfg(test)]
mod tests;
