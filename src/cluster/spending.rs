//! The GPU time and the cost of the nodes that the pool has requested, per day and month, computed from the cluster's leases.

use chrono::{DateTime, Datelike, Local, NaiveDate, TimeZone};
use config::ClusterSection;
use serde::{Deserialize, Serialize};

use super::{LeaseState, NodeLease};
use pool::DemandId;

/// The use of nodes up to a time. Counting a period twice is not possible: each call continues where the last one ended, also after a
/// restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spending {
    /// Everything before is counted. Seconds since 1970.
    until: u64,
    day: Period,
    month: Period,
    /// The part of the day by nodes that were requested for batches. Stored figures of an earlier version lack it.
    #[serde(default)]
    batch_day: Period,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// The first day.
    first: Option<NaiveDate>,
    pub gpu_seconds: u64,
    /// In the currency of the shapes' `cost_per_hour`.
    pub cost: f64,
}

impl Spending {
    pub fn day(&self) -> &Period {
        &self.day
    }

    pub fn month(&self) -> &Period {
        &self.month
    }

    pub fn batch_day(&self) -> &Period {
        &self.batch_day
    }

    /// Adds the use by leases of the pool's requests since the last call. Returns true if a total has changed.
    pub fn count(
        &mut self,
        leases: &[NodeLease],
        section: &ClusterSection,
        now: DateTime<Local>,
    ) -> bool {
        let before = self.totals();
        let today = now.date_naive();
        let unix = u64::try_from(now.timestamp()).unwrap_or(0);
        // The first call of a new store has no earlier use to count.
        let from = if self.until == 0 { unix } else { self.until };
        let first_of_month = today.with_day(1).unwrap_or(today);
        let periods = [
            (&mut self.day, today, false),
            (&mut self.month, first_of_month, false),
            (&mut self.batch_day, today, true),
        ];
        for (period, first, only_batches) in periods {
            if period.first != Some(first) {
                *period = Period {
                    first: Some(first),
                    ..Period::default()
                };
            }
            let begin = from.max(start_of(first));
            let counts = |lease: &&NodeLease| {
                let demand = lease.demand.map(DemandId);
                demand.is_some_and(|demand| !only_batches || demand.is_for_batches())
            };
            for lease in leases.iter().filter(counts) {
                let shapes = &mut section.shapes.iter();
                if let Some(shape) = shapes.find(|shape| shape.name == lease.shape) {
                    let seconds = held_seconds(lease, begin, unix);
                    period.gpu_seconds += seconds * u64::from(shape.gpus);
                    let hours = std::time::Duration::from_secs(seconds).as_secs_f64() / 3600.0;
                    period.cost += hours * shape.cost_per_hour.unwrap_or(0.0);
                }
            }
        }
        self.until = unix.max(from);
        before != self.totals()
    }

    fn totals(&self) -> [(u64, f64); 3] {
        let all = [&self.day, &self.month, &self.batch_day];
        all.map(|period| (period.gpu_seconds, period.cost))
    }
}

/// The seconds between two times during which the lease had its machine.
fn held_seconds(lease: &NodeLease, from: u64, to: u64) -> u64 {
    let from = lease.starts_unix.unwrap_or(from).max(from);
    let to = match &lease.state {
        LeaseState::Running { .. } => to,
        LeaseState::Ended { .. } if lease.starts_unix.is_some() => {
            lease.ends_unix.unwrap_or(from).min(to)
        }
        LeaseState::Ended { .. } | LeaseState::Pending { .. } | LeaseState::Starting { .. } => from,
    };
    to.saturating_sub(from)
}

