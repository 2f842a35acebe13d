//! Activity of groups of callers during a period, for reports.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use utoipa::ToSchema;

use super::report::{csv_text, escaped, listed, mean, sum};
use store::{GroupEventCount, GroupUseCount};

/// The first groups by path have their own rows.
const ROWS_MAX: usize = 500;
/// The row of all further groups. No group has a space in its name.
const OTHERS: &str = "other groups";

/// The members of one group, without the groups below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct GroupReport {
    /// The path of the group at that time. Groups beyond the first 500 are counted together as `other groups`.
    #[schema(example = "physics/lab")]
    pub group: String,
    /// Requests that got a seat. Requests, waits and tokens are counted by the hour.
    pub requests: u64,
    /// Requests that waited in a queue first.
    pub waited: u64,
    /// Sum of their waiting times.
    pub waited_seconds: f64,
    /// Loads that were started for a waiting request of the group.
    pub cold_starts: u64,
    /// Events of refused requests and orders, by reason.
    #[schema(example = json!({"queue_full": 2}))]
    pub refusals: BTreeMap<String, u64>,
    /// Tokens of prompts and responses.
    pub tokens: u64,
}

impl GroupReport {
    /// Kinds of the events that count.
    pub const KINDS: [&'static str; 2] = ["load", "refuse"];

    /// Groups with activity, in the order of their paths.
    pub fn all(events: &[GroupEventCount], uses: &[GroupUseCount]) -> Vec<GroupReport> {
        let mut groups: BTreeMap<&str, GroupReport> = BTreeMap::new();
        for count in uses {
            groups.entry(&count.path).or_default().used(count);
        }
        for count in events {
            groups.entry(&count.group).or_default().count(count);
        }
        let mut rows: Vec<GroupReport> = Vec::new();
        for (nth, (path, report)) in groups.into_iter().enumerate() {
            match rows.last_mut() {
                Some(others) if nth > ROWS_MAX => others.add(report),
                _ => {
                    let group = if nth < ROWS_MAX { path } else { OTHERS };
                    let group = group.to_owned();
                    rows.push(GroupReport { group, ..report });
                }
            }
        }
        rows
    }

    fn used(&mut self, count: &GroupUseCount) {
        self.requests += count.requests;
        self.waited += count.waited;
        self.waited_seconds += count.waited_ms as f64 / 1000.0;
        self.tokens = self.tokens.saturating_add(count.tokens);
    }

    fn count(&mut self, count: &GroupEventCount) {
        let cause = count.cause.as_deref().unwrap_or("unknown");
        match count.kind.as_str() {
            "load" if cause == "requests" => self.cold_starts += count.count,
            "refuse" => *self.refusals.entry(cause.to_owned()).or_default() += count.count,
            _ => {}
        }
    }

    fn add(&mut self, other: GroupReport) {
        self.requests = self.requests.saturating_add(other.requests);
        self.waited = self.waited.saturating_add(other.waited);
        self.waited_seconds += other.waited_seconds;
        self.cold_starts += other.cold_starts;
        self.tokens = self.tokens.saturating_add(other.tokens);
        for (cause, count) in other.refusals {
            *self.refusals.entry(cause).or_default() += count;
        }
    }
}

/// One line per group.
pub(super) fn csv(groups: &[GroupReport]) -> String {
    let mut text = String::from(
        "group,requests,waited,waited_seconds,cold_starts,refusals,refusals_by_reason,tokens\r\n",
    );
    for report in groups {
        let _ = write!(
            text,
            "{},{},{},{:.3},{},{},{},{}\r\n",
            csv_text(&report.group),
            report.requests,
            report.waited,
            report.waited_seconds,
            report.cold_starts,
            sum(&report.refusals),
            csv_text(&listed(&report.refusals)),
            report.tokens,
        );
    }
    text
}

/// The table of the HTML page; empty without groups.
pub(super) fn table(groups: &[GroupReport]) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let row = |report: &GroupReport| {
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&report.group),
            report.requests,
            report.waited,
            mean(report.waited_seconds, report.waited),
            report.cold_starts,
            sum(&report.refusals),
            report.tokens,
        )
    };
    let rows: String = groups.iter().map(row).collect();
    format!(
        "\n<table><thead><tr><th>Group</th><th>Requests</th><th>Waited</th><th>Mean wait</th><th>Cold starts</th>\
         <th>Refused</th><th>Tokens</th></tr></thead>\n<tbody>{rows}</tbody></table>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(path: &str, requests: u64) -> GroupUseCount {
        GroupUseCount {
            path: path.to_owned(),
            requests,
            waited: 1,
            waited_ms: 1500,
            tokens: 10 * requests,
        }
    }

    fn event(group: &str, kind: &str, cause: Option<&str>, count: u64) -> GroupEventCount {
        GroupEventCount {
            group: group.to_owned(),
            kind: kind.to_owned(),
            cause: cause.map(str::to_owned),
            count,
        }
    }

    #[test]
    fn a_group_has_its_use_and_the_events_that_its_members_caused() {
        let events = [
            event("a/b", "load", Some("requests"), 3),
            event("a/b", "load", Some("order"), 1),
            event("a/b", "refuse", Some("queue_full"), 2),
            event("=c", "refuse", None, 1),
        ];
        let groups = GroupReport::all(&events, &[used("a/b", 5)]);
        let names: Vec<&str> = groups.iter().map(|group| group.group.as_str()).collect();
        assert_eq!(names, ["=c", "a/b"]);
        let lab = &groups[1];
        assert_eq!((lab.requests, lab.waited, lab.tokens), (5, 1, 50));
        assert_eq!((lab.cold_starts, lab.refusals["queue_full"]), (3, 2));
        assert_eq!(groups[0].refusals["unknown"], 1);
        let csv = csv(&groups);
        assert!(csv.contains("\"'=c\",0,0,0.000,0,1,"), "{csv}");
        assert!(
            csv.contains("\"a/b\",5,1,1.500,3,2,\"queue_full 2\",50"),
            "{csv}"
        );
        let html = table(&groups);
        assert!(html.contains("<td>a/b</td><td>5</td><td>1</td><td>1.5 s</td>"));
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn groups_beyond_a_limit_are_counted_together_and_none_is_lost() {
        let all = ROWS_MAX as u64 + 7;
        let uses: Vec<_> = (0..all).map(|nth| used(&format!("g{nth:04}"), 1)).collect();
        let events = [event("g0506", "refuse", Some("no_room"), 4)];
        let groups = GroupReport::all(&events, &uses);
        assert_eq!(groups.len(), ROWS_MAX + 1);
        let others = &groups[ROWS_MAX];
        assert_eq!((others.group.as_str(), others.requests), (OTHERS, 7));
        assert_eq!(others.refusals["no_room"], 4);
        assert_eq!(
            groups.iter().map(|group| group.tokens).sum::<u64>(),
            10 * all
        );
    }
}
