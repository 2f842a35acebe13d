//! Tests of loads that a deadline requires (B7), and of the memory of batches that have ended (B5).

use super::run::{Run, spec};
use super::{HOUR, SHORT, two};
use crate::{Action, ModelId, RecordKind, Span};

#[test]
fn b7_a_deadline_evicts_a_long_idle_model_from_the_time_when_the_load_has_to_begin() {
    for deadline_evicts in [false, true] {
        let mut run = two(0);
        run.serves(0, false);
        let by = run.now + HOUR;
        run.batches_by(&[(1, 7, by)], deadline_evicts);
        run.after(Span(HOUR.0 - 1));
        assert!(run.is_loaded(0), "the deadline does not require it yet");
        run.after(Span(1));
        let reasons = run.actions.iter().filter_map(|action| match action {
            Action::Record(record) if record.kind == RecordKind::Load => Some(&record.reason),
            _ => None,
        });
        let named = reasons.filter(|reason| reason.contains("(B7)")).count();
        assert_eq!(named, usize::from(deadline_evicts));
        run.settle();
        assert_eq!(run.is_loaded(1), deadline_evicts);
        assert_eq!(run.is_loaded(0), !deadline_evicts);
    }
}

#[test]
fn b7_a_deadline_evicts_no_model_that_batches_may_never_evict() {
    // In use, of higher priority, and idle for short.
    for (priority, is_busy, idle) in [(0, true, HOUR), (1, false, HOUR), (0, false, SHORT)] {
        let mut run = two(priority);
        run.serves(0, is_busy);
        let by = run.now;
        run.batches_by(&[(1, 7, by)], true);
        run.after(idle);
        run.settle();
        let case = (priority, is_busy, idle);
        assert!(run.is_loaded(0) && !run.is_loaded(1), "{case:?}");
    }
}

#[test]
fn b7_a_load_that_is_due_goes_before_the_longest_list() {
    for (wait, expected) in [(Span(0), 1), (HOUR, 0)] {
        let mut run = Run::new(1, &[spec(8, 0), spec(8, 0)]);
        let (far, near) = (run.now + Span(HOUR.0 * 9), run.now + wait);
        run.batches_by(&[(0, 1_000, far), (1, 3, near)], false);
        assert_eq!(run.launched, [ModelId(expected)], "{wait}");
    }
}

#[test]
fn b7_the_earliest_deadline_of_a_model_counts() {
    let mut run = two(0);
    run.serves(0, false);
    let (early, late) = (run.now + SHORT, run.now + Span(HOUR.0 * 9));
    run.batches_by(&[(1, 7, late), (1, 7, early)], true);
    run.after(HOUR);
    run.settle();
    assert!(run.is_loaded(1));
}

#[test]
fn b5_a_replica_whose_batches_have_ended_leaves_for_other_batches_in_free_memory_too() {
    for priority in [0, 1] {
        let mut run = Run::new(1, &[spec(8, priority), spec(8, 0)]);
        run.batches(&[(0, 9, false), (1, 7, false)]);
        run.settle();
        assert!(run.is_loaded(0) && !run.is_loaded(1));
        run.after(HOUR);
        assert!(run.is_loaded(0), "it has open requests");
        run.batches(&[(1, 7, false)]);
        run.settle();
        assert!(run.is_loaded(1) && !run.is_loaded(0), "{priority}");
        assert_eq!(run.launched.len(), 2);
    }
}

#[test]
fn b5_a_replica_that_requests_have_used_stays_although_its_batches_have_ended() {
    let mut run = Run::new(1, &[spec(8, 0), spec(8, 0)]);
    run.batches(&[(0, 9, false), (1, 7, false)]);
    run.settle();
    let replica = run.replica(0).expect("loaded");
    run.enters(replica);
    run.request_ends(replica);
    run.batches(&[(1, 7, false)]);
    run.after(HOUR);
    run.settle();
    assert!(run.is_loaded(0) && !run.is_loaded(1));
}
