//! The evening with the scheduler's real jobs and the machine's clock; and invalid settings.

use std::time::Duration;

use chrono::{TimeDelta, Timelike, Utc};
use chrono_tz::America::Chicago;
use chrono_tz::UTC;
use model_pool::schedule::EveningEvent::Cleanup;
use model_pool::schedule::{Due, Evening, Schedule, ScheduleError, ServiceHistory};

#[tokio::test]
async fn a_cleanup_due_in_two_seconds_runs_once_in_real_time() {
    let soon = (Utc::now() + TimeDelta::milliseconds(2500)).with_timezone(&Chicago);
    let cron = format!("{} {} {} * * *", soon.second(), soon.minute(), soon.hour());
    // A reopening shortly before, which puts the start outside the window.
    let open = (soon - TimeDelta::minutes(1))
        .format("%S %M %H * * *")
        .to_string();
    let evening = Evening::new(Some(&cron), Some(&open), Chicago).unwrap();
    let (send, mut received) = tokio::sync::mpsc::unbounded_channel();
    let schedule = Schedule::start(
        Due::new(evening, ServiceHistory::default()),
        Utc::now,
        move |event| {
            send.send((event, Utc::now())).unwrap();
            std::future::ready(())
        },
    )
    .await
    .unwrap();
    let (event, when) = tokio::time::timeout(Duration::from_secs(10), received.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(event, Cleanup);
    let late = when - soon.with_nanosecond(0).unwrap().to_utc();
    assert!(
        late >= TimeDelta::zero() && late < TimeDelta::seconds(2),
        "{late} late"
    );
    let again = tokio::time::timeout(Duration::from_millis(2500), received.recv()).await;
    assert!(again.is_err(), "{again:?} ran as well");
    schedule.stop().await.unwrap();
}

#[tokio::test]
async fn a_start_inside_the_window_runs_the_missed_cleanup_in_real_time() {
    let hour = |ahead: i64| {
        (Utc::now() + TimeDelta::hours(ahead))
            .format("0 %M %H * * *")
            .to_string()
    };
    let evening = Evening::new(Some(&hour(-2)), Some(&hour(2)), UTC).unwrap();
    let (send, mut received) = tokio::sync::mpsc::unbounded_channel();
    let past = ServiceHistory {
        last_up: Some(Utc::now() - TimeDelta::hours(3)),
        ..ServiceHistory::default()
    };
    let schedule = Schedule::start(Due::new(evening, past), Utc::now, move |event| {
        send.send(event).unwrap();
        std::future::ready(())
    })
    .await
    .unwrap();
    let event = tokio::time::timeout(Duration::from_secs(10), received.recv())
        .await
        .unwrap();
    assert_eq!(event, Some(Cleanup));
    schedule.stop().await.unwrap();
}

#[tokio::test]
async fn a_schedule_changed_at_run_time_uses_only_the_new_times() {
    let around = |seconds: i64| {
        (Utc::now() + TimeDelta::seconds(seconds))
            .format("%S %M %H * * *")
            .to_string()
    };
    let evening = |cleanup: &str, reopen: &str| Evening::new(Some(cleanup), Some(reopen), UTC);
    let before = evening(&around(8), &around(3600)).unwrap();
    let after = evening(&around(11), &around(7200)).unwrap();
    let first = before.state_at(Utc::now()).next_cleanup.unwrap();
    let second = after.state_at(Utc::now()).next_cleanup.unwrap();
    let (send, mut received) = tokio::sync::mpsc::unbounded_channel();
    let due = Due::new(before, ServiceHistory::default());
    let schedule = Schedule::start(due, Utc::now, move |event| {
        send.send((event, Utc::now())).unwrap();
        std::future::ready(())
    })
    .await
    .unwrap();
    let prepared = schedule.prepare(after).await.unwrap();
    schedule.change(prepared).await.unwrap();
    assert!(Utc::now() < first, "the machine is too slow for this test");
    let (event, when) = tokio::time::timeout(Duration::from_secs(30), received.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(event, Cleanup);
    assert!(when >= second, "{when}, before {second}");
    schedule.stop().await.unwrap();
}

#[test]
fn the_next_times_are_shown_in_the_configured_time_zone() {
    let noon = "2026-11-23T12:00:00Z".parse().unwrap();
    let told = |cleanup, reopen, zone| Evening::new(cleanup, reopen, zone).unwrap().outlook(noon);
    let (nine, seven) = (Some("0 0 21 * * *"), Some("0 0 7 * * *"));
    assert_eq!(
        told(nine, seven, chrono_tz::Europe::Berlin),
        "the next cleanup is on Mon 2026-11-23 21:00 CET, the next reopening on Tue 2026-11-24 07:00 CET (Europe/Berlin)"
    );
    assert_eq!(
        told(nine, seven, Chicago),
        "the next cleanup is on Mon 2026-11-23 21:00 CST, the next reopening on Mon 2026-11-23 07:00 CST (America/Chicago)"
    );
    assert_eq!(
        told(Some("30 0 21 * * *"), None, UTC),
        "the next cleanup is on Mon 2026-11-23 21:00:30 UTC, and the pool opens again immediately (UTC)"
    );
    assert_eq!(told(None, None, UTC), "there is no cleanup");
    assert!(
        told(None, seven, UTC).starts_with("there is no cleanup; always-hot models come back on")
    );
}

#[test]
fn an_invalid_schedule_is_refused_with_the_name_of_its_field() {
    let refused = Evening::new(Some("0 0 25 * * *"), None, UTC).unwrap_err();
    assert!(
        matches!(
            refused,
            ScheduleError::Cron {
                field: "cleanup",
                ..
            }
        ),
        "{refused}"
    );
    assert!(
        refused
            .to_string()
            .starts_with("evening.cleanup: \"0 0 25 * * *\" is not a cron expression"),
        "{refused}"
    );
    let refused = Evening::new(None, Some("at dawn"), UTC).unwrap_err();
    assert!(
        matches!(
            refused,
            ScheduleError::Cron {
                field: "reopen",
                ..
            }
        ),
        "{refused}"
    );
    let refused = Evening::new(Some("0 0 21 30 2 *"), None, UTC).unwrap_err();
    assert!(matches!(refused, ScheduleError::Never { .. }), "{refused}");
    assert_eq!(Evening::zone_named("America/Chicago").unwrap(), Chicago);
    let refused = Evening::zone_named("America/Chicgo")
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("evening.timezone: \"America/Chicgo\""),
        "{refused}"
    );
    for good in [
        "0 21 * * *",
        "0 0 21 * * MON-FRI",
        "@daily",
        " 0 0 21 * * * ",
    ] {
        Evening::new(Some(good), None, Chicago).unwrap_or_else(|error| panic!("{error}"));
    }
}
