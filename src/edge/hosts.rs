//! The host names of this service. On a loopback address, requests for other names are refused, which protects against DNS
//! rebinding: a web page whose name resolves to 127.0.0.1 reaches nothing.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::{Version, header};

use api_types::error::{ErrorKind, Failure};
use config::{HostName, ServerSection};

#[derive(Debug)]
pub(super) struct Hosts {
    names: Vec<HostName>,
    /// Loopback names are accepted.
    on_loopback: bool,
}

impl Hosts {
    pub fn from_config(server: &ServerSection) -> Hosts {
        Hosts {
            names: server.hosts.clone(),
            on_loopback: server.listen.is_loopback(),
        }
    }

    /// Checks the Host header, or the target in HTTP/2.
    pub fn check(&self, parts: &Parts) -> Result<(), Failure> {
        let mut named = parts.headers.get_all(header::HOST).iter();
        let (first, second) = (named.next(), named.next());
        if second.is_some() {
            return Err(Failure::invalid(
                None,
                "the request has more than one Host header",
            ));
        }
        let authority = parts.uri.authority().map(|authority| authority.as_str());
        if first.is_none() && authority.is_none() {
            return match parts.version {
                Version::HTTP_09 | Version::HTTP_10 => Ok(()),
                _ => Err(Failure::invalid(
                    None,
                    "the request has no Host header, which HTTP/1.1 requires",
                )),
            };
        }
        let first = first.map(|value| value.to_str().unwrap_or("\u{fffd}"));
        for text in first.into_iter().chain(authority) {
            let host = host_of(text);
            if host.is_some_and(|host| self.has_as_written(host)) {
                continue;
            }
            let Some(name) = host.and_then(|host| host.parse::<HostName>().ok()) else {
                let message =
                    "the request's Host header is not a valid host name, with or without a port";
                return Err(Failure::invalid(None, message));
            };
            if !self.has(&name) {
                return Err(self.unknown(&name));
            }
        }
        Ok(())
    }

    /// Returns true if a page under this name can only be from this machine: the name is configured, an address, or `localhost`,
    /// which no DNS server can bind to another machine.
    pub fn is_certain(&self, authority: &str) -> bool {
        name_of(authority).is_some_and(|name| {
            let text = name.as_str();
            self.names.contains(&name) || text == "localhost" || text.parse::<IpAddr>().is_ok()
        })
    }

    /// Recognizes the usual names without parsing.
    fn has_as_written(&self, host: &str) -> bool {
        let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
        self.names.iter().any(|name| name.as_str() == host)
            || (self.on_loopback
                && (host == "localhost" || host.parse::<IpAddr>().is_ok_and(is_loopback)))
    }

    fn has(&self, name: &HostName) -> bool {
        if self.names.contains(name) {
            return true;
        }
        if !self.on_loopback {
            return self.names.is_empty();
        }
        let address = name.as_str().parse::<IpAddr>().ok();
        name.as_str() == "localhost"
            || address.is_some_and(|address| address.to_canonical().is_loopback())
    }

    fn unknown(&self, name: &HostName) -> Failure {
        let own = if self.on_loopback {
            "localhost, 127.0.0.1, [::1] and those in server.hosts"
        } else {
            "those in server.hosts"
        };
        Failure::new(
            ErrorKind::UnknownHost,
            "unknown_host",
            format!(
                "this service is not called {name}; its names are {own}, where an administrator can add one"
            ),
        )
    }
}

fn name_of(authority: &str) -> Option<HostName> {
    host_of(authority)?.parse().ok()
}

/// The name without its port.
fn host_of(text: &str) -> Option<&str> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            address.parse::<IpAddr>().ok()?;
            (address, rest)
        }
        None => match text.find(':') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        },
    };
    let is_port = |port: &str| {
        port.strip_prefix(':')
            .is_some_and(|port| port.is_empty() || port.parse::<u16>().is_ok())
    };
    if host.is_empty() || host != host.trim() || !(port.is_empty() || is_port(port)) {
        return None;
    }
    Some(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn status(listen: &str, hosts: &[&str], host: &str) -> u16 {
        let server = ServerSection {
            listen: listen.parse().unwrap(),
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            ..ServerSection::default()
        };
        let request = Request::get("/v1/models").header(header::HOST, host);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let checked = Hosts::from_config(&server).check(&parts);
        checked.map_or_else(|failure| failure.status().as_u16(), |()| 200)
    }

    #[test]
    fn on_loopback_only_local_and_configured_host_names_are_served() {
        for (host, expected) in [
            ("localhost", 200),
            ("LOCALHOST:8080", 200),
            ("localhost.", 200),
            ("127.0.0.1:1", 200),
            ("[::1]", 200),
            ("[::1]:8080", 200),
            ("llm.example.org:443", 200),
            ("evil.example", 421),
            ("localhost.evil.example", 421),
            ("10.0.0.1", 421),
            ("127.0.0.1.evil.example", 421),
            ("user@localhost", 400),
            ("localhost:port", 400),
            ("", 400),
            ("a b", 400),
            ("[::1", 400),
        ] {
            assert_eq!(
                status("127.0.0.1:8080", &["llm.example.org"], host),
                expected,
                "{host}"
            );
        }
    }

    #[test]
    fn host_names_are_checked_on_public_addresses_only_if_configured() {
        assert_eq!(status("0.0.0.0:80", &[], "anything.example"), 200);
        let own = ["llm.example.org"];
        assert_eq!(status("0.0.0.0:80", &own, "anything.example"), 421);
        assert_eq!(status("0.0.0.0:80", &own, "llm.example.org"), 200);
        assert_eq!(status("0.0.0.0:80", &own, "localhost"), 421);
    }
}
