//! Groups of callers with their shares, their use in the current month, and their quotas.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::keys::LimitView;
use super::values::{at, class_name};
use config::{Config, GroupSection, GroupsSection, Month, QuotaSection, groups};
use pool::Time;

/// The quota of a group in a month. One figure that is used up is enough.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct QuotaView {
    /// Hours of devices; null: not limited.
    #[schema(example = 100.0)]
    pub gpu_hours: Option<f64>,
    /// Tokens of prompts and responses; null: not limited.
    #[schema(example = 10_000_000)]
    pub tokens: Option<u64>,
    /// `warn`, `lowest` or `refuse`.
    #[schema(example = "lowest")]
    pub at_end: &'static str,
    /// The largest part that is used; 1 or more: the quota is used up.
    #[schema(example = 0.31)]
    pub used_ratio: f64,
}

/// A group. Its figures include the groups below it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GroupView {
    #[schema(example = "lab")]
    pub group: String,
    /// From the top.
    #[schema(example = "physics/lab")]
    pub path: String,
    #[schema(example = "physics")]
    pub parent: Option<String>,
    /// The share among the groups with the same parent.
    #[schema(example = 2)]
    pub weight: u32,
    /// The part of the service that the group gets while it and every group that has requests keep requests waiting, from 0 to 1.
    #[schema(example = 0.5)]
    pub share_now: f64,
    /// The part of the service in thousandths that requests of the class `priority` get before all others.
    #[schema(example = 100)]
    pub reserved_permille: u32,
    /// The highest class: `flex`, `default` or `priority`.
    #[schema(example = "priority")]
    pub class_max: &'static str,
    /// The highest model priority that members may request: the smallest value of the group and of those above it; null: no limit.
    #[schema(example = 2)]
    pub priority_max: Option<u32>,
    /// Patterns of models. The groups above restrict them further.
    pub models: Vec<String>,
    #[schema(value_type = LimitView)]
    pub limits: config::Limit,
    pub quota: Option<QuotaView>,
    /// Its origin: `configuration`, or `api` for a group that administrators have set.
    #[schema(example = "configuration")]
    pub source: &'static str,
    /// API keys as they are listed, each by its id or name.
    pub keys: Vec<String>,
    /// Values of the sign-on claim.
    pub claims: Vec<String>,
    /// Members that the pool knows: API keys, and people who have sent a request.
    #[schema(example = 12)]
    pub members: usize,
    /// Requests that wait for a seat.
    pub waiting: usize,
    /// Requests that have a seat.
    pub running: usize,
    /// Tokens of prompts and responses in this month.
    #[schema(example = 48_213_004)]
    pub tokens: u64,
    /// Device time in this month: used, held idle, and taken by loads. Counted every minute.
    #[schema(example = 111_600.0)]
    pub device_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GroupList {
    /// The month of the figures.
    #[schema(example = "2026-01")]
    pub month: String,
    /// The time at which the next month begins.
    #[schema(example = "2026-01-31T23:00:00.000Z")]
    pub month_ends_at: String,
    /// Each group is followed by the groups below it.
    pub groups: Vec<GroupView>,
}

/// A group that was set or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ChangedGroup {
    #[schema(example = "course")]
    pub group: String,
    /// Members that match no key, keys in two groups, and stored groups that do not fit the configuration.
    pub warnings: Vec<String>,
}

/// The figures of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupFigures {
    /// These without the groups below.
    pub members: usize,
    pub waiting: usize,
    pub running: usize,
    /// These with the groups below.
    pub tokens: u64,
    pub device_ms: u64,
}

impl GroupList {
    /// `section` has the groups in force, and `others` is the number of requests of callers without a group.
    pub fn new(
        (config, section): (&Config, &GroupsSection),
        wall: Time,
        figures: &BTreeMap<String, GroupFigures>,
        others: usize,
    ) -> GroupList {
        let month = Month::of_day(config.day(wall));
        let tree = Tree::new(section, &config.groups, figures);
        let mut groups = Vec::with_capacity(section.len());
        tree.below(None, 1.0, others, &mut groups);
        GroupList {
            month: month.to_string(),
            month_ends_at: at(month.end(config.zone())),
            groups,
        }
    }
}

