//! A remote endpoint: its address, and the headers sent with each request. Follows no redirects, and never connects to addresses
//! where clouds hand out credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper_util::client::proxy::matcher::Intercept;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

use super::proxy;
use catalog::{RemoteRecipe, RemoteUrl};

pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
const USER_AGENT_IS: HeaderValue =
    HeaderValue::from_static(concat!("model-pool/", env!("CARGO_PKG_VERSION")));
/// The path under which the gateway serves OpenAI's routes.
const OPENAI: &str = "/v1";
/// Metadata addresses, where clouds give out a machine's credentials, in addition to the link-local networks.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// A text that `Debug` never shows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SecretText(String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"…\"")
    }
}

/// A remote endpoint's address, and the headers sent with every request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remote {
    /// The URL for display.
    shown: String,
    https: bool,
    host: String,
    port: u16,
    prefix: String,
    only_loopback: bool,
    key: Option<SecretText>,
    headers: BTreeMap<String, SecretText>,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Remote {
    pub(crate) fn new(recipe: &RemoteRecipe, key: Option<String>) -> Remote {
        let RemoteUrl {
            https,
            host,
            port,
            prefix,
        } = recipe.url.clone();
        let headers = recipe.headers.iter();
        Remote {
            shown: recipe.url.to_string(),
            https,
            host,
            port,
            prefix,
            only_loopback: recipe.only_loopback,
            key: key.map(SecretText),
            headers: headers
                .map(|(name, value)| (name.clone(), SecretText(value.0.clone())))
                .collect(),
        }
    }

    /// The endpoint's path for an OpenAI route such as `/v1/completions`, or for a path below the prefix.
    pub fn path(&self, path: &str) -> String {
        let below = match path.strip_prefix(OPENAI) {
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        };
        format!("{}{below}", self.prefix)
    }

    /// The headers of every request: the host, the key and the configured headers.
    pub fn headers(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        let default = if self.https { 443 } else { 80 };
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        let host = if self.port == default {
            host
        } else {
            format!("{host}:{}", self.port)
        };
        map.insert(USER_AGENT, USER_AGENT_IS);
        map.extend(HeaderValue::from_str(&host).map(|host| (HOST, host)));
        for (name, value) in &self.headers {
            let value = HeaderValue::from_str(&value.0);
            if let (Ok(name), Ok(mut value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
                value.set_sensitive(true);
                map.insert(name, value);
            }
        }
        let key = self.key.as_ref().map(|key| format!("Bearer {}", key.0));
        if let Some(Ok(mut key)) = key.map(|key| HeaderValue::from_str(&key)) {
            key.set_sensitive(true);
            map.insert(AUTHORIZATION, key);
        }
        map
    }

    /// The text without the key and without the values of configured headers, which a server may echo.
    pub fn masked(&self, text: &str) -> String {
        let values = self.key.iter().chain(self.headers.values());
        let long = values.filter(|value| value.0.len() >= SECRET_BYTES_MIN);
        long.fold(text.to_owned(), |text, value| {
            text.replace(&value.0, "[masked]")
        })
    }

    /// Connects to an address that the host name currently resolves to, or through the proxy that the environment
    /// names.
    pub(crate) async fn connect(&self) -> io::Result<TcpStream> {
        let fail = |kind, what: String| Err(io::Error::new(kind, what));
        if let Some(proxy) = self.proxy() {
            if let Some(why) = self.host.parse().ok().and_then(|ip| self.forbidden(ip)) {
                return fail(io::ErrorKind::PermissionDenied, why);
            }
            return proxy::tunnel(&proxy, &self.host, self.port).await;
        }
        let named = (self.host.as_str(), self.port);
        let found = match timeout(CONNECT_MAX, tokio::net::lookup_host(named)).await {
            Ok(Ok(found)) => found.collect::<Vec<SocketAddr>>(),
            Ok(Err(error)) => {
                let what = format!("cannot resolve {}: {error}", self.host);
                return fail(io::ErrorKind::HostUnreachable, what);
            }
            Err(_) => {
                let what = format!("no name server answers for {}", self.host);
                return fail(io::ErrorKind::TimedOut, what);
            }
        };
        let mut last = io::Error::new(
            io::ErrorKind::HostUnreachable,
            format!("the name {} has no address", self.host),
        );
        for address in found {
            if let Some(why) = self.forbidden(address.ip()) {
                last = io::Error::new(io::ErrorKind::PermissionDenied, why);
                continue;
            }
            match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
                // On this machine, the connection was given the port of a server that has gone as its own port.
                Ok(Ok(stream)) if stream.local_addr()? == stream.peer_addr()? => {
                    stream.set_zero_linger()?;
                    let what = format!("no server listens on {address}");
                    last = io::Error::new(io::ErrorKind::ConnectionRefused, what);
                }
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => {
                    let what = format!("cannot connect to {address}: {error}");
                    last = io::Error::new(error.kind(), what);
                }
                Err(_) => {
                    let what = format!("{address} has not answered for {CONNECT_MAX:?}");
                    last = io::Error::new(io::ErrorKind::TimedOut, what);
                }
            }
        }
        Err(last)
    }

    fn proxy(&self) -> Option<Intercept> {
        let may = self.https && !self.only_loopback;
        may.then(|| proxy::proxy_for(&self.host, self.port))?
    }

    /// Returns the reason the pool never connects to the address, whatever name it was resolved from.
    fn forbidden(&self, address: IpAddr) -> Option<String> {
        let plain = address.to_canonical();
        let link_local = match plain {
            IpAddr::V4(plain) => plain.is_link_local(),
            IpAddr::V6(plain) => plain.is_unicast_link_local(),
        };
        if link_local || METADATA.contains(&plain) {
            return Some(format!(
                "{} resolves to {plain}, a link-local or metadata address, where clouds hand out credentials; the pool never connects there: correct engine_config.url, or the name server",
                self.host
            ));
        }
        (self.only_loopback && !plain.is_loopback()).then(|| {
            format!(
                "{} resolves to {plain}, which is not this machine; a model registered over the API is reached by https, or by http on this machine alone",
                self.host
            )
        })
    }

    /// The name that the certificate must prove; `None` for plain http.
    pub(super) fn server_name(&self) -> io::Result<Option<ServerName<'static>>> {
        if !self.https {
            return Ok(None);
        }
        let name = ServerName::try_from(self.host.clone());
        name.map(Some).map_err(|_| {
            let what = format!("{} is not a valid host name for a certificate", self.host);
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })
    }
}

