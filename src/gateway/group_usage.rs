//! The requests, waits and tokens of groups: counted as responses end, and written to the store every few seconds. Tokens are read
//! back with the device time of the ledger as the totals of the current month.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::caller_group::CallerGroup;
use crate::group_spending::Spending;
use config::Month;
use pool::{Span, Time};
use store::{GroupUsage, Store, StoreError};

/// Largest number of unwritten counts, of a group in an hour each. Further ones count for quotas, and are not written.
const UNWRITTEN_MAX: usize = 20_000;
const HOUR_MS: u64 = 3_600_000;

type Unwritten = BTreeMap<(i64, Arc<str>), GroupUsage>;

/// The counts of all groups. The caller serializes reading and writing.
#[derive(Debug)]
pub(crate) struct GroupCounts {
    spending: Arc<Spending>,
    /// By the hour and the path of the group; the day is set when they are written.
    unwritten: Mutex<Unwritten>,
}

impl GroupCounts {
    pub(crate) fn new(spending: Arc<Spending>) -> GroupCounts {
        GroupCounts {
            spending,
            unwritten: Mutex::default(),
        }
    }

    /// Counts a request that had a seat. `used` has the tokens of prompt and response if an engine processed it.
    pub(crate) fn count(
        &self,
        group: &CallerGroup,
        waited: Option<Span>,
        used: Option<(u64, u64)>,
        now: Time,
    ) {
        let hour = i64::try_from(now.0 / HOUR_MS).unwrap_or(i64::MAX);
        let (prompt_tokens, completion_tokens) = used.unwrap_or_default();
        let counted = GroupUsage {
            path: group.path.to_string(),
            hour,
            seated: 1,
            waited: waited.is_some().into(),
            waited_ms: waited.unwrap_or_default().0,
            requests: used.is_some().into(),
            prompt_tokens,
            completion_tokens,
            ..GroupUsage::default()
        };
        // While the lock is held, no total is read that has these tokens twice or not at all.
        let mut unwritten = self.locked();
        group.spend(counted.tokens());
        add(&mut unwritten, (hour, Arc::clone(&group.path)), counted);
    }

    /// Returns true if the totals belong to this month.
    pub(crate) fn is_of(&self, month: Month) -> bool {
        self.spending.month() == Some(month)
    }

    /// Reads the totals of the month. If that fails, earlier totals of the same month stay; without any, quotas refuse nothing until
    /// a later call succeeds.
    pub(crate) async fn read(&self, store: &Store, month: Month) {
        let (first, last) = month.days();
        match store.group_sums(first, last).await {
            Ok(mut sums) => {
                let unwritten = self.locked();
                for used in unwritten.values() {
                    let sum = sums.entry(used.path.clone()).or_default();
                    sum.tokens = sum.tokens.saturating_add(used.tokens());
                }
                self.spending.set(month, &sums);
            }
            Err(fault) if self.is_of(month) => {
                tracing::warn!(%fault, "cannot read the usage of groups; quotas count what is known");
            }
            Err(fault) => {
                if self.spending.note_unread(month) {
                    tracing::warn!(
                        %fault,
                        "cannot read the usage of groups in {month}; no quota of a group is applied until it can be read, which is tried every 5 seconds"
                    );
                }
            }
        }
    }

