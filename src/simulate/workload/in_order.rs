//! Sorts requests that are drawn minute by minute and may come before their minute. Holds back only requests that a later minute
//! could still precede.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// (milliseconds, model, duration of the request).
pub type Request = (u64, u32, u64);

/// Sorts the requests of minutes; some may come before their minute.
pub struct InOrder<I> {
    /// The requests of each minute, with its beginning.
    minutes: I,
    held: BinaryHeap<Reverse<Request>>,
    /// No request of a later minute comes before this time.
    complete_until: u64,
    reach: u64,
}

impl<I> InOrder<I> {
    /// `reach` is the maximum time by which a request comes before its minute.
    pub fn new(minutes: I, reach: u64) -> InOrder<I> {
        InOrder {
            minutes,
            held: BinaryHeap::new(),
            complete_until: 0,
            reach,
        }
    }
}

impl<I: Iterator<Item = (u64, Vec<Request>)>> Iterator for InOrder<I> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            let first = self.held.peek().map(|Reverse(first)| first.0);
            if first.is_some_and(|at| at < self.complete_until) {
                return self.held.pop().map(|Reverse(request)| request);
            }
            let Some((minute, requests)) = self.minutes.next() else {
                return self.held.pop().map(|Reverse(request)| request);
            };
            self.complete_until = minute.saturating_sub(self.reach);
            self.held.extend(requests.into_iter().map(Reverse));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_from_before_their_minute_are_sorted_by_time() {
        let minutes: [(u64, Vec<Request>); 3] = [
            (60_000, vec![(70_000, 0, 1), (61_000, 1, 1)]),
            (120_000, vec![(121_000, 0, 1), (65_000, 1, 1)]),
            (300_000, vec![(300_000, 0, 1)]),
        ];
        let ordered = InOrder::new(minutes.into_iter(), 60_000);
        let times: Vec<u64> = ordered.map(|(at, ..)| at).collect();
        assert_eq!(times, [61_000, 65_000, 70_000, 121_000, 300_000]);
    }
}