/// Shorter values would mask unrelated text.
const SECRET_BYTES_MIN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(only_loopback: bool) -> Remote {
        Remote {
            shown: "https://api.example.org/v1".to_owned(),
            https: true,
            host: "api.example.org".to_owned(),
            port: 443,
            prefix: "/v1".to_owned(),
            only_loopback,
            key: Some(SecretText("sesame-open".to_owned())),
            headers: BTreeMap::from([("x-team".to_owned(), SecretText("our-team".to_owned()))]),
        }
    }

    #[test]
    fn openai_routes_are_placed_below_the_prefix() {
        assert_eq!(remote(false).path("/v1/completions"), "/v1/completions");
        assert_eq!(remote(false).path("/models"), "/v1/models");
        let other = Remote {
            prefix: "/openai/v2".to_owned(),
            ..remote(false)
        };
        assert_eq!(other.path("/v1/completions"), "/openai/v2/completions");
    }

    #[test]
    fn addresses_of_metadata_services_are_never_connected_to() {
        let refused = |text: &str| remote(false).forbidden(text.parse().unwrap()).is_some();
        for address in [
            "169.254.169.254",
            "100.100.100.200",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
        ] {
            assert!(refused(address), "{address}");
        }
        for address in ["127.0.0.1", "10.0.0.7", "93.184.216.34", "2606:4700::1"] {
            assert!(!refused(address), "{address}");
        }
    }

    #[test]
    fn a_model_registered_for_this_machine_can_reach_only_loopback() {
        let refused = |text: &str| remote(true).forbidden(text.parse().unwrap()).is_some();
        assert!(refused("10.0.0.7"));
        assert!(!refused("127.0.0.1") && !refused("::1"));
    }

    #[test]
    fn neither_debug_nor_display_nor_masked_text_reveals_a_secret() {
        let remote = remote(false);
        let message = "no: sesame-open, our-team";
        let shown = format!(
            "{remote:?} {remote} {:?} {}",
            remote.headers(),
            remote.masked(message)
        );
        assert!(
            !shown.contains("sesame") && !shown.contains("our-team"),
            "{shown}"
        );
        let headers = remote.headers();
        assert_eq!(headers["authorization"], "Bearer sesame-open");
        assert_eq!(headers["host"], "api.example.org");
    }
}
