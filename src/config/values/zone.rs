//! The machine's time zone, from `TZ` or the system's setting. If neither names a zone of the IANA database, the zone is UTC, with
//! the reason.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::{Duration, Local, NaiveDateTime, Offset, TimeZone, Utc};
use chrono_tz::{OffsetName, TZ_VARIANTS, Tz};

/// The folder in which systems keep their zones; `TZ` may contain a path to it.
const ZONES: &str = "zoneinfo/";
/// Folders that repeat all zones under the same names.
const VARIANTS: [&str; 2] = ["posix/", "right/"];
/// Two years cover every yearly rule.
const COMPARED_HOURS: i64 = 2 * 366 * 24;

/// The zone that `local` stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalZone {
    pub zone: Tz,
    /// The reason for using UTC although the machine's zone may be different.
    pub unknown: Option<String>,
}

impl Default for LocalZone {
    fn default() -> LocalZone {
        LocalZone {
            zone: Tz::UTC,
            unknown: None,
        }
    }
}

impl LocalZone {
    /// The machine's zone as seen by a process with these variables.
    pub fn from_environment(environment: &BTreeMap<String, String>) -> LocalZone {
        match environment.get("TZ") {
            Some(text) => LocalZone::of_variable(text),
            None => LocalZone::of_system(iana_time_zone::get_timezone().ok()),
        }
    }

    /// Reads `Europe/Berlin`, `:Europe/Berlin`, `/usr/share/zoneinfo/Europe/Berlin`, a link to it such as `:/etc/localtime`, or a
    /// rule such as `CET-1CEST,M3.5.0,M10.5.0/3`. Empty means UTC, as for the C library.
    fn of_variable(text: &str) -> LocalZone {
        let bare = text.strip_prefix(':').unwrap_or(text);
        let file = Path::new(bare).is_absolute().then(|| Path::new(bare));
        let linked = file.and_then(|file| file.canonicalize().ok());
        let linked = linked.as_ref().and_then(|path| path.to_str());
        let names = [Some(bare), linked].into_iter().flatten();
        let named = names.map(name_in_path).find_map(|name| name.parse().ok());
        let zone = match named {
            _ if bare.is_empty() => Some(Tz::UTC),
            Some(zone) => Some(zone),
            None if file.is_some_and(|file| file == Path::new("/etc/localtime")) => {
                return LocalZone::of_system(iana_time_zone::get_timezone().ok());
            }
            // chrono reads the variable of this process.
            None if std::env::var("TZ").is_ok_and(|own| own == text) => equal_to_local(bare),
            None => None,
        };
        match zone {
            Some(zone) => LocalZone {
                zone,
                unknown: None,
            },
            None => LocalZone::named(bare, || format!("the variable TZ is `{text}`")),
        }
    }

    fn of_system(name: Option<String>) -> LocalZone {
        match name {
            Some(name) => LocalZone::named(&name, || format!("the system calls it `{name}`")),
            None => LocalZone {
                unknown: Some("the system does not report it".to_owned()),
                ..LocalZone::default()
            },
        }
    }

    fn named(name: &str, why: impl Fn() -> String) -> LocalZone {
        match name.parse() {
            Ok(zone) => LocalZone {
                zone,
                unknown: None,
            },
            Err(_) => LocalZone {
                unknown: Some(format!("{}, which the IANA database does not have", why())),
                ..LocalZone::default()
            },
        }
    }
}

/// The name of a zone from the path of its file.
fn name_in_path(path: &str) -> &str {
    let name = path.rsplit_once(ZONES).map_or(path, |(_, name)| name);
    let mut variants = VARIANTS.iter();
    variants
        .find_map(|variant| name.strip_prefix(variant))
        .unwrap_or(name)
}

/// The IANA zone with the same local times as this process.
fn equal_to_local(rule: &str) -> Option<Tz> {
    let now = Utc::now().naive_utc();
    let local = |at: NaiveDateTime| Local.offset_from_utc_datetime(&at).fix().local_minus_utc();
    // chrono falls back to UTC for a text that is not a rule.
    let is_rule = rule.contains(|letter: char| letter.is_ascii_digit());
    is_rule.then(|| equal_zone(now, local, rule)).flatten()
}

