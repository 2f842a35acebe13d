//! The use of the groups in the current month: tokens as engines count them, and device time from the ledger. Tokens are added
//! as responses end. Every minute the totals are read from the store, which also knows what an earlier process counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::{AtEnd, Month, QuotaSection};
use store::GroupSum;

const HOUR_MS: f64 = 3_600_000.0;

/// The use of a group and of the groups below it in the current month.
#[derive(Debug, Default)]
pub struct Spent {
    tokens: AtomicU64,
    device_ms: AtomicU64,
    /// The log already says that the quota is used up.
    is_noted: AtomicBool,
    /// The totals of the month could not be read: quotas that count them are not applied.
    is_unread: Arc<AtomicBool>,
}

impl Spent {
    pub fn sum(&self) -> GroupSum {
        GroupSum {
            tokens: self.tokens.load(Ordering::Relaxed),
            device_ms: self.device_ms.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn add_tokens(&self, tokens: u64) {
        // Absurd counts of an engine are refused before, so the sum does not overflow.
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
    }
}

/// The totals of all groups by name.
#[derive(Debug, Default)]
pub(crate) struct Spending {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Also groups that no longer exist: their total is known if they come back in the same month.
    groups: BTreeMap<String, Arc<Spent>>,
    month: Option<Month>,
    is_unread: Arc<AtomicBool>,
}

impl State {
    fn total(&mut self, group: &str) -> &Arc<Spent> {
        let is_unread = &self.is_unread;
        self.groups.entry(group.to_owned()).or_insert_with(|| {
            Arc::new(Spent {
                is_unread: Arc::clone(is_unread),
                ..Spent::default()
            })
        })
    }
}

impl Spending {
    /// The totals of a group, which stay the same object as long as this process runs.
    pub(crate) fn total(&self, group: &str) -> Arc<Spent> {
        Arc::clone(self.locked().total(group))
    }

    /// The month of the totals; `None` until they have been read.
    pub(crate) fn month(&self) -> Option<Month> {
        self.locked().month
    }

    /// Replaces all totals by the sums of this month, which are given by the path of the group.
    pub(crate) fn set(&self, month: Month, sums: &BTreeMap<String, GroupSum>) {
        let mut totals: BTreeMap<&str, GroupSum> = BTreeMap::new();
        for (path, sum) in sums {
            for name in path.split('/') {
                let total = totals.entry(name).or_default();
                total.tokens = total.tokens.saturating_add(sum.tokens);
                total.device_ms = total.device_ms.saturating_add(sum.device_ms);
            }
        }
        let mut state = self.locked();
        let is_new_month = state.month.replace(month) != Some(month);
        for name in totals.keys() {
            state.total(name);
        }
        state.is_unread.store(false, Ordering::Relaxed);
        for (name, spent) in &state.groups {
            let total = totals.get(name.as_str()).copied().unwrap_or_default();
            spent.tokens.store(total.tokens, Ordering::Relaxed);
            spent.device_ms.store(total.device_ms, Ordering::Relaxed);
            if is_new_month {
                spent.is_noted.store(false, Ordering::Relaxed);
            }
        }
    }

    /// The totals of this month could not be read. Until [`Spending::set`], no quota is applied, unless the totals of the month were
    /// read before. Returns true if quotas were applied until now.
    pub(crate) fn note_unread(&self, month: Month) -> bool {
        let state = self.locked();
        state.month != Some(month) && !state.is_unread.swap(true, Ordering::Relaxed)
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The quota of a group, and what the group has used of it.
#[derive(Clone, Debug)]
pub(crate) struct GroupQuota {
    pub(crate) group: Arc<str>,
    pub(crate) quota: QuotaSection,
    pub(crate) spent: Arc<Spent>,
}

/// A quota that is used up, with its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct SpentQuota {
    group: Arc<str>,
    used: String,
    most: String,
    unit: &'static str,
}

impl fmt::Display for SpentQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpentQuota {
            group,
            used,
            most,
            unit,
        } = self;
        write!(
            f,
            "the group {group} has used {used} of {most} {unit} in this month (groups.{group}.quota)"
        )
    }
}

impl GroupQuota {
    /// Its figures, if it is used up. A quota whose figures are not known is not used up.
    pub(crate) fn spent(&self) -> Option<SpentQuota> {
        if self.spent.is_unread.load(Ordering::Relaxed) {
            return None;
        }
        let sum = self.spent.sum();
        let over = |used: String, most: String, unit| SpentQuota {
            group: Arc::clone(&self.group),
            used,
            most,
            unit,
        };
        let hours = sum.device_ms as f64 / HOUR_MS;
        if let Some(most) = self.quota.gpu_hours.filter(|most| hours >= *most) {
            return Some(over(format!("{hours:.2}"), most.to_string(), "GPU hours"));
        }
        let most = self.quota.tokens.filter(|most| sum.tokens >= most.0)?;
        Some(over(sum.tokens.to_string(), most.0.to_string(), "tokens"))
    }

