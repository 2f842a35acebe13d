//! A group of callers: its models, class, limits and quotas. Limits and quotas of the groups above it apply, too.

use std::sync::Arc;

use wildmatch::WildMatch;

use crate::group_spending::{GroupQuota, Spending, Spent, SpentQuota};
use access::limits::Bucket;
use api_types::error::Failure;
use config::{AtEnd, GroupsSection, groups};
use pool::{GroupId, Priority, ServiceClass};

/// The shares, models and limits of the members of a group.
#[derive(Debug)]
pub struct CallerGroup {
    pub id: GroupId,
    pub name: Arc<str>,
    /// From the top, as in `physics/lab`.
    pub path: Arc<str>,
    class_max: ServiceClass,
    /// The highest model priority that members may request, and the group that sets it.
    priority_max: Option<(Box<str>, Priority)>,
    /// The patterns of this group and of its parents. A model must match a pattern of each.
    models: Vec<Vec<WildMatch>>,
    /// The limits of this group and of its parents.
    buckets: Vec<Bucket>,
    /// The quotas of this group and of its parents.
    quotas: Vec<GroupQuota>,
    /// The use by this group and by its parents.
    spent: Vec<Arc<Spent>>,
}

impl CallerGroup {
    /// The group of this name in the section.
    pub(crate) fn new(
        section: &GroupsSection,
        name: &str,
        spending: &Spending,
        id: GroupId,
    ) -> CallerGroup {
        let lineage = || groups::lineage(section, name);
        let is_open = |patterns: &&Vec<String>| !patterns.iter().any(|pattern| pattern == "*");
        let models = lineage().map(|(_, group)| &group.models).filter(is_open);
        let models = models.map(|all| all.iter().map(|one| WildMatch::new(one)).collect());
        let buckets = lineage().filter(|(_, group)| !group.limits.is_none());
        let buckets = buckets.map(|(name, group)| Bucket {
            id: format!("group:{name}"),
            description: format!("the group {name}"),
            limit: group.limits,
        });
        let quotas = lineage().filter_map(|(name, group)| {
            Some(GroupQuota {
                group: name.into(),
                quota: group.quota?,
                spent: spending.total(name),
            })
        });
        CallerGroup {
            id,
            name: name.into(),
            path: groups::path(section, name).into(),
            class_max: groups::class_max(section, name),
            priority_max: groups::priority_max(section, name)
                .map(|(name, most)| (name.into(), most)),
            models: models.collect(),
            buckets: buckets.collect(),
            quotas: quotas.collect(),
            spent: lineage().map(|(name, _)| spending.total(name)).collect(),
        }
    }

    /// The class that a request gets if it wishes this one.
    pub fn class(&self, wished: ServiceClass) -> ServiceClass {
        if self.spent_quota(AtEnd::Lowest).is_some() {
            return ServiceClass::Flex;
        }
        wished.min(self.class_max)
    }

    /// Refuses a model priority that members may not request.
    ///
    /// # Errors
    /// 403 `priority_above_group`, with the group that sets the limit.
    pub fn check_priority(&self, requested: Priority) -> Result<(), Failure> {
        match &self.priority_max {
            Some((group, most)) if requested > *most => Err(above_group(requested, *most, group)),
            _ => Ok(()),
        }
    }

    /// Like [`CallerGroup::check_priority`] for administrators of the group, who have a limit without `priority_max`, too.
    pub(crate) fn check_priority_of_admin(&self, requested: Priority) -> Result<(), Failure> {
        self.check_priority(requested)?;
        if self.priority_max.is_none() && requested > AUTHORITY_DEFAULT {
            return Err(above_group(requested, AUTHORITY_DEFAULT, &self.name));
        }
        Ok(())
    }

    pub(crate) fn priority_max(&self) -> Option<Priority> {
        self.priority_max.as_ref().map(|(_, most)| *most)
    }

    /// The first quota with this end that is used up.
    pub(crate) fn spent_quota(&self, at_end: AtEnd) -> Option<SpentQuota> {
        let mut quotas = self.quotas.iter();
        quotas.find_map(|quota| quota.spent().filter(|_| quota.quota.at_end == at_end))
    }

    /// Logs once a month which quotas are used up.
    pub(crate) fn note_spent_quotas(&self) {
        self.quotas.iter().for_each(GroupQuota::note);
    }

    /// Counts tokens for this group and its parents.
    pub(crate) fn spend(&self, tokens: u64) {
        self.spent.iter().for_each(|spent| spent.add_tokens(tokens));
    }

