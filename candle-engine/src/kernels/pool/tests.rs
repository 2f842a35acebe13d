//! Tests of the thread pool: every task runs exactly once, from any calling thread and with any number of threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

/// Returns `usual`, or a small number under Miri, which is about a thousand times slower.
const fn times(usual: usize) -> usize {
    if cfg!(miri) { 5 } else { usual }
}

fn pool(threads: usize) -> Pool {
    Pool::new(NonZeroUsize::new(threads).unwrap())
}

#[test]
fn every_task_runs_once_in_every_section() {
    let pool = pool(4);
    for section in 0..times(3_000) {
        let tasks = section * 7 % 23;
        let runs: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(tasks, &|task| {
            runs[task].fetch_add(1, Ordering::Relaxed);
        });
        assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn a_nested_section_runs_on_the_calling_thread() {
    let pool = pool(3);
    let sum = AtomicUsize::new(0);
    pool.run(8, &|_| {
        pool.run(8, &|inner| {
            sum.fetch_add(inner, Ordering::Relaxed);
        });
    });
    assert_eq!(sum.into_inner(), 8 * 28);
}

#[test]
fn sections_started_by_several_threads_all_complete() {
    let pool = pool(3);
    let sum = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..times(200) {
                    pool.run(5, &|task| {
                        sum.fetch_add(task, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 4 * times(200) * 10);
}

#[test]
fn a_panicking_task_ends_its_section_and_the_pool_stays_usable() {
    let pool = pool(3);
    let broken = catch_unwind(AssertUnwindSafe(|| {
        pool.run(64, &|task| assert!(task != 40, "as the test wants"));
    }));
    assert!(broken.is_err());
    let sum = AtomicUsize::new(0);
    pool.run(10, &|task| {
        sum.fetch_add(task, Ordering::Relaxed);
    });
    assert_eq!(sum.into_inner(), 45);
}

/// Returns true if two tasks of a section run simultaneously. Each waits for the other, with a limit.
fn works_on_two_threads(pool: &Pool) -> bool {
    let begun = AtomicUsize::new(0);
    let met = AtomicUsize::new(0);
    pool.run(2, &|_| {
        begun.fetch_add(1, Ordering::SeqCst);
        // About 10 s, counted in naps instead of by a clock.
        let mut naps = 0;
        while begun.load(Ordering::SeqCst) < 2 && naps < 10_000 {
            std::thread::sleep(Duration::from_millis(1));
            naps += 1;
        }
        met.fetch_add(begun.load(Ordering::SeqCst), Ordering::SeqCst);
    });
    met.into_inner() == 4
}

#[test]
fn the_pool_keeps_all_its_threads_after_a_panic_in_the_callers_task() {
    let pool = pool(3);
    assert!(works_on_two_threads(&pool));
    let caller = std::thread::current().id();
    let in_turn = || {
        pool.run(64, &|_| {
            assert!(std::thread::current().id() != caller, "as the test wants");
            std::thread::yield_now();
        });
    };
    // The other threads may have taken all tasks before the caller reached one.
    let broken = (0..10_000).any(|_| catch_unwind(AssertUnwindSafe(in_turn)).is_err());
    assert!(broken);
    assert!(
        works_on_two_threads(&pool),
        "the caller computes alone from now on"
    );
}

#[test]
fn a_panic_reaches_only_the_caller_of_the_same_section() {
    let pool = pool(3);
    for _ in 0..times(50) {
        let all_panic = || pool.run(8, &|_| panic!("as the test wants"));
        let broken = catch_unwind(AssertUnwindSafe(all_panic));
        assert!(broken.is_err());
        pool.run(8, &|_| {});
    }
}

#[test]
fn slices_are_split_into_pieces_with_a_shorter_last_one() {
    let mut numbers = vec![0usize; 23];
    pool(4).run_pieces(&mut numbers, 5, |piece, numbers| numbers.fill(piece + 1));
    assert_eq!(numbers[19..], [4, 5, 5, 5]);
}
