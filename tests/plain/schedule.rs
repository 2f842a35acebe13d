//! The evening: daylight-saving changes, missed runs, and a random walk of the clock, compared with plain arithmetic
//! without cron.
//! One file because every test runs the same schedule under another clock.

use std::collections::BTreeSet;

use chrono::{
    DateTime, Days, LocalResult, NaiveDate, NaiveTime, TimeDelta, TimeZone, Timelike, Utc,
};
use chrono_tz::America::Chicago;
use chrono_tz::Europe::Berlin;
use chrono_tz::{Tz, UTC};
use model_pool::schedule::EveningEvent::{Cleanup, Reopen, StillClosed};
use model_pool::schedule::{
    CORRECTION_MAX, Due, Evening, EveningEvent, Occurrence, ServiceHistory, SkipReason,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const NINE_PM: &str = "0 0 21 * * *";
const SEVEN_AM: &str = "0 0 7 * * *";

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn usual(zone: Tz) -> Evening {
    Evening::new(Some(NINE_PM), Some(SEVEN_AM), zone).unwrap()
}

/// The events that a call of `due` returns, by name and time.
fn run(due: &mut Due, now: &str) -> Vec<(EveningEvent, String)> {
    let decision = due.due(at(now));
    decision
        .run
        .into_iter()
        .map(|occurrence| {
            (
                occurrence.event,
                occurrence.at.format("%m-%dT%H:%M").to_string(),
            )
        })
        .collect()
}

fn is(event: EveningEvent, at: &str) -> (EveningEvent, String) {
    (event, at.to_string())
}

/// The expected UTC time of a local time: the end of a gap, and the first of an overlap.
fn expected(zone: Tz, day: NaiveDate, time: NaiveTime) -> DateTime<Utc> {
    let mut local = day.and_time(time);
    loop {
        match zone.from_local_datetime(&local) {
            LocalResult::Single(at) => return at.to_utc(),
            LocalResult::Ambiguous(first, _) => return first.to_utc(),
            LocalResult::None => local = local.with_second(0).unwrap() + TimeDelta::minutes(1),
        }
    }
}

#[test]
fn the_pool_is_closed_from_the_cleanup_until_the_reopening() {
    for zone in [Chicago, Berlin, UTC] {
        let evening = usual(zone);
        let local = |day, hour, minute| {
            let moment = NaiveDate::from_ymd_opt(2026, 6, day)
                .unwrap()
                .and_hms_opt(hour, minute, 0)
                .unwrap();
            zone.from_local_datetime(&moment).unwrap().to_utc()
        };
        for (moment, closed) in [
            (local(10, 20, 59), false),
            (local(10, 21, 0), true),
            (local(11, 0, 0), true),
            (local(11, 6, 59), true),
            (local(11, 7, 0), false),
        ] {
            assert_eq!(evening.state_at(moment).closed, closed, "{zone} {moment}");
        }
        let state = evening.state_at(local(11, 3, 0) + TimeDelta::milliseconds(700));
        assert_eq!(state.last_cleanup, Some(local(10, 21, 0)));
        assert_eq!(state.next_reopen, Some(local(11, 7, 0)));
        assert_eq!(state.next_cleanup, Some(local(11, 21, 0)));
        assert_eq!(state.last_reopen, Some(local(10, 7, 0)));
    }
}

#[test]
fn cleanups_of_two_years_occur_at_the_expected_local_times() {
    let times = [(21, 0), (7, 0), (2, 30), (1, 30), (2, 0), (3, 0), (0, 0)];
    for zone in [Chicago, Berlin, UTC] {
        for (hour, minute) in times {
            let cron = format!("0 {minute} {hour} * * *");
            let evening = Evening::new(Some(&cron), None, zone).unwrap();
            let time = NaiveTime::from_hms_opt(hour, minute, 0).unwrap();
            let first = NaiveDate::from_ymd_opt(2026, 1, 1).unwrap();
            for day in (0..730).map(|days| first + Days::new(days)) {
                let moment = expected(zone, day, time);
                let before = evening.state_at(moment - TimeDelta::seconds(1));
                let then = evening.state_at(moment);
                let after = evening.state_at(moment + TimeDelta::hours(3));
                let yesterday = expected(zone, day - Days::new(1), time);
                let tomorrow = expected(zone, day + Days::new(1), time);
                assert_eq!(
                    before.next_cleanup,
                    Some(moment),
                    "{zone} {cron} before {day}"
                );
                assert_eq!(
                    before.last_cleanup,
                    Some(yesterday),
                    "{zone} {cron} before {day}"
                );
                assert_eq!(then.last_cleanup, Some(moment), "{zone} {cron} on {day}");
                assert_eq!(then.next_cleanup, Some(tomorrow), "{zone} {cron} on {day}");
                assert_eq!(
                    after.last_cleanup,
                    Some(moment),
                    "{zone} {cron} after {day}"
                );
            }
        }
    }
}

#[test]
fn a_cleanup_in_the_spring_gap_runs_once_at_its_end() {
    // (zone, the day, the last second before the gap's end, in UTC)
    for (zone, before) in [
        (Chicago, "2026-03-08T07:59:59Z"),
        (Chicago, "2027-03-14T07:59:59Z"),
        (Berlin, "2026-03-29T00:59:59Z"),
        (Berlin, "2027-03-28T00:59:59Z"),
    ] {
        let evening = Evening::new(Some("0 30 2 * * *"), Some(SEVEN_AM), zone).unwrap();
        let end = at(before) + TimeDelta::seconds(1);
        let mut due = Due::new(evening, ServiceHistory::default());
        let mut ran = Vec::new();
        for minute in -120..240 {
            ran.extend(due.due(end + TimeDelta::minutes(minute)).run);
        }
        assert_eq!(
            ran,
            [Occurrence {
                at: end,
                event: Cleanup
            }],
            "{zone} {before}"
        );
    }
}

#[test]
fn a_cleanup_in_the_autumn_overlap_runs_once_the_first_time() {
    for (zone, cron, first) in [
        (Chicago, "0 30 1 * * *", "2026-11-01T06:30:00Z"),
        (Chicago, "0 30 1 * * *", "2027-11-07T06:30:00Z"),
        (Berlin, "0 30 2 * * *", "2026-10-25T00:30:00Z"),
        (Berlin, "0 30 2 * * *", "2027-10-31T00:30:00Z"),
    ] {
        let evening = Evening::new(Some(cron), Some(SEVEN_AM), zone).unwrap();
        let mut due = Due::new(evening, ServiceHistory::default());
        let mut ran = Vec::new();
        for minute in -120..180 {
            ran.extend(due.due(at(first) + TimeDelta::minutes(minute)).run);
        }
        assert_eq!(
            ran,
            [Occurrence {
                at: at(first),
                event: Cleanup
            }],
            "{zone} {first}"
        );
    }
}

#[test]
fn a_cleanup_at_nine_stays_at_nine_across_a_clock_change() {
    let mut due = Due::new(usual(Chicago), ServiceHistory::default());
    assert_eq!(run(&mut due, "2026-03-07T18:00:00Z"), []);
    assert_eq!(run(&mut due, "2026-03-08T02:59:59Z"), []);
    assert_eq!(
        run(&mut due, "2026-03-08T03:00:00Z"),
        [is(Cleanup, "03-08T03:00")],
        "21:00 in winter"
    );
    assert_eq!(
        run(&mut due, "2026-03-08T12:00:00Z"),
        [is(Reopen, "03-08T12:00")],
        "7:00 in summer, after the gap"
    );
    assert_eq!(run(&mut due, "2026-03-09T01:59:59Z"), []);
    assert_eq!(
        run(&mut due, "2026-03-09T02:00:01Z"),
        [is(Cleanup, "03-09T02:00")],
        "21:00 in summer"
    );
    assert_eq!(
        run(&mut due, "2026-03-09T03:00:00Z"),
        [],
        "a job that still goes by the winter's offset"
    );
}

#[test]
fn a_service_that_was_down_runs_the_missed_cleanup_once_if_the_window_is_open() {
    let done = |done: Option<&str>| ServiceHistory {
        done: done.map(at),
        ..ServiceHistory::default()
    };
    let start = |last: Option<&str>, now| Due::new(usual(UTC), done(last)).due(at(now)).run;
    let cleanup = Occurrence {
        at: at("2026-06-10T21:00:00Z"),
        event: Cleanup,
    };
    assert_eq!(
        start(Some("2026-06-09T21:00:05Z"), "2026-06-11T01:00:00Z"),
        [cleanup]
    );
    assert_eq!(
        start(None, "2026-06-11T01:00:00Z"),
        [],
        "it never ran before, so it missed nothing"
    );
    assert_eq!(
        start(Some("2031-01-01T00:00:00Z"), "2026-06-11T01:00:00Z"),
        [],
        "a note from a wrong clock says nothing"
    );
    assert_eq!(
        start(Some("2026-06-10T21:00:05Z"), "2026-06-11T01:00:00Z"),
        [Occurrence {
            event: StillClosed,
            ..cleanup
        }],
        "it was done before the restart"
    );
    assert_eq!(
        start(Some("2026-06-09T21:00:05Z"), "2026-06-11T07:00:00Z"),
        [],
        "the window is over"
    );

    let mut due = Due::new(usual(UTC), done(Some("2026-06-09T21:00:05Z")));
    assert_eq!(run(&mut due, "2026-06-11T01:00:00Z").len(), 1);
    assert_eq!(run(&mut due, "2026-06-11T01:00:01Z"), [], "once");
    assert_eq!(
        run(&mut due, "2026-06-11T07:00:00Z"),
        [is(Reopen, "06-11T07:00")]
    );
}

#[test]
fn a_laptop_that_was_suspended_runs_only_what_is_still_useful() {
    let awake = || {
        let mut due = Due::new(usual(UTC), ServiceHistory::default());
        assert_eq!(run(&mut due, "2026-06-10T18:00:00Z"), []);
        due
    };
    assert_eq!(
        run(&mut awake(), "2026-06-10T23:15:00Z"),
        [is(Cleanup, "06-10T21:00")],
        "the window is open"
    );

    let decision = awake().due(at("2026-06-11T09:00:00Z"));
    let reopen = Occurrence {
        at: at("2026-06-11T07:00:00Z"),
        event: Reopen,
    };
    assert_eq!(decision.run, [reopen]);
    let missed = Occurrence {
        at: at("2026-06-10T21:00:00Z"),
        event: Cleanup,
    };
    assert_eq!(
        decision.passed_over,
        [(missed, SkipReason::Overtaken { by: reopen })]
    );
    assert!(
        decision.passed_over[0]
            .1
            .to_string()
            .contains("the reopen of 2026-06-11 07:00:00 UTC came since")
    );

    assert_eq!(
        run(&mut awake(), "2026-06-14T22:00:00Z"),
        [is(Cleanup, "06-14T21:00")],
        "four days later, once"
    );
}

#[test]
fn a_cleanup_without_a_reopening_empties_the_pool_and_reopens_it_immediately() {
    let evening = Evening::new(Some(NINE_PM), None, UTC).unwrap();
    assert!(!evening.state_at(at("2026-06-10T23:00:00Z")).closed);
    let mut due = Due::new(evening, ServiceHistory::default());
    assert_eq!(
        run(&mut due, "2026-06-10T23:00:00Z"),
        [],
        "no window is open"
    );
    assert_eq!(
        run(&mut due, "2026-06-11T21:40:00Z"),
        [is(Cleanup, "06-11T21:00"), is(Reopen, "06-11T21:00")]
    );
    let decision = due.due(at("2026-06-13T08:00:00Z"));
    assert_eq!(decision.run, []);
    assert!(
        matches!(decision.passed_over[..], [(_, SkipReason::TooLate { .. })]),
        "{decision:?}"
    );

    let both = Evening::new(Some("0 4 * * *"), Some("0 0 4 * * *"), UTC).unwrap();
    let mut daily = Due::new(both, ServiceHistory::default());
    assert_eq!(run(&mut daily, "2026-06-10T03:00:00Z"), []);
    assert_eq!(
        run(&mut daily, "2026-06-10T04:00:00Z"),
        [is(Cleanup, "06-10T04:00"), is(Reopen, "06-10T04:00")]
    );
}

#[test]
fn a_schedule_with_only_a_reopening_or_without_times_never_closes_the_pool() {
    let mut due = Due::new(
        Evening::new(None, Some(SEVEN_AM), UTC).unwrap(),
        ServiceHistory::default(),
    );
    assert_eq!(run(&mut due, "2026-06-10T06:00:00Z"), []);
    assert_eq!(
        run(&mut due, "2026-06-10T07:30:00Z"),
        [is(Reopen, "06-10T07:00")]
    );
    let none = Evening::new(None, None, Chicago).unwrap();
    assert!(!none.state_at(at("2026-06-10T23:00:00Z")).closed);
    assert_eq!(
        run(
            &mut Due::new(none, ServiceHistory::default()),
            "2026-06-10T23:00:00Z"
        ),
        []
    );
}

#[test]
fn a_corrected_clock_repeats_nothing_and_a_wrong_one_resets_the_schedule() {
    let mut due = Due::new(usual(UTC), ServiceHistory::default());
    run(&mut due, "2026-06-10T20:59:00Z");
    assert_eq!(
        run(&mut due, "2026-06-10T21:00:10Z"),
        [is(Cleanup, "06-10T21:00")]
    );
    assert_eq!(run(&mut due, "2026-06-10T20:59:30Z"), []);
    assert_eq!(
        run(&mut due, "2026-06-10T21:00:00Z"),
        [],
        "the same evening, after a small correction"
    );

    // The clock was a year ahead.
    assert_eq!(
        run(&mut due, "2027-06-10T22:00:00Z"),
        [is(Cleanup, "06-10T21:00")]
    );
    let back = due.due(at("2026-06-11T06:00:00Z"));
    assert_eq!((back.run, back.clock_went_back.is_some()), (vec![], true));
    assert_eq!(
        run(&mut due, "2026-06-11T07:00:00Z"),
        [is(Reopen, "06-11T07:00")],
        "not a year later"
    );
}

#[test]
fn on_a_random_walk_of_the_clock_each_occurrence_runs_once_or_is_explained() {
    for seed in 0..150 {
        let mut random = StdRng::seed_from_u64(seed);
        let zone = [Chicago, Berlin, UTC][random.random_range(0..3)];
        let mut time = || {
            NaiveTime::from_hms_opt(random.random_range(0..24), random.random_range(0..60), 0)
                .unwrap()
        };
        let (cleanup, reopen) = (time(), time());
        let cron = |time: NaiveTime| format!("0 {} {} * * *", time.minute(), time.hour());
        let evening = Evening::new(Some(&cron(cleanup)), Some(&cron(reopen)), zone).unwrap();
        let story = format!("seed {seed}: {zone}, cleanup {cleanup}, reopen {reopen}");

        // Every occurrence around the walk, by plain arithmetic. At equal times the cleanup is first.
        let first_day =
            NaiveDate::from_ymd_opt(2026, if seed % 2 == 0 { 3 } else { 10 }, 1).unwrap();
        let all: BTreeSet<Occurrence> = (0..500)
            .map(|days| first_day - Days::new(100) + Days::new(days))
            .flat_map(|day| {
                [
                    Occurrence {
                        at: expected(zone, day, cleanup),
                        event: Cleanup,
                    },
                    Occurrence {
                        at: expected(zone, day, reopen),
                        event: Reopen,
                    },
                ]
            })
            .collect();

        let mut now = expected(zone, first_day + Days::new(3), NaiveTime::MIN);
        let mut due = Due::new(evening.clone(), ServiceHistory::default());
        due.due(now);
        let (mut seen, mut handled, mut ran) = (now, BTreeSet::new(), 0);
        for _ in 0..300 {
            let jump = match random.random_range(0..20) {
                0 => TimeDelta::minutes(random.random_range(0..6000)),
                1 => TimeDelta::seconds(-random.random_range(0..=CORRECTION_MAX.num_seconds())),
                2 => TimeDelta::hours(-random.random_range(1..72)),
                3..6 => TimeDelta::milliseconds(random.random_range(0..2000)),
                _ => TimeDelta::minutes(random.random_range(1..180)),
            };
            now += jump;
            let decision = due.due(now);
            if decision.clock_went_back.is_some() {
                // Events after the new time may come again.
                seen = now;
                handled.retain(|occurrence: &Occurrence| occurrence.at <= now);
                continue;
            }
            let fell: Vec<Occurrence> = all
                .iter()
                .filter(|one| one.at > seen && one.at <= now)
                .copied()
                .collect();
            seen = seen.max(now);
            let Some(newest) = fell.last() else {
                assert_eq!(decision.run, [], "{story}: nothing fell until {now}");
                continue;
            };
            assert_eq!(decision.run.last(), Some(newest), "{story}: {now}");
            for one in &decision.run {
                assert!(
                    fell.contains(one) && one.at == newest.at,
                    "{story}: {one:?} at {now}"
                );
                assert!(handled.insert(*one), "{story}: {one:?} twice");
                ran += 1;
            }
            let passed: Vec<Occurrence> =
                decision.passed_over.iter().map(|(one, _)| *one).collect();
            for event in [Cleanup, Reopen] {
                let Some(last) = fell.iter().rfind(|one| one.event == event) else {
                    continue;
                };
                assert!(
                    decision.run.contains(last) || passed.contains(last),
                    "{story}: {last:?} at {now} unexplained"
                );
            }
            assert_eq!(
                evening.state_at(now).closed,
                newest.event == Cleanup,
                "{story}: {now}"
            );
        }
        assert!(ran > 10, "{story}: the walk met {ran} occurrences");
    }
}
