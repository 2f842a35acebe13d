//! Origins of web pages, desktop programs and browser extensions, as `server.cors.origins` lists them.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use super::units::{ParseValueError, written_as_text};

const ANY: &str = "*";
const ANY_PORT: &str = ":*";

/// `*`, or `scheme://host`, optionally with a port. The port may be `*`; with a scheme other than http and https the host
/// may be `*` as well, because editors give each of their views a random host. Upper case is lowered, and the scheme's
/// standard port is dropped, as browsers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin(String);

impl WebOrigin {
    /// Returns true for `*`.
    pub fn is_any(&self) -> bool {
        self.0 == ANY
    }

    /// Returns true if the value of an `Origin` header matches. `null`, which every sandboxed page sends, only matches `*`.
    pub fn matches(&self, origin: &str) -> bool {
        if self.is_any() {
            return true;
        }
        let Some((scheme, authority)) = self.0.split_once("://") else {
            return false;
        };
        let Some((sent_scheme, sent)) = origin.split_once("://") else {
            return false;
        };
        if !sent_scheme.eq_ignore_ascii_case(scheme) || sent.is_empty() {
            return false;
        }
        if authority == ANY {
            return true;
        }
        match authority.strip_suffix(ANY_PORT) {
            None => authority.eq_ignore_ascii_case(without_standard_port(scheme, sent)),
            Some(host) => {
                let (sent_host, port) = split_port(sent);
                let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
                is_port && host.eq_ignore_ascii_case(sent_host)
            }
        }
    }
}

impl FromStr for WebOrigin {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<WebOrigin, ParseValueError> {
        let wrong = |why: &str| {
            ParseValueError(format!(
                "`{text}` is not an origin: {why}; write a scheme and a host like https://lab.example.org, http://localhost:*, app://obsidian.md or vscode-webview://*, or `*` alone"
            ))
        };
        let lower = text.trim().to_ascii_lowercase();
        if lower == ANY {
            return Ok(WebOrigin(lower));
        }
        let Some((scheme, rest)) = lower.split_once("://") else {
            return Err(wrong("it has no `://`"));
        };
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if !scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            || !scheme.bytes().all(letter)
        {
            return Err(wrong(
                "its scheme contains other characters than letters, digits, +, - and .",
            ));
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let is_web = matches!(scheme, "http" | "https");
        if authority == ANY && !is_web {
            return Ok(WebOrigin(format!("{scheme}://{ANY}")));
        }
        let (host, port) = match authority.strip_suffix(ANY_PORT) {
            Some(host) => (host, None),
            None => split_port(authority),
        };
        if let Some(port) = port
            && port.parse::<u16>().is_err()
        {
            return Err(wrong("its port is not a number from 0 to 65535"));
        }
        let address = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let is_host = match address {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                !host.is_empty() && host.bytes().all(plain)
            }
        };
        if !is_host {
            return Err(wrong("its host is not a host name without a path"));
        }
        let authority = without_standard_port(scheme, authority);
        Ok(WebOrigin(format!("{scheme}://{authority}")))
    }
}

/// Splits into the host and the port, if there is one.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn without_standard_port<'a>(scheme: &str, authority: &'a str) -> &'a str {
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return authority,
    };
    authority.strip_suffix(port).unwrap_or(authority)
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

written_as_text!(
    WebOrigin,
    "an origin such as \"https://lab.example.org\"",
    [
        "https://lab.example.org",
        "http://localhost:*",
        "app://obsidian.md",
        "vscode-webview://*",
        "*"
    ]
);

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(listed: &str, origin: &str) -> bool {
        listed.parse::<WebOrigin>().unwrap().matches(origin)
    }

    #[test]
    fn origins_of_desktop_apps_extensions_and_local_ports_can_be_listed() {
        for (listed, origin) in [
            ("https://lab.example.org", "https://lab.example.org"),
            ("HTTPS://Lab.Example.ORG/", "https://lab.example.org"),
            ("https://lab.example.org:443", "https://lab.example.org"),
            ("http://lab.example.org", "http://lab.example.org:80"),
            ("app://obsidian.md", "app://obsidian.md"),
            ("tauri://localhost", "tauri://localhost"),
            ("capacitor://localhost", "capacitor://localhost"),
            (
                "chrome-extension://abcdefghijklmnop",
                "chrome-extension://abcdefghijklmnop",
            ),
            ("moz-extension://*", "moz-extension://0b7c-4a"),
            ("vscode-webview://*", "vscode-webview://1aq2"),
            ("http://localhost:*", "http://localhost:5173"),
            ("http://localhost:*", "http://localhost"),
            ("http://[::1]:*", "http://[::1]:3000"),
            ("http://[::1]", "http://[::1]"),
            ("*", "null"),
        ] {
            assert!(matches(listed, origin), "{listed} {origin}");
        }
    }

    #[test]
    fn origins_that_differ_from_the_listed_pattern_do_not_match() {
        for (listed, origin) in [
            ("https://lab.example.org", "http://lab.example.org"),
            ("https://lab.example.org", "https://lab.example.org:8443"),
            (
                "https://lab.example.org",
                "https://lab.example.org.evil.example",
            ),
            ("http://localhost:*", "http://localhost.evil.example:80"),
            ("http://localhost:*", "http://localhost:80@evil.example"),
            ("http://localhost:*", "https://localhost:1"),
            ("http://localhost:*", "null"),
            ("vscode-webview://*", "https://evil.example"),
            ("vscode-webview://*", "vscode-webview://"),
            ("app://obsidian.md", "app://other"),
        ] {
            assert!(!matches(listed, origin), "{listed} {origin}");
        }
    }

    #[test]
    fn an_invalid_origin_is_refused_with_examples() {
        for text in [
            "",
            "null",
            "lab.example.org",
            "https://",
            "https://*",
            "https://lab.example.org/page",
            "https://lab.example.org:99999",
            "https://user@lab.example.org",
            "1x://host",
            "https://[::1",
            "https://a b",
        ] {
            let error = text.parse::<WebOrigin>().unwrap_err().to_string();
            assert!(error.contains("app://obsidian.md"), "{text}: {error}");
        }
    }
}
