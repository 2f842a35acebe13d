//! The machine's own time zone: what `TZ` says, or what the system is set to. Where neither names a zone of the
//! IANA database, the zone is UTC, with the reason.

use std::collections::BTreeMap;

use chrono_tz::Tz;

/// Where systems keep their zones; `TZ` may hold a path there.
const ZONES: &str = "zoneinfo/";

/// The zone that `local` stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalZone {
    pub zone: Tz,
    /// Why it is UTC although the machine's zone may be another one.
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
    /// The zone of this machine for a process with these variables.
    pub fn of(environment: &BTreeMap<String, String>) -> LocalZone {
        match environment.get("TZ") {
            Some(text) => LocalZone::of_variable(text),
            None => LocalZone::of_system(iana_time_zone::get_timezone().ok()),
        }
    }

    /// `Europe/Berlin`, `:Europe/Berlin` or `/usr/share/zoneinfo/Europe/Berlin`. Empty is UTC, as for the C library.
    fn of_variable(text: &str) -> LocalZone {
        let bare = text.strip_prefix(':').unwrap_or(text);
        let name = bare.rsplit_once(ZONES).map_or(bare, |(_, name)| name);
        match name {
            "" => LocalZone::default(),
            name => LocalZone::named(name, || format!("the variable TZ is `{text}`")),
        }
    }

    fn of_system(name: Option<String>) -> LocalZone {
        match name {
            Some(name) => LocalZone::named(&name, || format!("the system calls it `{name}`")),
            None => LocalZone {
                unknown: Some("the system does not say which it is".to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> LocalZone {
        LocalZone::of(&BTreeMap::from([("TZ".to_owned(), text.to_owned())]))
    }

    #[test]
    fn tz_names_the_zone_in_all_forms_that_systems_use() {
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
    fn a_zone_that_cannot_be_read_is_utc_with_the_reason() {
        let shown = with("<+0330>-3:30");
        assert_eq!(shown.zone, Tz::UTC);
        assert!(shown.unknown.unwrap().contains("`<+0330>-3:30`"));
        let shown = LocalZone::of_system(None);
        assert_eq!(shown.zone, Tz::UTC);
        assert!(shown.unknown.unwrap().contains("does not say"));
        let shown = LocalZone::of_system(Some("Mars/Olympus".to_owned()));
        assert!(shown.unknown.unwrap().contains("Mars/Olympus"));
    }
}
