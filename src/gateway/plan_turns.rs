//! Turns to plan a load for a request that does not wait for its model. The pool makes one such plan at a time, and callers take turns:
//! a caller that requests many models delays another caller by one plan.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use edge::record;
use edge::shares::{Caller, Capacity, Class, Permit, Shares};
use pool::Time;

/// The number of plans that are made at a time.
pub const PLANS_MAX: u64 = 1;
/// The longest wait for a turn.
const WAIT_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct PlanTurns(Arc<Shares>);

impl Default for PlanTurns {
    fn default() -> PlanTurns {
        PlanTurns(Shares::new(Capacity::in_turns(PLANS_MAX)))
    }
}

impl PlanTurns {
    /// The next turn of the current request's caller. `None` after two seconds.
    pub async fn next(&self) -> Option<Permit> {
        let (caller, _) = record::caller();
        timeout(WAIT_MAX, self.next_of(caller)).await.ok()
    }

    async fn next_of(&self, caller: Caller) -> Permit {
        self.0.hold(caller, Class::Small, 1, Time(0)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::FuturesUnordered;
    use futures_util::{FutureExt, StreamExt};
    use pool::KeyId;

    #[tokio::test]
    async fn b1_a_caller_that_requests_many_models_delays_another_caller_by_one_plan() {
        let turns = PlanTurns::default();
        let of = |key: u64| {
            let turn = turns.next_of(Caller::Key(KeyId(key)));
            async move { (key, turn.await) }
        };
        let planning = turns.next_of(Caller::Key(KeyId(1))).await;
        let many = (0..100).map(|_| of(1));
        let mut waiting: FuturesUnordered<_> = many.chain([of(2)]).collect();
        // Every request waits while the first plan is made.
        assert!(waiting.next().now_or_never().is_none());
        drop(planning);
        let mut order = Vec::new();
        while let Some((key, turn)) = waiting.next().await {
            order.push(key);
            drop(turn);
        }
        let place = order.iter().position(|key| *key == 2);
        assert!(place.is_some_and(|place| place <= 1), "{place:?}");
        assert_eq!((order.len(), turns.0.held()), (101, 0));
    }
}