/// A zone with the same offsets from UTC as `offset` for two years from `now`. Prefers a zone whose abbreviation begins the rule.
fn equal_zone(now: NaiveDateTime, offset: impl Fn(NaiveDateTime) -> i32, rule: &str) -> Option<Tz> {
    let hours = (0..COMPARED_HOURS).map(|hour| now + Duration::hours(hour));
    let expected: Vec<(NaiveDateTime, i32)> = hours.map(|at| (at, offset(at))).collect();
    let shows = |zone: &Tz, at: NaiveDateTime| zone.offset_from_utc_datetime(&at);
    let is_equal = |zone: &&Tz| {
        let mut all = expected.iter();
        all.all(|(at, seconds)| shows(zone, *at).fix().local_minus_utc() == *seconds)
    };
    let equal: Vec<&Tz> = TZ_VARIANTS.iter().filter(is_equal).collect();
    let rule = rule.trim_start_matches('<').to_ascii_uppercase();
    let is_named_alike = |zone: &&&Tz| {
        let mut all = expected.iter();
        all.any(|(at, _)| {
            let name = shows(zone, *at).abbreviation().map(str::to_ascii_uppercase);
            name.is_some_and(|name| rule.starts_with(&name))
        })
    };
    let alike = equal.iter().find(is_named_alike);
    alike.or(equal.first()).map(|zone| **zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> LocalZone {
        LocalZone::from_environment(&BTreeMap::from([("TZ".to_owned(), text.to_owned())]))
    }

    #[test]
    fn tz_accepts_every_common_form_of_a_zone_name() {
        for text in [
            "Europe/Berlin",
            ":Europe/Berlin",
            "/usr/share/zoneinfo/Europe/Berlin",
            ":/usr/share/zoneinfo/Europe/Berlin",
        ] {
            assert_eq!(with(text).zone, Tz::Europe__Berlin, "{text}");
            assert_eq!(with(text).unknown, None, "{text}");
        }
        assert_eq!(with(""), LocalZone::default());
    }

    #[test]
    fn a_link_into_zoneinfo_yields_the_zone_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let zones = folder.path().join("zoneinfo/posix/Europe");
        std::fs::create_dir_all(&zones).expect("made");
        std::fs::write(zones.join("Berlin"), "TZif").expect("written");
        let link = folder.path().join("localtime");
        std::os::unix::fs::symlink(zones.join("Berlin"), &link).expect("a link");
        let shown = with(&format!(":{}", link.display()));
        assert_eq!((shown.zone, shown.unknown), (Tz::Europe__Berlin, None));
    }

    #[test]
    fn a_posix_rule_maps_to_a_zone_with_the_same_offsets() {
        let now = chrono::DateTime::UNIX_EPOCH.naive_utc() + Duration::days(20_000);
        for (zone, rule) in [
            (Tz::Europe__Berlin, "CET-1CEST,M3.5.0,M10.5.0/3"),
            (Tz::America__New_York, "EST5EDT,M3.2.0,M11.1.0"),
            (Tz::Asia__Kolkata, "IST-5:30"),
        ] {
            let offset =
                |at: NaiveDateTime| zone.offset_from_utc_datetime(&at).fix().local_minus_utc();
            let found = equal_zone(now, offset, rule).expect(rule);
            for day in 0..700 {
                let at = now + Duration::days(day);
                assert_eq!(
                    found.offset_from_utc_datetime(&at).fix(),
                    zone.offset_from_utc_datetime(&at).fix()
                );
            }
        }
        assert_eq!(equal_zone(now, |_| 4242, "XYZ"), None);
    }

    #[test]
    fn an_unreadable_time_zone_falls_back_to_utc_with_the_reason() {
        let shown = with("<+0330>-3:30");
        assert_eq!(shown.zone, Tz::UTC);
        assert!(shown.unknown.unwrap().contains("`<+0330>-3:30`"));
        let shown = LocalZone::of_system(None);
        assert_eq!(shown.zone, Tz::UTC);
        assert!(shown.unknown.unwrap().contains("does not report"));
        let shown = LocalZone::of_system(Some("Mars/Olympus".to_owned()));
        assert!(shown.unknown.unwrap().contains("Mars/Olympus"));
    }
}
