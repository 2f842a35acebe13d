//! The requests of groups, and what they have used in the current month, for `/metrics`.

use super::text::{Kind, Text};
use api_types::dto::{GroupList, GroupView};

/// Groups come from administrators, so their number is bounded, but a scrape of thousands is too large. The first in the order of
/// the tree are written.
const GROUPS_MAX: usize = 500;

/// A gauge with its help.
type Gauge = (&'static str, &'static str, fn(&GroupView) -> f64);

const GAUGES: [Gauge; 5] = [
    (
        "group_requests_pending",
        "Requests of a group and of the groups below it that wait for a seat.",
        |group| group.waiting as f64,
    ),
    (
        "group_requests_running",
        "Requests of a group and of the groups below it that have a seat.",
        |group| group.running as f64,
    ),
    (
        "group_share",
        "Part of the service that a group gets while it and every group that has requests keep requests waiting, from 0 to 1.",
        |group| group.share_now,
    ),
    (
        "group_month_tokens",
        "Tokens of prompts and responses of a group and of the groups below it in the current month.",
        |group| group.tokens as f64,
    ),
    (
        "group_month_device_seconds",
        "Device time of a group and of the groups below it in the current month: used, held idle, and taken by loads. Counted every minute.",
        |group| group.device_seconds,
    ),
];

pub(super) fn write(list: &GroupList, text: &mut Text) {
    let groups = &list.groups[..list.groups.len().min(GROUPS_MAX)];
    for (name, help, of) in GAUGES {
        text.family(name, Kind::Gauge, help);
        for group in groups {
            text.sample(&[("group", &group.path)], of(group));
        }
    }
    let help = "The largest used part of a group's quota in the current month; 1 or more: it is used up. Only groups with a quota.";
    text.family("group_quota_used_ratio", Kind::Gauge, help);
    for group in groups {
        if let Some(quota) = &group.quota {
            let labels = [("group", group.path.as_str()), ("at_end", quota.at_end)];
            text.sample(&labels, quota.used_ratio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use config::{Config, GroupSection, QuotaSection};
    use pool::Time;

    #[test]
    fn groups_are_labelled_by_their_path_and_their_number_is_bounded() {
        let mut config = Config::default();
        let quota: QuotaSection = reading::yaml("{tokens: 10, at_end: refuse}").expect("a quota");
        for nth in 0..GROUPS_MAX + 5 {
            let group = GroupSection {
                parent: (nth > 0).then(|| "g0000".to_owned()),
                quota: (nth == 1).then_some(quota),
                ..GroupSection::default()
            };
            config.groups.insert(format!("g{nth:04}"), group);
        }
        let list = GroupList::new((&config, &config.groups), Time(0), &BTreeMap::new(), 0);
        let mut text = Text::default();
        write(&list, &mut text);
        let text = text.finish();
        assert_eq!(text.matches("model_pool_group_share{").count(), GROUPS_MAX);
        let line = "model_pool_group_quota_used_ratio{group=\"g0000/g0001\",at_end=\"refuse\"} 0";
        assert!(text.contains(line), "{text}");
    }
}