    /// Writes the pending counts. They stay for the next attempt if that fails.
    pub(crate) async fn write(&self, store: &Store, day: i64) {
        let taken = std::mem::take(&mut *self.locked());
        if taken.is_empty() {
            return;
        }
        let rows = taken.values().cloned();
        let rows: Vec<GroupUsage> = rows.map(|used| GroupUsage { day, ..used }).collect();
        let mut written = store.add_group_usage(&rows).await;
        // Another process has taken over, while responses that began here end here.
        if written.as_ref().is_err_and(StoreError::is_closed)
            && let Ok(other) = store.open_again().await
        {
            written = other.add_group_usage(&rows).await;
            other.close().await;
        }
        if let Err(fault) = written {
            if !fault.is_logged_by_the_store() {
                tracing::warn!(%fault, rows = rows.len(), "cannot save the usage of groups");
            }
            let mut unwritten = self.locked();
            for (place, used) in taken {
                add(&mut unwritten, place, used);
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(unwritten: &mut Unwritten, place: (i64, Arc<str>), used: GroupUsage) {
    if let Some(sum) = unwritten.get_mut(&place) {
        sum.add(&used);
    } else if unwritten.len() < UNWRITTEN_MAX {
        unwritten.insert(place, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{AtEnd, GroupsSection};
    use pool::GroupId;

    #[tokio::test]
    async fn tokens_count_immediately_and_survive_a_restart_and_a_closed_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/state.db", folder.path().display());
        let store = Store::open(&url).await.expect("a store");
        let section: GroupsSection = reading::yaml("top: {}\nlab: {parent: top}").expect("groups");
        let november: Month = "2026-11".parse().expect("a month");
        let (first, last) = november.days();
        let start = || {
            let spending = Arc::new(Spending::default());
            let lab = CallerGroup::new(&section, "lab", &spending, GroupId(0));
            (
                GroupCounts::new(Arc::clone(&spending)),
                lab,
                spending.total("top"),
            )
        };
        let hour = |nth: u64| Time(nth * HOUR_MS);
        let (counts, lab, top) = start();
        assert!(!counts.is_of(november), "unknown is not nothing");
        counts.read(&store, november).await;
        counts.count(&lab, Some(Span(700)), Some((10, 5)), hour(5));
        assert_eq!(top.sum().tokens, 15);
        counts.count(&lab, None, None, hour(5));
        counts.write(&store, first).await;
        let hours = store.count_group_use(hour(5), hour(6)).await.expect("read");
        let found = (hours[0].requests, hours[0].waited, hours[0].waited_ms);
        assert_eq!((found, hours[0].tokens), ((2, 1, 700), 15));
        counts.count(&lab, None, Some((1, 0)), hour(6));
        counts.read(&store, november).await;
        assert_eq!(top.sum().tokens, 16, "the unwritten token counts once");
        counts.write(&store, last).await;
        let (counts, lab, top) = start();
        counts.read(&store, november).await;
        assert_eq!(top.sum().tokens, 16);
        counts
            .read(&store, "2026-12".parse().expect("a month"))
            .await;
        assert_eq!(top.sum().tokens, 0);
        store.close().await;
        counts.count(&lab, None, Some((2, 2)), hour(7));
        std::fs::remove_dir_all(folder.path()).expect("removed");
        counts.write(&store, last + 1).await;
        assert_eq!(counts.locked().len(), 1, "kept for the next attempt");
    }

    #[tokio::test]
    async fn a_quota_refuses_nothing_until_its_first_totals_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/state.db", folder.path().display());
        let text = "lab: {quota: {tokens: 10, at_end: refuse}}";
        let section: GroupsSection = reading::yaml(text).expect("groups");
        let spending = Arc::new(Spending::default());
        let counts = GroupCounts::new(Arc::clone(&spending));
        let lab = CallerGroup::new(&section, "lab", &spending, GroupId(0));
        let is_refused = || lab.spent_quota(AtEnd::Refuse).is_some();
        let [november, december]: [Month; 2] =
            ["2026-11", "2026-12"].map(|month| month.parse().expect("a month"));
        let closed = Store::open(&url).await.expect("a store");
        closed.close().await;
        counts.read(&closed, november).await;
        assert!(!counts.is_of(november), "it is read again");
        counts.count(&lab, None, Some((9, 9)), Time(0));
        assert!(!is_refused(), "unknown is not used up");
        let open = Store::open(&url).await.expect("a store");
        counts.read(&open, november).await;
        assert!(counts.is_of(november) && is_refused());
        counts.read(&closed, november).await;
        assert!(is_refused(), "the totals of this month are known");
        counts.write(&open, november.days().0).await;
        counts.read(&closed, december).await;
        assert!(!is_refused(), "the totals of another month do not count");
        counts.read(&open, december).await;
        counts.count(&lab, None, Some((9, 1)), Time(0));
        assert!(is_refused());
    }
}
