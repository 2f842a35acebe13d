//! The listen address of the service: an IP address and a port, or a Unix socket with its permissions.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::structured::ListenAddress;
use super::units::{ParseValueError, written_as_text};

const UNIX: &str = "unix:";
/// Slightly below the system's limit.
const PATH_BYTES_MAX: usize = 100;

/// An address and a port, or `unix:` and the absolute path of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Address(SocketAddr),
    Unix(PathBuf),
}

impl Listen {
    /// The address and port; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listen::Address(address) => Some(*address),
            Listen::Unix(_) => None,
        }
    }

    /// Returns true if only this machine can connect by IP.
    pub fn is_loopback(&self) -> bool {
        let address = self.address();
        address.is_some_and(|address| address.ip().to_canonical().is_loopback())
    }
}

impl Default for Listen {
    fn default() -> Listen {
        Listen::Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))
    }
}

impl FromStr for Listen {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Listen, ParseValueError> {
        let Some(path) = text.trim().strip_prefix(UNIX) else {
            return Ok(Listen::Address(text.parse::<ListenAddress>()?.0));
        };
        // `unix:///run/x.sock` is the same as `unix:/run/x.sock`.
        let path = match path.strip_prefix("//") {
            Some(absolute) if absolute.starts_with('/') => absolute,
            _ => path,
        };
        let wrong = |why: String| {
            Err(ParseValueError(format!(
                "`{text}`: the path of the socket {why}; write one like unix:/run/model-pool/http.sock"
            )))
        };
        if !Path::new(path).is_absolute() || path.ends_with('/') {
            return wrong("must be absolute and name a file".to_owned());
        }
        if path.len() > PATH_BYTES_MAX {
            return wrong(format!(
                "has {} bytes; allowed: at most {PATH_BYTES_MAX}",
                path.len()
            ));
        }
        Ok(Listen::Unix(PathBuf::from(path)))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Address(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

written_as_text!(
    Listen,
    "an address and a port, such as \"127.0.0.1:8080\", or unix: and the path of a socket",
    [
        "127.0.0.1:8080",
        "0.0.0.0:8080",
        "unix:/run/model-pool/http.sock"
    ]
);

/// The permissions of a Unix socket, in octal: `660`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMode(pub u32);

impl FromStr for SocketMode {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<SocketMode, ParseValueError> {
        let digits = text.trim();
        let mode = u32::from_str_radix(digits, 8).ok();
        let mode = mode.filter(|mode| *mode <= 0o777 && (3..=4).contains(&digits.len()));
        mode.map(SocketMode).ok_or_else(|| {
            ParseValueError(format!(
                "`{text}` is not a mode; write three octal digits like \"660\", in quotes"
            ))
        })
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03o}", self.0)
    }
}

written_as_text!(
    SocketMode,
    "three octal digits in quotes, such as \"660\"",
    ["660", "600"]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_listens_on_an_address_or_on_a_socket() {
        for (text, shown) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:80", "[::1]:80"),
            ("unix:/run/pool.sock", "unix:/run/pool.sock"),
            ("unix:///run/pool.sock", "unix:/run/pool.sock"),
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), shown);
        }
        let long = format!("unix:/{}", "x".repeat(100));
        for text in [
            "unix:",
            "unix:pool.sock",
            "unix:/run/",
            "8080",
            long.as_str(),
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
        assert!("127.0.0.1:1".parse::<Listen>().unwrap().is_loopback());
        assert!(
            !"unix:/run/pool.sock"
                .parse::<Listen>()
                .unwrap()
                .is_loopback()
        );
    }

    #[test]
    fn a_socket_mode_is_parsed_and_written_in_octal() {
        assert_eq!("660".parse::<SocketMode>().unwrap(), SocketMode(0o660));
        assert_eq!("0600".parse::<SocketMode>().unwrap().to_string(), "600");
        for text in ["", "6", "888", "1777", "rw-rw----"] {
            assert!(text.parse::<SocketMode>().is_err(), "{text}");
        }
    }
}