fn start_of(day: NaiveDate) -> u64 {
    let midnight = day.and_hms_opt(0, 0, 0).unwrap_or_default();
    // A day may begin after midnight in spring.
    let start = Local.from_local_datetime(&midnight).earliest();
    let start = start.map_or_else(|| midnight.and_utc().timestamp(), |start| start.timestamp());
    u64::try_from(start).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_ins;
    use config::ClusterKind;

    fn at(day: u32, hour: u32, minute: u32) -> DateTime<Local> {
        let time = Local.with_ymd_and_hms(2026, 11, day, hour, minute, 0);
        time.earliest().expect("a time")
    }

    fn unix(time: DateTime<Local>) -> u64 {
        u64::try_from(time.timestamp()).expect("after 1970")
    }

    fn section() -> ClusterSection {
        let mut shape = stand_ins::shape("a2", 2, 28_800);
        shape.cost_per_hour = Some(3.0);
        stand_ins::section(ClusterKind::Slurm, vec![shape])
    }

    fn lease(state: LeaseState, starts: Option<DateTime<Local>>) -> NodeLease {
        NodeLease {
            id: stand_ins::id("13"),
            shape: "a2".to_owned(),
            node: "slurm-13".to_owned(),
            demand: Some(7),
            owner: None,
            set: None,
            state,
            time_limit: None,
            starts_unix: starts.map(unix),
            ends_unix: None,
        }
    }

    fn running(starts: DateTime<Local>) -> NodeLease {
        let host = "gpu07".to_owned();
        lease(LeaseState::Running { host }, Some(starts))
    }

    fn gpu_minutes(period: &Period) -> u64 {
        period.gpu_seconds / 60
    }

    #[test]
    fn usage_is_counted_once_across_restarts_and_midnight() {
        let section = section();
        let mut spending = Spending::default();
        spending.count(&[], &section, at(28, 22, 0));
        let job = [running(at(28, 23, 0))];
        assert!(spending.count(&job, &section, at(28, 23, 30)));
        assert_eq!(gpu_minutes(spending.day()), 60);
        assert!((spending.day().cost - 1.5).abs() < 1e-9);
        assert!(
            !spending.count(&job, &section, at(28, 23, 30)),
            "no time passed"
        );
        // A restart, and a controller that was away until after midnight.
        let stored = serde_json::to_string(&spending).expect("JSON");
        let mut spending: Spending = serde_json::from_str(&stored).expect("read");
        spending.count(&job, &section, at(29, 0, 30));
        assert_eq!(gpu_minutes(spending.day()), 60, "since midnight");
        assert_eq!(gpu_minutes(spending.month()), 180);
        // A clock that was set back counts nothing twice.
        spending.count(&job, &section, at(29, 0, 10));
        spending.count(&job, &section, at(29, 0, 30));
        assert_eq!(gpu_minutes(spending.month()), 180);
    }

    #[test]
    fn spending_counts_only_running_leases_requested_by_the_pool() {
        let section = section();
        let mut spending = Spending::default();
        spending.count(&[], &section, at(28, 10, 0));
        let mut persons = running(at(28, 10, 0));
        persons.demand = None;
        let mut unknown = running(at(28, 10, 0));
        unknown.shape = "gone".to_owned();
        let reason = "Resources".to_owned();
        let pending = lease(LeaseState::Pending { reason }, Some(at(28, 10, 0)));
        let why = "released".to_owned();
        let mut ended = lease(LeaseState::Ended { why }, Some(at(28, 9, 0)));
        ended.ends_unix = Some(unix(at(28, 10, 15)));
        let all = [persons, unknown, pending, ended];
        spending.count(&all, &section, at(28, 11, 0));
        assert_eq!(gpu_minutes(spending.day()), 30);
        spending.count(&all, &section, at(28, 12, 0));
        assert_eq!(gpu_minutes(spending.day()), 30);
    }

    #[test]
    fn b8_nodes_for_batches_count_in_total_and_on_their_own_across_restarts() {
        let section = section();
        let mut spending = Spending::default();
        spending.count(&[], &section, at(28, 10, 0));
        let mut of_batches = running(at(28, 10, 0));
        of_batches.demand = Some(DemandId(7).for_batches().0);
        let all = [running(at(28, 10, 0)), of_batches];
        spending.count(&all, &section, at(28, 11, 0));
        let minutes = |spending: &Spending| {
            let periods = [spending.day(), spending.batch_day()];
            periods.map(gpu_minutes)
        };
        assert_eq!(minutes(&spending), [240, 120]);
        let stored = serde_json::to_string(&spending).expect("JSON");
        let mut spending: Spending = serde_json::from_str(&stored).expect("read");
        spending.count(&all, &section, at(28, 12, 0));
        assert_eq!(minutes(&spending), [480, 240]);
        // An earlier version stored no figures of batches.
        let mut earlier: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
        earlier.as_object_mut().expect("fields").remove("batch_day");
        let spending: Spending = serde_json::from_value(earlier).expect("read");
        assert_eq!(minutes(&spending), [240, 0]);
    }

    #[test]
    fn a_new_day_and_a_new_month_begin_at_zero() {
        let section = section();
        let mut spending = Spending::default();
        spending.count(&[], &section, at(30, 20, 0));
        spending.count(&[running(at(30, 20, 0))], &section, at(30, 21, 0));
        assert_eq!(gpu_minutes(spending.month()), 120);
        let next = Local.with_ymd_and_hms(2026, 12, 1, 0, 1, 0).earliest();
        assert!(spending.count(&[], &section, next.expect("a time")));
        assert_eq!(
            (spending.day().gpu_seconds, spending.month().gpu_seconds),
            (0, 0)
        );
    }
}
