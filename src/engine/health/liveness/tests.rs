//! Tests of the verdict alone, with simulated time.

use std::time::Duration;

use super::{ActivitySample, Judge, LivenessLimits, Miss, ProbeResult};

const SECOND: Duration = Duration::from_secs(1);

fn judge() -> Judge {
    Judge::default()
}

fn seen(asking: u32, responding: u32, spoke: bool) -> ActivitySample {
    ActivitySample {
        asking,
        responding,
        spoke,
    }
}

/// Passes the same counters for some seconds. Returns the verdict with the second in which it fell.
fn after(judge: &mut Judge, seconds: u32, seen: ActivitySample) -> Option<(u32, String)> {
    (1..=seconds).find_map(|second| Some((second, judge.passed(SECOND, seen)?)))
}

#[test]
fn an_idle_engine_is_declared_dead_after_three_missed_probes() {
    let mut judge = judge();
    after(&mut judge, 7, seen(0, 0, false));
    assert_eq!(judge.bad_health(Miss::Silent), None);
    assert_eq!(judge.bad_health(Miss::Silent), None);
    judge.good_health();
    after(&mut judge, 15, seen(0, 0, false));
    assert_eq!(judge.bad_health(Miss::Silent), None);
    assert_eq!(judge.bad_health(Miss::Silent), None);
    let verdict = judge.bad_health(Miss::Silent);
    assert_eq!(
        verdict.as_deref(),
        Some("answered no health probe for 15 s")
    );
}

#[test]
fn three_misses_of_a_stopped_engine_fall_within_three_heartbeats() {
    let limits = LivenessLimits::default();
    // The worst case: the engine stops just after a response.
    let third = limits.pause(0, false) + limits.pause(1, false) + limits.pause(2, false);
    assert!(third + limits.heartbeat_timeout <= limits.heartbeat * 3);
}

#[test]
fn a_busy_engine_with_failing_health_probes_is_alive_while_tokens_arrive() {
    let mut judge = judge();
    for _ in 0..100 {
        assert_eq!(after(&mut judge, 10, seen(0, 3, true)), None);
        assert_eq!(judge.bad_health(Miss::Silent), None);
    }
}

#[test]
fn a_stuck_generation_is_found_by_the_age_of_its_last_token_despite_good_health() {
    let mut judge = judge();
    assert_eq!(after(&mut judge, 30, seen(1, 2, true)), None);
    let verdict = (0..90).find_map(|_| {
        judge.good_health();
        judge.passed(SECOND, seen(1, 2, false))
    });
    assert_eq!(
        verdict.as_deref(),
        Some("no token for 60 s while 3 requests wait")
    );
}

#[test]
fn the_first_token_may_take_longer_than_the_next() {
    let mut judge = judge();
    let verdict = (0..400).find_map(|second| {
        judge.good_health();
        Some((second + 1, judge.passed(SECOND, seen(1, 0, false))?))
    });
    let words = "no token for 300 s while 1 request waits".to_owned();
    assert_eq!(verdict, Some((300, words)));
}

#[test]
fn silence_before_the_first_token_is_death_only_after_its_deadline() {
    let mut judge = judge();
    assert_eq!(after(&mut judge, 20, seen(2, 0, false)), None);
    assert_eq!(judge.bad_health(Miss::Silent), None);
    let (second, words) = after(&mut judge, 100, seen(2, 0, false)).expect("dead");
    assert_eq!(second, 40);
    assert_eq!(
        words,
        "neither a token nor a response from its health route for 60 s while 2 requests wait"
    );
}

#[test]
fn clients_that_give_up_and_retry_do_not_hide_a_silent_engine() {
    let mut judge = judge();
    let verdict = (0..20).find_map(|_| {
        after(&mut judge, 2, seen(0, 0, false));
        judge.good_health();
        after(&mut judge, 30, seen(1, 0, false))
    });
    assert!(verdict.is_some());
}

#[test]
fn an_engine_that_closed_its_port_is_dead_even_if_busy() {
    let mut judge = judge();
    after(&mut judge, 1, seen(4, 4, false));
    assert_eq!(judge.bad_health(Miss::Refused), None);
    assert_eq!(judge.bad_health(Miss::Refused), None);
    let verdict = judge.bad_health(Miss::Refused).expect("dead");
    assert!(verdict.contains("no longer listens"), "{verdict}");
}

#[test]
fn a_failing_health_route_is_reported_with_its_status() {
    let mut judge = judge();
    after(&mut judge, 12, seen(0, 0, false));
    let verdict = (0..3).find_map(|_| judge.bad_health(Miss::Responded(503)));
    let words = "its health route has answered 503 for 12 s";
    assert_eq!(verdict.as_deref(), Some(words));
}

#[test]
fn a_probe_is_due_after_an_idle_minute_and_no_response_means_death() {
    let mut judge = judge();
    after(&mut judge, 59, seen(0, 0, false));
    assert!(!judge.needs_probe());
    after(&mut judge, 1, seen(0, 0, false));
    assert!(judge.needs_probe());
    assert_eq!(judge.probed(ProbeResult::NotSo, false, SECOND), None);
    assert_eq!(judge.probed(ProbeResult::Works, false, SECOND), None);
    let verdict = judge.probed(ProbeResult::Silent, false, Duration::from_secs(60));
    assert!(verdict.expect("dead").starts_with("no token for 60 s"));
}

#[test]
fn an_unanswered_probe_is_not_death_while_other_requests_get_tokens() {
    let mut judge = judge();
    after(&mut judge, 60, seen(0, 0, false));
    judge.idle = Duration::ZERO;
    after(&mut judge, 30, seen(0, 2, true));
    assert_eq!(judge.probed(ProbeResult::Silent, true, SECOND * 30), None);
}

#[test]
fn a_failing_probe_is_death_only_if_a_probe_succeeded_before() {
    let broken = ProbeResult::Broken(Some(500));
    let mut judge = judge();
    assert_eq!(judge.probed(broken, true, SECOND), None);
    assert_eq!(judge.probed(broken, true, SECOND), None);
    assert_eq!(judge.probed(ProbeResult::Works, true, SECOND), None);
    assert_eq!(judge.probed(broken, true, SECOND), None);
    let verdict = judge.probed(broken, true, SECOND).expect("dead");
    assert!(
        verdict.contains("answers every request with 500"),
        "{verdict}"
    );
}

#[test]
fn an_engine_that_never_responded_is_dead_after_two_failed_probes() {
    let mut judge = judge();
    judge.suspected = true;
    assert!(judge.needs_probe(), "without waiting for idleness");
    assert_eq!(judge.probed(ProbeResult::Broken(None), false, SECOND), None);
    assert!(judge.needs_probe(), "due again immediately");
    assert!(
        judge
            .probed(ProbeResult::Broken(None), false, SECOND)
            .is_some()
    );
}
