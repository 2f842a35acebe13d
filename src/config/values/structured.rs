//! Structured configuration values: the listen address, the base path, the time zone. Each is checked when it is parsed, so a value
//! of these types is valid. Opens no files.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use super::units::{ParseValueError, written_as_text};
use reading::nearest;

/// The server's listen address: an IP address or `localhost`, and a port (0: any free port).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl FromStr for ListenAddress {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<ListenAddress, ParseValueError> {
        let advice = "write one like 127.0.0.1:8080, [::1]:8080 or 0.0.0.0:8080";
        let (host, port) = text
            .trim()
            .rsplit_once(':')
            .ok_or_else(|| ParseValueError(format!("`{text}` has no port; {advice}")))?;
        let port = port.parse::<u16>().map_err(|_| {
            ParseValueError(format!(
                "port `{port}` of `{text}` is outside 0 to 65535; {advice}"
            ))
        })?;
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let address = match (host, bare) {
            ("localhost", _) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            (_, Some(inside)) => inside.parse().ok().filter(IpAddr::is_ipv6),
            (plain, None) => plain.parse().ok().filter(IpAddr::is_ipv4),
        };
        address
            .map(|address| ListenAddress(SocketAddr::new(address, port)))
            .ok_or_else(|| {
                ParseValueError(format!(
                    "`{host}` of `{text}` is not an IP address; {advice}"
                ))
            })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_as_text!(
    ListenAddress,
    "an address and a port, such as \"127.0.0.1:8080\"",
    ["127.0.0.1:8080", "0.0.0.0:8080"]
);

/// The prefix of every route; `/v1` and `/metrics` also exist without it. Starts with `/` and does not end with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePath(String);

impl BasePath {
    /// `/llm`, the path of the previous service.
    pub(crate) fn standard() -> BasePath {
        BasePath("/llm".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BasePath {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<BasePath, ParseValueError> {
        let refused = |why: &str| {
            Err(ParseValueError(format!(
                "base path `{text}` {why}; write one like /llm"
            )))
        };
        let Some(path) = text.strip_prefix('/') else {
            return refused("does not start with `/`");
        };
        if path.is_empty() || path.ends_with('/') {
            return refused("is empty or ends with `/`");
        }
        let plain = |segment: &str| {
            !segment.is_empty()
                && segment != "."
                && segment != ".."
                && segment
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
        };
        if !path.split('/').all(plain) {
            return refused(
                "has a part that is empty or contains other characters than letters, digits, `-`, `.`, `_` and `~`",
            );
        }
        if matches!(path.split('/').next(), Some("v1" | "metrics")) {
            return refused("collides with the routes /v1 and /metrics, which always exist");
        }
        Ok(BasePath(text.to_owned()))
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

written_as_text!(BasePath, "a path such as \"/llm\"", ["/llm", "/models/llm"]);

/// A time zone: the machine's own, or a name from the IANA database, such as `America/Chicago` or `UTC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeZone {
    Local,
    Named(chrono_tz::Tz),
}

impl FromStr for TimeZone {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<TimeZone, ParseValueError> {
        if text.trim() == LOCAL {
            return Ok(TimeZone::Local);
        }
        text.parse().map(TimeZone::Named).map_err(|_| {
            // PST and CST are ambiguous between countries.
            let is_abbreviation = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_uppercase());
            if is_abbreviation {
                return ParseValueError(format!(
                    "`{text}` is not a time zone: abbreviations are ambiguous; write local for the zone of this machine, or an IANA name like America/Chicago, Europe/Berlin or UTC"
                ));
            }
            let known = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
            let hint = nearest(text, known.chain([LOCAL]))
                .map(|zone| format!("; did you mean `{zone}`?"))
                .unwrap_or_default();
            ParseValueError(format!(
                "`{text}` is not a time zone; write local for the zone of this machine, or an IANA name like America/Chicago, Europe/Berlin or UTC{hint}"
            ))
        })
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeZone::Local => f.write_str(LOCAL),
            TimeZone::Named(zone) => f.write_str(zone.name()),
        }
    }
}

/// The name for the machine's zone.
const LOCAL: &str = "local";

written_as_text!(
    TimeZone,
    "local or an IANA time zone such as \"America/Chicago\"",
    ["local", "America/Chicago", "UTC"]
);