    /// Logs once a month that the quota is used up.
    pub(crate) fn note(&self) {
        if let Some(spent) = self.spent()
            && !self.spent.is_noted.swap(true, Ordering::Relaxed)
        {
            let then = match self.quota.at_end {
                AtEnd::Warn => "its requests are served as before",
                AtEnd::Lowest => "its requests are served in the class flex until the month ends",
                AtEnd::Refuse => "its requests are refused until the month ends",
            };
            tracing::warn!("{spent}; {then}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(all: &[(&str, u64, u64)]) -> BTreeMap<String, GroupSum> {
        let sum = |&(path, tokens, device_ms): &(&str, u64, u64)| {
            (path.to_owned(), GroupSum { tokens, device_ms })
        };
        all.iter().map(sum).collect()
    }

    #[test]
    fn a_group_has_the_use_of_the_groups_below_it_and_a_month_begins_with_nothing() {
        let spending = Spending::default();
        let lab = spending.total("lab");
        assert_eq!(spending.month(), None);
        let november: Month = "2026-11".parse().unwrap();
        spending.set(
            november,
            &sums(&[("lab", 1, 10), ("lab/course", 2, 20), ("old", 5, 5)]),
        );
        let all = |tokens, device_ms| GroupSum { tokens, device_ms };
        assert_eq!(lab.sum(), all(3, 30));
        assert_eq!(spending.total("course").sum(), all(2, 20));
        assert_eq!(
            spending.total("old").sum(),
            all(5, 5),
            "of an earlier configuration"
        );
        lab.add_tokens(7);
        assert_eq!(lab.sum().tokens, 10);
        spending.set("2026-12".parse().unwrap(), &BTreeMap::new());
        assert_eq!(lab.sum(), all(0, 0));
        spending.set(november, &sums(&[("lab", 4, 0)]));
        assert_eq!(lab.sum(), all(4, 0), "the clock was set back");
    }

    #[test]
    fn a_quota_is_used_up_by_the_first_of_its_figures() {
        let quota: QuotaSection =
            reading::yaml("{gpu_hours: 2, tokens: 1k, at_end: refuse}").expect("a quota");
        let one = GroupQuota {
            group: "lab".into(),
            quota,
            spent: Arc::default(),
        };
        one.spent.add_tokens(999);
        assert_eq!(one.spent(), None);
        one.spent.add_tokens(1);
        let text = one.spent().expect("used up").to_string();
        assert_eq!(
            text,
            "the group lab has used 1000 of 1000 tokens in this month (groups.lab.quota)"
        );
        one.spent.device_ms.store(9_000_000, Ordering::Relaxed);
        let text = one.spent().expect("used up").to_string();
        assert!(text.contains("2.50 of 2 GPU hours"), "{text}");
    }
}
