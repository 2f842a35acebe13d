//! The URL of an OpenAI endpoint, split into its parts.

use std::fmt;

/// The usual prefix of OpenAI routes.
const PREFIX: &str = "/v1";
const URL_BYTES_MAX: usize = 2048;

/// An address such as `https://api.example.org:8443/v1`, split into its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrl {
    pub https: bool,
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
    /// Begins with `/` and does not end with it; empty for none.
    pub prefix: String,
}

impl RemoteUrl {
    pub(crate) fn parse(text: &str) -> Result<RemoteUrl, String> {
        RemoteUrl::parse_with(text, PREFIX)
    }

    /// Parses a URL; `prefix` is the default for a URL without a path.
    pub(super) fn parse_with(text: &str, prefix: &str) -> Result<RemoteUrl, String> {
        let like = "write one like https://api.example.org/v1";
        let wrong = |what: &str| Err(format!("{what}; {like}"));
        if text.len() > URL_BYTES_MAX || text.contains(|letter: char| !letter.is_ascii_graphic()) {
            return wrong(&format!(
                "is longer than {URL_BYTES_MAX} bytes, or contains spaces or non-ASCII characters"
            ));
        }
        let lower = text.to_ascii_lowercase();
        let https = lower.starts_with("https://");
        if !https && !lower.starts_with("http://") {
            return wrong("begins with neither https:// nor http://");
        }
        let rest = &text[if https { 8 } else { 7 }..];
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return wrong(
                "contains a user or password, which would be displayed; set the key with engine_config.api_key_file or api_key_env",
            );
        }
        if rest.contains(['?', '#', '\\', '"', '<', '>']) {
            return wrong(
                "contains a query, a fragment or a character that is not allowed in paths",
            );
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(address) => {
                let Some((address, port)) = address.split_once(']') else {
                    return wrong("has a `[` without `]`");
                };
                if address.parse::<std::net::Ipv6Addr>().is_err() {
                    return wrong(&format!("`[{address}]` is not an IPv6 address"));
                }
                (address, port)
            }
            None => match authority.find(':') {
                Some(at) => authority.split_at(at),
                None => (authority, ""),
            },
        };
        let name = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
        if host.is_empty() || !host.chars().all(name) {
            return wrong("has no valid host name or address");
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(if https { 443 } else { 80 }),
            None => None,
            Some(number) => number.parse().ok().filter(|port| *port > 0),
        };
        let Some(port) = port else {
            return wrong("has an invalid port; allowed: 1 to 65535");
        };
        let prefix = match path.trim_end_matches('/') {
            "" => prefix,
            own => own,
        };
        Ok(RemoteUrl {
            https,
            host: host.to_ascii_lowercase(),
            port,
            prefix: prefix.to_owned(),
        })
    }

    /// The host is this machine, independent of name resolution.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.host.parse::<std::net::IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://")?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?
        } else {
            f.write_str(&self.host)?
        }
        if self.port != if self.https { 443 } else { 80 } {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.prefix)
    }
}
