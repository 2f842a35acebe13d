//! The tree of groups as a table, with the use of each in the current month. Pure.

use crate::decisions::{ChangedGroup, GroupList, GroupQuota, GroupView};
use crate::render::fold::{name, sentence};
use crate::render::quantity::Clock;
use crate::render::table::{Column, Row, column, table};
use crate::style::{Style, clean_line};
use terminal::row;

const COLUMNS: [Column; 10] = [
    column("GROUP").shortens_to(14),
    column("WEIGHT").right(),
    column("SHARE NOW").right(),
    column("CLASS").leaves(2),
    column("MEMBERS").right().leaves(3),
    column("WAITING").right(),
    column("RUNNING").right(),
    column("TOKENS").right(),
    column("GPU HOURS").right(),
    column("QUOTA").leaves(1),
];

/// Each group below its parent, as the server sends them.
pub fn groups(list: &GroupList, clock: Clock, style: Style) -> String {
    let rows = list.groups.iter().map(line);
    let empty = "No groups. docs/guides/groups.md describes how to configure them.";
    let table = table(&COLUMNS, rows, empty, style);
    if list.groups.is_empty() {
        return table;
    }
    let period = format!(
        "{}, until {}; figures include the groups below",
        list.month,
        clock.stamp(&list.month_ends_at)
    );
    format!("{}\n{table}", sentence(&clean_line(&period), style))
}

/// The group that was set or removed, followed by warnings.
pub fn changed(changed: &ChangedGroup, done: &str, style: Style) -> String {
    let mut text = format!("group {} is {done}\n", name(&changed.group, style));
    for warning in &changed.warnings {
        let warning = format!("warning: {}", clean_line(warning));
        text.push_str(&sentence(&warning, style));
    }
    text
}

fn line(group: &GroupView) -> Row {
    let depth = group.path.matches('/').count();
    let mut class = group.class_max.clone();
    if group.reserved_permille > 0 {
        class.push_str(&format!(", {}‰ reserved", group.reserved_permille));
    }
    if let Some(most) = group.priority_max {
        class.push_str(&format!(", priority up to {most}"));
    }
    row![
        format!("{}{}", "  ".repeat(depth), group.group),
        group.weight,
        format!("{:.1} %", group.share_now * 100.0),
        class,
        group.members,
        group.waiting,
        group.running,
        group.tokens,
        format!("{:.2}", group.device_seconds / 3_600.0),
        group.quota.as_ref().map(quota),
    ]
}

/// `31 % of 100 GPU hours, then lowest`.
fn quota(quota: &GroupQuota) -> String {
    let hours = quota.gpu_hours.map(|hours| format!("{hours} GPU hours"));
    let tokens = quota.tokens.map(|tokens| format!("{tokens} tokens"));
    let figures: Vec<String> = hours.into_iter().chain(tokens).collect();
    format!(
        "{:.0} % of {}, then {}",
        quota.used_ratio * 100.0,
        figures.join(" or "),
        quota.at_end
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::quantity::tests::noon;
    use serde_json::json;

    #[test]
    fn a_group_is_indented_below_its_parent_with_its_quota() {
        let list: GroupList = serde_json::from_value(json!({
            "month": "2026-11", "month_ends_at": "2026-12-01T00:00:00.000Z", "groups": [
                {"group": "physics", "path": "physics", "weight": 2, "share_now": 0.667, "reserved_permille": 100, "class_max": "priority", "priority_max": 2,
                    "members": 3, "waiting": 1, "running": 2, "tokens": 1200, "device_seconds": 5400.0,
                    "quota": {"gpu_hours": 5.0, "tokens": null, "at_end": "lowest", "used_ratio": 0.3}},
                {"group": "lab", "path": "physics/lab", "parent": "physics", "weight": 1, "share_now": 0.667, "class_max": "default"}]}))
        .expect("groups");
        let text = groups(&list, noon(), Style::PLAIN);
        assert!(text.starts_with("2026-11, until 2026-12-01"), "{text}");
        let line = |start: &str| text.lines().find(|line| line.starts_with(start));
        let top = line("physics").expect("a row");
        for cell in [
            "66.7 %",
            "priority, 100‰ reserved, priority up to 2",
            "1.50",
            "30 % of 5 GPU hours, then lowest",
        ] {
            assert!(top.contains(cell), "{cell}: {text}");
        }
        assert!(line("  lab").is_some(), "{text}");
        let none = groups(&GroupList::default(), noon(), Style::PLAIN);
        assert!(none.starts_with("No groups."), "{none}");
    }
}
