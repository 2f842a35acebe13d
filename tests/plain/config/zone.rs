//! The evening's default schedule, in the machine's own time zone.

use chrono::{DateTime, Utc};
use model_pool::config::{Config, CronExpression, TimeZone};
use model_pool::schedule::EveningEvent::Cleanup;
use model_pool::schedule::{Due, Evening, ServiceHistory};

use super::environment;

fn config_with(tz: &str, text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    std::fs::write(&file, text).unwrap();
    Config::load(Some(&file), &environment(&[("TZ", tz)])).unwrap()
}

fn evening(config: &Config) -> Evening {
    let section = &config.evening;
    let text = |cron: &Option<CronExpression>| cron.as_ref().map(|cron| cron.as_str().to_owned());
    let (cleanup, reopen) = (text(&section.cleanup), text(&section.reopen));
    Evening::new(cleanup.as_deref(), reopen.as_deref(), config.zone()).unwrap()
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

#[test]
fn the_evening_follows_the_configured_time_zone() {
    let berlin = config_with("Europe/Berlin", "");
    assert_eq!(berlin.evening.timezone, TimeZone::Local);
    let nine = at("2026-11-23T08:00:00Z");
    assert!(!evening(&berlin).state_at(nine).closed, "9:00 in Berlin");
    let chicago = config_with("America/Chicago", "");
    assert!(evening(&chicago).state_at(nine).closed, "2:00 in Chicago");
    let named = config_with("Europe/Berlin", "evening: {timezone: America/Chicago}");
    assert!(evening(&named).state_at(nine).closed, "a name wins over TZ");
    assert_eq!(named.notices(), [] as [String; 0]);
}

#[test]
fn the_first_start_during_an_evening_in_chicago_is_open_and_the_second_evening_is_not() {
    let config = config_with(":America/Chicago", "");
    let half_past_nine = at("2026-11-24T03:30:00Z");
    let mut first = Due::new(evening(&config), ServiceHistory::default());
    assert_eq!(first.begin(half_past_nine), None);
    assert_eq!(first.due(half_past_nine).run, []);
    assert_eq!(
        first.due(at("2026-11-25T02:59:59Z")).run.len(),
        1,
        "the morning's reopening"
    );
    let nine = first.due(at("2026-11-25T03:00:00Z")).run;
    assert_eq!(nine[0].event, Cleanup, "21:00 in Chicago");
}

#[test]
fn an_unusable_zone_falls_back_to_utc_with_a_notice() {
    let config = config_with("<+03>-3", "");
    assert_eq!(config.zone(), chrono_tz::UTC);
    let notices = config.notices().join("\n");
    for part in [
        "TZ is `<+03>-3`",
        "is UTC",
        "evening.timezone",
        "Europe/Berlin",
    ] {
        assert!(notices.contains(part), "{part}: {notices}");
    }
}
