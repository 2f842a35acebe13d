//! The evening with the scheduler's real jobs and the machine's clock; and invalid settings.

use std::time::Duration;

use chrono::{TimeDelta, Timelike, Utc};
use chrono_tz::America::Chicago;
use chrono_tz::UTC;
use model_pool::schedule::EveningEvent::Cleanup;
use model_pool::schedule::{Due, Evening, Schedule, ScheduleError};

#[tokio::test]
async fn a_cleanup_two_seconds_ahead_really_runs_once() {
    let soon = (Utc::now() + TimeDelta::milliseconds(2500)).with_timezone(&Chicago);
    let cron = format!("{} {} {} * * *", soon.second(), soon.minute(), soon.hour());
    // A reopening shortly before, so that the start is outside the window.
    let open = (soon - TimeDelta::minutes(1))
        .format("%S %M %H * * *")
        .to_string();
    let evening = Evening::new(Some(&cron), Some(&open), Chicago).unwrap();
    let (send, mut received) = tokio::sync::mpsc::unbounded_channel();
    let schedule = Schedule::start(Due::new(evening, None), Utc::now, move |event| {
        send.send((event, Utc::now())).unwrap();
        std::future::ready(())
    })
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
async fn a_start_inside_the_window_really_runs_the_missed_cleanup() {
    let hour = |ahead: i64| {
        (Utc::now() + TimeDelta::hours(ahead))
            .format("0 %M %H * * *")
            .to_string()
    };
    let evening = Evening::new(Some(&hour(-2)), Some(&hour(2)), UTC).unwrap();
    let (send, mut received) = tokio::sync::mpsc::unbounded_channel();
    let schedule = Schedule::start(Due::new(evening, None), Utc::now, move |event| {
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

#[test]
fn what_is_no_schedule_is_refused_with_the_name_of_its_field() {
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
