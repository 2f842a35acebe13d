//! Tests of callers' shares under pressure from others.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use pool::KeyId;

const NOW: Time = Time(10_000);

fn divided(most: u64) -> Arc<Shares> {
    Shares::new(Capacity {
        most: [most / 4 * 3, most - most / 16, most],
        is_divided: true,
    })
}

fn key(id: u64) -> Caller {
    Caller::Key(KeyId(id))
}

fn is_ready<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn fill(shares: &Arc<Shares>, caller: Caller, class: Class) -> Vec<Permit> {
    std::iter::from_fn(|| shares.try_hold(caller, class, 1 << 10, NOW)).collect()
}

#[test]
fn each_caller_gets_half_of_the_remaining_memory() {
    let shares = divided(1 << 20);
    let mut all = Vec::new();
    let mut before = u64::MAX;
    for id in 1..=8 {
        all.push(fill(&shares, key(id), Class::Small));
        let held = all.last().map_or(0, |permits| permits.len() as u64);
        assert!(held > 0 && held < before, "caller {id} holds {held} KiB");
        before = held;
    }
    drop(all);
    assert_eq!(shares.held(), 0);
}

#[test]
fn a_single_body_may_exceed_the_share_of_its_caller() {
    let shares = divided(1 << 20);
    let whole = shares.try_hold(key(1), Class::Large, 700 << 10, NOW);
    assert!(whole.is_some());
    assert!(shares.try_hold(key(1), Class::Large, 1, NOW).is_none());
}

#[test]
fn announced_bytes_count_only_against_their_own_caller() {
    let shares = divided(1 << 20);
    let arrivals: Vec<Arrival> = (0..20)
        .map(|_| {
            let arrival = shares.arrive(key(1), Class::Small, 1, NOW);
            let _ = is_ready(pin!(arrival.promise(100 << 10, NOW)));
            arrival
        })
        .collect();
    assert_eq!(shares.held(), 20);
    let next = shares.arrive(key(1), Class::Small, 1, NOW);
    assert!(is_ready(pin!(next.promise(100 << 10, NOW))).is_none());
    let other = shares.arrive(key(2), Class::Small, 1, NOW);
    assert!(is_ready(pin!(other.promise(100 << 10, NOW))).is_some());
    assert!(is_ready(pin!(other.grow(Class::Small, 100 << 10, NOW))).is_some());
    drop((arrivals, next, other));
    assert_eq!(shares.held(), 0);
}

#[test]
fn full_memory_evicts_the_slowest_body_of_the_caller_that_holds_most() {
    let shares = divided(1 << 20);
    let small = shares.arrive(key(2), Class::Small, 100 << 10, NOW);
    let later = Time(NOW.0 + 20_000);
    let fast = shares.arrive(key(1), Class::Small, 500 << 10, later);
    let slow = shares.arrive(key(1), Class::Small, 300 << 10, NOW);
    let third = shares.try_hold(key(3), Class::Small, 200 << 10, later);
    assert!(third.is_some());
    assert!(is_ready(pin!(slow.evicted())).is_some());
    assert!(is_ready(pin!(fast.evicted())).is_none());
    assert!(is_ready(pin!(small.evicted())).is_none());
    assert!(slow.complete().is_err());
    let fast = fast.complete().unwrap();
    assert!(small.complete().is_ok());
    drop((third, fast));
    assert_eq!(shares.held(), 0);
}

#[test]
fn nothing_is_evicted_for_a_caller_that_holds_as_much_itself() {
    let shares = divided(1 << 20);
    let first = shares.arrive(key(1), Class::Small, 400 << 10, NOW);
    let own = shares.arrive(key(2), Class::Small, 500 << 10, NOW);
    assert!(
        shares
            .try_hold(key(2), Class::Small, 100 << 10, NOW)
            .is_none()
    );
    assert!(first.complete().is_ok() && own.complete().is_ok());
}

#[test]
fn waiting_callers_take_turns_and_cancelled_waits_are_skipped() {
    let shares = Shares::new(Capacity::in_turns(1));
    let held = shares.try_hold(key(1), Class::Small, 1, NOW).unwrap();
    let mut queue: Vec<_> = [1, 1, 2, 3]
        .map(|id| (id, Box::pin(shares.hold(key(id), Class::Small, 1, NOW))))
        .into_iter()
        .collect();
    for (_, waiting) in &mut queue {
        assert!(is_ready(waiting.as_mut()).is_none());
    }
    assert!(shares.try_hold(key(4), Class::Small, 1, NOW).is_none());
    // Caller 3 leaves.
    drop(queue.pop());
    let mut order = Vec::new();
    let mut permit = Some(held);
    while let Some(before) = permit.take() {
        drop(before);
        for nth in 0..queue.len() {
            if let Some(next) = is_ready(queue[nth].1.as_mut()) {
                order.push(queue.remove(nth).0);
                permit = Some(next);
                break;
            }
        }
    }
    assert_eq!(order, [1, 2, 1]);
    assert_eq!(shares.held(), 0);
}

#[test]
fn a_permit_that_was_granted_but_never_received_is_released() {
    let shares = Shares::new(Capacity::in_turns(1));
    let held = shares.try_hold(key(1), Class::Small, 1, NOW).unwrap();
    let mut waiting = Box::pin(shares.hold(key(2), Class::Small, 1, NOW));
    assert!(is_ready(waiting.as_mut()).is_none());
    drop(held);
    assert_eq!(shares.held(), 1);
    drop(waiting);
    assert_eq!(shares.held(), 0);
}

#[test]
fn a_waiting_large_body_is_not_overtaken_and_blocks_small_ones_only_if_needed() {
    let shares = divided(1 << 20);
    let first = shares.try_hold(key(1), Class::Large, 500 << 10, NOW);
    let mut large = Box::pin(shares.hold(key(2), Class::Large, 300 << 10, NOW));
    assert!(is_ready(large.as_mut()).is_none());
    assert!(
        shares
            .try_hold(key(3), Class::Small, 100 << 10, NOW)
            .is_some()
    );
    drop(first);
    assert!(is_ready(large.as_mut()).is_some());
}