struct Tree<'a> {
    section: &'a GroupsSection,
    configured: &'a GroupsSection,
    children: BTreeMap<Option<&'a str>, Vec<(&'a str, &'a GroupSection)>>,
    figures: &'a BTreeMap<String, GroupFigures>,
    /// With the groups below.
    sums: BTreeMap<&'a str, GroupFigures>,
}

impl<'a> Tree<'a> {
    fn new(
        section: &'a GroupsSection,
        configured: &'a GroupsSection,
        figures: &'a BTreeMap<String, GroupFigures>,
    ) -> Tree<'a> {
        let mut tree = Tree {
            section,
            configured,
            children: BTreeMap::new(),
            figures,
            sums: BTreeMap::new(),
        };
        for (name, group) in section {
            let children = tree.children.entry(group.parent.as_deref()).or_default();
            children.push((name, group));
            let own = figures.get(name).copied().unwrap_or_default();
            for (above, _) in groups::lineage(section, name) {
                let sum = tree.sums.entry(above).or_default();
                sum.members += own.members;
                sum.waiting += own.waiting;
                sum.running += own.running;
            }
            if let Some(sum) = tree.sums.get_mut(name.as_str()) {
                (sum.tokens, sum.device_ms) = (own.tokens, own.device_ms);
            }
        }
        tree
    }

    /// Writes the groups below `parent`, whose share is known. `own` is the number of requests of the parent's own members.
    fn below(&self, parent: Option<&str>, share: f64, own: usize, list: &mut Vec<GroupView>) {
        let Some(children) = self.children.get(&parent) else {
            return;
        };
        let sum = |name: &str| self.sums.get(name).copied().unwrap_or_default();
        let is_active = |name: &str| sum(name).waiting + sum(name).running > 0;
        let weights = || children.iter().map(|(_, group)| group.weight);
        let active = children.iter().filter(|(name, _)| is_active(name));
        let mut active: u32 = active.map(|(_, group)| group.weight).sum();
        if own > 0 {
            active += weights().min().unwrap_or(0);
        }
        for &(name, group) in children {
            let joins = if is_active(name) { 0 } else { group.weight };
            let share_now = share * f64::from(group.weight) / f64::from((active + joins).max(1));
            list.push(self.view(name, group, sum(name), share_now));
            let figures = self.figures.get(name).copied().unwrap_or_default();
            let own = figures.waiting + figures.running;
            self.below(Some(name), share_now, own, list);
        }
    }

    fn view(&self, name: &str, group: &GroupSection, sum: GroupFigures, share: f64) -> GroupView {
        GroupView {
            group: name.to_owned(),
            path: groups::path(self.section, name),
            parent: group.parent.clone(),
            weight: group.weight,
            share_now: share,
            reserved_permille: group.reserved_permille,
            class_max: class_name(groups::class_max(self.section, name)),
            priority_max: groups::priority_max(self.section, name).map(|(_, most)| most.0),
            models: group.models.clone(),
            limits: group.limits,
            quota: group.quota.map(|quota| QuotaView::new(&quota, sum)),
            source: if self.configured.contains_key(name) {
                "configuration"
            } else {
                "api"
            },
            keys: group.keys.clone(),
            claims: group.claims.clone(),
            members: sum.members,
            waiting: sum.waiting,
            running: sum.running,
            tokens: sum.tokens,
            device_seconds: sum.device_ms as f64 / 1_000.0,
        }
    }
}

impl QuotaView {
    fn new(quota: &QuotaSection, used: GroupFigures) -> QuotaView {
        QuotaView {
            gpu_hours: quota.gpu_hours,
            tokens: quota.tokens.map(|most| most.0),
            at_end: quota.at_end.name(),
            used_ratio: quota.used_ratio(used.tokens, used.device_ms),
        }
    }
}

/// The caller's group, with its share and quota.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MyGroup {
    /// The path from the top.
    #[schema(example = "physics/lab")]
    pub path: String,
    /// The part of the service that the group gets while it and every group that has requests keep requests waiting, from 0 to 1.
    #[schema(example = 0.5)]
    pub share_now: f64,
    /// The highest class: `flex`, `default` or `priority`.
    #[schema(example = "default")]
    pub class_max: &'static str,
    /// The highest model priority that members may request; null: no limit.
    #[schema(example = 2)]
    pub priority_max: Option<u32>,
    /// The quotas of the group and of the groups above it. All of them count.
    pub quotas: Vec<QuotaView>,
    /// The time at which quotas begin again.
    #[schema(example = "2026-01-31T23:00:00.000Z")]
    pub month_ends_at: String,
}

