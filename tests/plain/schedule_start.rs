//! Runs that the start of the service makes up for, and a schedule that changes at run time (E3).

use chrono::{DateTime, Utc};
use chrono_tz::UTC;
use model_pool::schedule::EveningEvent::{Cleanup, Reopen, StillClosed};
use model_pool::schedule::{Decision, Due, Evening, EveningEvent, ServiceHistory};

const NINE_PM: &str = "0 0 21 * * *";

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn usual() -> Evening {
    Evening::new(Some(NINE_PM), Some("0 0 7 * * *"), UTC).unwrap()
}

/// The first decision, and the time since which the pool starts closed.
fn begins(past: ServiceHistory, now: &str) -> (Vec<EveningEvent>, Option<DateTime<Utc>>) {
    let mut due = Due::new(usual(), past);
    let closed = due.begin(at(now));
    let decision = due.due(at(now));
    assert_eq!(due.due(at(now)), Decision::default(), "once");
    (decision.run.iter().map(|run| run.event).collect(), closed)
}

#[test]
fn a_missed_cleanup_is_caught_up_only_if_the_service_was_down_at_its_time() {
    let nine = Some(at("2026-06-10T21:00:00Z"));
    let past = |done: Option<&str>, last_up: Option<&str>| ServiceHistory {
        done: done.map(at),
        begun: done.map(at),
        last_up: last_up.map(at),
    };
    let night = "2026-06-10T23:00:00Z";
    assert_eq!(
        begins(past(None, None), night),
        (vec![], None),
        "a new data folder"
    );
    assert_eq!(
        begins(past(None, Some("2026-06-10T20:59:30Z")), night),
        (vec![Cleanup], nine),
        "down at the time"
    );
    assert_eq!(
        begins(past(None, Some("2026-06-10T21:00:00Z")), night),
        (vec![], None),
        "up at the time, when no cleanup was due"
    );
    assert_eq!(
        begins(past(None, Some("2026-06-10T22:30:00Z")), night),
        (vec![], None),
        "new this evening, and started again"
    );
    assert_eq!(
        begins(
            past(Some("2026-06-10T21:00:09Z"), Some("2026-06-10T22:30:00Z")),
            night
        ),
        (vec![StillClosed], nine),
        "up at the time, and done"
    );
    assert_eq!(
        begins(past(Some("2026-06-09T21:00:09Z"), None), night),
        (vec![Cleanup], nine),
        "from a version that did not say until when it ran"
    );
    assert_eq!(
        begins(
            past(Some("2026-06-09T21:00:09Z"), Some("2026-06-10T22:30:00Z")),
            night
        ),
        (vec![], None),
        "up at the time, with another schedule"
    );
    assert_eq!(
        begins(
            past(None, Some("2026-06-10T20:00:00Z")),
            "2026-06-11T07:00:00Z"
        ),
        (vec![], None),
        "the window is over"
    );
}

#[test]
fn a_wrong_clock_before_the_start_is_ignored() {
    let wrong = Some(at("2031-01-01T00:00:00Z"));
    let night = "2026-06-10T23:00:00Z";
    let past = ServiceHistory {
        last_up: wrong,
        ..ServiceHistory::default()
    };
    assert_eq!(begins(past, night), (vec![], None));
    let past = ServiceHistory {
        done: Some(at("2026-06-09T21:00:09Z")),
        ..past
    };
    assert_eq!(begins(past, night).0, [Cleanup], "yesterday's is known");
    // Set back by less than a correction: still believed.
    let past = ServiceHistory {
        last_up: Some(at("2026-06-10T23:04:00Z")),
        ..ServiceHistory::default()
    };
    assert_eq!(begins(past, night), (vec![], None));
}

#[test]
fn a_new_schedule_takes_effect_immediately_and_opens_a_pool_it_would_not_have_closed() {
    let evening = |cleanup, reopen| Evening::new(Some(cleanup), Some(reopen), UTC).unwrap();
    let closed = || {
        let mut due = Due::new(usual(), ServiceHistory::default());
        due.due(at("2026-06-10T20:00:00Z"));
        let events = due.due(at("2026-06-10T21:00:00Z")).run;
        assert_eq!(events[0].event, Cleanup);
        due
    };
    let events = |decision: Decision| -> Vec<EveningEvent> {
        decision.run.iter().map(|run| run.event).collect()
    };
    let changed = |due: &mut Due, evening, now: &str| {
        due.change(evening, at(now));
        events(due.due(at(now)))
    };
    let half_past = "2026-06-10T21:30:00Z";
    let mut due = closed();
    let later = evening("0 0 22 * * *", "0 0 7 * * *");
    assert_eq!(
        changed(&mut due, later, half_past),
        [Reopen],
        "it begins later now"
    );
    assert_eq!(events(due.due(at("2026-06-10T22:00:00Z"))), [Cleanup]);
    let mut due = closed();
    let shorter = evening(NINE_PM, "0 0 6 * * *");
    assert_eq!(changed(&mut due, shorter, half_past), [], "still night");
    assert_eq!(events(due.due(at("2026-06-11T06:00:00Z"))), [Reopen]);
    let none = Evening::new(None, None, UTC).unwrap();
    assert_eq!(changed(&mut closed(), none, half_past), [Reopen]);

    let mut due = Due::new(usual(), ServiceHistory::default());
    due.due(at("2026-06-10T20:00:00Z"));
    let earlier = evening("0 0 19 * * *", "0 0 7 * * *");
    assert_eq!(
        changed(&mut due, earlier, "2026-06-10T20:30:00Z"),
        [],
        "a time that has passed is not caught up"
    );
    assert_eq!(events(due.due(at("2026-06-11T07:00:00Z"))), [Reopen]);
    assert_eq!(events(due.due(at("2026-06-11T19:00:00Z"))), [Cleanup]);
    assert_eq!(
        changed(&mut closed(), usual(), "2026-06-11T07:00:20Z"),
        [Reopen],
        "what was due by the old one is not lost"
    );
}