    /// Returns true if members may use a model of this name.
    pub fn has(&self, model: &str) -> bool {
        let mut levels = self.models.iter();
        levels.all(|patterns| patterns.iter().any(|pattern| pattern.matches(model)))
    }

    /// Returns true if members may not use all models.
    pub fn is_bounded(&self) -> bool {
        !self.models.is_empty()
    }

    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.buckets.iter().cloned()
    }
}

/// The highest priority that administrators of a group without `priority_max` may set.
pub(crate) const AUTHORITY_DEFAULT: Priority = Priority(0);

fn above_group(requested: Priority, most: Priority, group: &str) -> Failure {
    let mut failure = Failure::forbidden(
        "priority_above_group",
        format!(
            "priority: {requested} is above {most}, the highest priority that members of the group {group} may request (groups.{group}.priority_max); request at most {most}"
        ),
    );
    failure.body.error.param = Some("priority".to_owned());
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn groups(text: &str) -> BTreeMap<String, CallerGroup> {
        let section: GroupsSection = reading::yaml(text).expect("groups");
        let spending = Spending::default();
        let group = |name: &String| {
            let group = CallerGroup::new(&section, name, &spending, GroupId(0));
            (name.clone(), group)
        };
        section.keys().map(group).collect()
    }

    #[test]
    fn a_group_allows_no_more_than_the_groups_above_it() {
        let groups = groups(
            "top: {models: [tiny-*], limits: {requests_per_minute: 9}}\nlab: {parent: top, models: ['*-chat'], limits: {concurrent_requests: 2}}",
        );
        let lab = &groups["lab"];
        assert!(lab.has("tiny-chat") && lab.is_bounded());
        assert!(!lab.has("tiny-guide") && !lab.has("big-chat"));
        let buckets: Vec<String> = lab.buckets().map(|bucket| bucket.id).collect();
        assert_eq!(buckets, ["group:lab", "group:top"]);
        assert_eq!(lab.class(ServiceClass::Priority), ServiceClass::Default);
        assert_eq!(lab.class(ServiceClass::Flex), ServiceClass::Flex);
    }

    #[test]
    fn a_priority_above_the_smallest_limit_on_the_path_is_refused_with_the_group_and_both_values() {
        let groups =
            groups("top: {priority_max: 2}\nlab: {parent: top, priority_max: 7}\nfree: {}");
        let lab = &groups["lab"];
        assert!(lab.check_priority(Priority(2)).is_ok());
        let refused = lab.check_priority(Priority(3)).expect_err("above");
        let error = refused.body.error;
        assert_eq!(
            (error.code, error.param.as_deref()),
            (Some("priority_above_group"), Some("priority"))
        );
        for part in ["priority: 3", "above 2", "group top"] {
            assert!(error.message.contains(part), "{}", error.message);
        }
        let free = &groups["free"];
        assert!(free.check_priority(Priority::MAX).is_ok());
        assert!(free.check_priority_of_admin(AUTHORITY_DEFAULT).is_ok());
        let refused = free
            .check_priority_of_admin(Priority(1))
            .expect_err("above");
        assert!(refused.body.error.message.contains("group free"));
        assert!(lab.check_priority_of_admin(Priority(2)).is_ok());
        assert!(lab.check_priority_of_admin(Priority(3)).is_err());
    }

    #[test]
    fn a_spent_quota_of_a_group_counts_for_the_groups_below_it() {
        let groups = groups(
            "top: {quota: {tokens: 10, at_end: lowest}}\nlab: {parent: top, quota: {tokens: 20, at_end: refuse}}\nother: {parent: top}",
        );
        let [lab, other] = ["lab", "other"].map(|name| &groups[name]);
        assert_eq!(&*lab.path, "top/lab");
        lab.spend(9);
        assert_eq!(other.class(ServiceClass::Default), ServiceClass::Default);
        other.spend(1);
        for group in [lab, other] {
            assert_eq!(group.class(ServiceClass::Default), ServiceClass::Flex);
            assert_eq!(group.spent_quota(AtEnd::Refuse), None);
        }
        lab.spend(11);
        let spent = lab.spent_quota(AtEnd::Refuse).expect("used up");
        assert!(
            spent.to_string().contains("group lab has used 20 of 20"),
            "{spent}"
        );
        assert_eq!(other.spent_quota(AtEnd::Refuse), None);
    }
}
