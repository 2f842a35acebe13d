//! Tests of `lib.rs`, under a clock that only timers move.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn pauses_of_equal_length_end_together() {
    pause(SECOND).await;
    let from = now();
    let ends = async |began_after: u64| {
        tokio::time::sleep(Duration::from_millis(began_after)).await;
        pause(SECOND).await;
        now() - from
    };
    let (first, second, third) = tokio::join!(ends(10), ends(200), ends(490));
    assert_eq!(
        [first, second, third].map(|pause| pause.as_millis()),
        [1_000; 3]
    );
    // After half a period that time would be too soon.
    pause(SECOND).await;
    let from = now();
    tokio::time::sleep(Duration::from_millis(510)).await;
    pause(SECOND).await;
    assert_eq!((now() - from).as_millis(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn a_pause_below_a_second_is_exact() {
    pause(SECOND).await;
    for short in [100, 999].map(Duration::from_millis) {
        let from = now();
        pause(short).await;
        assert_eq!(now() - from, short);
    }
}

#[tokio::test(start_paused = true)]
async fn a_longer_period_is_aligned_with_a_shorter_one_that_divides_it() {
    // A timer ends at a full millisecond, up to one after the time itself.
    let from = next_after(now(), Duration::from_secs(10));
    for period in [250, 1_000, 2_000, 5_000].map(Duration::from_millis) {
        assert_eq!(next_after(from, period) - from, period);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_tick_is_immediate_and_missed_ticks_are_skipped() {
    let mut ticks = Ticks::every(SECOND);
    let began = now();
    assert_eq!(ticks.tick().await, began);
    let aligned = ticks.tick().await;
    assert!(
        (aligned - began).as_millis() >= 500,
        "{:?}",
        aligned - began
    );
    assert!(
        (aligned - began).as_millis() <= 1_500,
        "{:?}",
        aligned - began
    );
    assert_eq!(ticks.tick().await - aligned, SECOND);
    tokio::time::sleep(Duration::from_millis(3_700)).await;
    assert_eq!(
        (ticks.tick().await - aligned).as_secs(),
        2,
        "it was due in the meantime"
    );
    assert_eq!((ticks.tick().await - aligned).as_millis(), 6_000);
    tokio::time::sleep(Duration::from_millis(300)).await;
    ticks.reset();
    assert_eq!((ticks.tick().await - aligned).as_millis(), 7_000);
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_not_lost_if_its_future_is_dropped() {
    let mut ticks = Ticks::every(SECOND);
    ticks.tick().await;
    let aligned = ticks.tick().await;
    for _ in 0..3 {
        let short = tokio::time::timeout(Duration::from_millis(300), ticks.tick()).await;
        assert!(short.is_err());
    }
    assert_eq!(ticks.tick().await - aligned, SECOND);
}

#[tokio::test(start_paused = true)]
async fn odd_periods_neither_spin_nor_overflow() {
    for period in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX / 4] {
        let from = now();
        assert!(next_after(from, period) > from, "{period:?}");
    }
}