impl MyGroup {
    /// The group of this name.
    pub fn new(list: &GroupList, name: &str) -> Option<MyGroup> {
        let find = |name: &str| list.groups.iter().find(|group| group.group == name);
        let own = find(name)?;
        let mut quotas = Vec::new();
        let mut next = Some(own);
        while let Some(group) = next {
            quotas.extend(group.quota.clone());
            next = group.parent.as_deref().and_then(find);
        }
        Some(MyGroup {
            path: own.path.clone(),
            share_now: own.share_now,
            class_max: own.class_max,
            priority_max: own.priority_max,
            quotas,
            month_ends_at: list.month_ends_at.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str, figures: &[(&str, GroupFigures)], others: usize) -> GroupList {
        let config = Config {
            groups: reading(text),
            ..Config::default()
        };
        let figures = figures.iter();
        let figures = figures.map(|(name, figures)| ((*name).to_owned(), *figures));
        let groups = (&config, &config.groups);
        GroupList::new(groups, Time(0), &figures.collect(), others)
    }

    fn reading(text: &str) -> GroupsSection {
        serde_json::from_str(text).expect("groups")
    }

    fn share(list: &GroupList, name: &str) -> f64 {
        let found = list.groups.iter().find(|group| group.group == name);
        (found.expect(name).share_now * 1_000.0).round() / 1_000.0
    }

    const BUSY: GroupFigures = GroupFigures {
        members: 1,
        waiting: 2,
        running: 1,
        tokens: 0,
        device_ms: 0,
    };
    const TREE: &str = r#"{"physics": {"weight": 2}, "lab": {"parent": "physics", "weight": 3}, "course": {"parent": "physics"},
        "chemistry": {}}"#;

    #[test]
    fn the_present_share_counts_only_groups_with_requests() {
        let idle = list(TREE, &[], 0);
        let names: Vec<&str> = idle
            .groups
            .iter()
            .map(|group| group.path.as_str())
            .collect();
        assert_eq!(
            names,
            ["chemistry", "physics", "physics/course", "physics/lab"]
        );
        assert_eq!((share(&idle, "chemistry"), share(&idle, "lab")), (1.0, 1.0));
        let one = list(TREE, &[("lab", BUSY)], 0);
        assert_eq!((share(&one, "physics"), share(&one, "lab")), (1.0, 1.0));
        assert_eq!(
            (share(&one, "chemistry"), share(&one, "course")),
            (0.333, 0.25)
        );
        let all = list(
            TREE,
            &[("lab", BUSY), ("course", BUSY), ("chemistry", BUSY)],
            0,
        );
        assert_eq!((share(&all, "physics"), share(&all, "lab")), (0.667, 0.5));
        // Callers without a group, and the own members of an inner group, count as a group of the smallest weight.
        let others = list(
            TREE,
            &[("physics", BUSY), ("chemistry", BUSY), ("lab", BUSY)],
            1,
        );
        assert_eq!(
            (share(&others, "physics"), share(&others, "lab")),
            (0.5, 0.375)
        );
    }

    #[test]
    fn figures_include_the_groups_below_and_a_quota_shows_its_larger_part() {
        let text = r#"{"physics": {"quota": {"tokens": 1000, "gpu_hours": 1, "at_end": "refuse"}}, "lab": {"parent": "physics"}}"#;
        let physics = GroupFigures {
            tokens: 250,
            device_ms: 1_800_000,
            ..BUSY
        };
        let list = list(text, &[("lab", BUSY), ("physics", physics)], 0);
        let top = &list.groups[0];
        assert_eq!((top.members, top.waiting, top.running), (2, 4, 2));
        let quota = top.quota.as_ref().expect("a quota");
        assert_eq!((quota.used_ratio, quota.at_end), (0.5, "refuse"));
        assert_eq!(
            (list.month.as_str(), list.month_ends_at.as_str()),
            ("1970-01", "1970-02-01T00:00:00.000Z")
        );
        let mine = MyGroup::new(&list, "lab").expect("a group");
        assert_eq!((mine.path.as_str(), mine.quotas.len()), ("physics/lab", 1));
        assert_eq!(MyGroup::new(&list, "none"), None);
    }
}
