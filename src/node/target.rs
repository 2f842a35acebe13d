//! The controller's URL, and connections to it: plain or TLS, upgraded from an HTTP/1.1 request.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use url::{Host, Url};

use engine::{Fingerprint, Stream, WrongCertificate};
use node_link::{STANDBY_CODE, UPGRADE as UPGRADE_TO};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Time limit if there are several controllers: a hanging one must not keep the node from the other.
const CONNECT_WITHIN_OF_SEVERAL: Duration = Duration::from_secs(3);
/// Responses that refuse are short.
const BODY_BYTES_MAX: usize = 64 << 10;
/// The service's base path, unless the URL has another path.
const BASE: &str = "/llm";

/// The parsed URL of a controller.
#[derive(Clone, Debug)]
pub struct Target {
    https: bool,
    host: Host<String>,
    port: u16,
    base: String,
    fingerprint: Option<Fingerprint>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.base)
    }
}

/// A connection after its upgrade.
pub(super) struct UpgradedConnection {
    pub io: TokioIo<hyper::upgrade::Upgraded>,
    /// The local address of the connection.
    pub local: std::net::IpAddr,
    /// Drives the connection, and is aborted with it.
    _driver: AbortOnDropHandle<()>,
}

/// The reason a connection failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("{0}")]
    Unreachable(String),
    /// Another controller leads. The text is the standby's own and says where.
    #[error("{0}")]
    Standby(String),
    /// The controller's own text, and whether it is final.
    #[error("{message}")]
    Refused { message: String, is_final: bool },
}

impl Target {
    /// # Errors
    /// The problem with the URL, with examples.
    pub fn parse(text: &str, fingerprint: Option<Fingerprint>) -> Result<Target, String> {
        let like = "it looks like https://pool.example:8443 or http://10.0.0.1:8080/llm";
        let url =
            Url::parse(text).map_err(|error| format!("--controller {text}: {error}; {like}"))?;
        let https = match url.scheme() {
            "https" => true,
            "http" if fingerprint.is_none() => false,
            "http" => {
                return Err(format!(
                    "--fingerprint belongs to a certificate, and --controller {text} has none; write https://"
                ));
            }
            other => {
                return Err(format!(
                    "--controller {text}: {other} is neither http nor https; {like}"
                ));
            }
        };
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(format!("--controller {text}: it names no host; {like}"));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("--controller: a token does not belong in the URL; write it to a file with mode 0600, and name that with --token-file".to_owned());
        }
        let base = match url.path().trim_end_matches('/') {
            "" => BASE.to_owned(),
            base => base.to_owned(),
        };
        Ok(Target {
            https,
            host: host.to_owned(),
            port,
            base,
            fingerprint,
        })
    }

    /// Returns true if only programs on this machine can read the traffic.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(ip) => ip.is_loopback(),
            Host::Ipv6(ip) => ip.is_loopback(),
        }
    }

    pub fn is_plain(&self) -> bool {
        !self.https
    }

    /// Connects and upgrades. `is_only` is true without another controller, which allows a longer time limit.
    pub(super) async fn connect(
        &self,
        token: &str,
        is_only: bool,
    ) -> Result<UpgradedConnection, DialError> {
        let within = if is_only {
            CONNECT_WITHIN
        } else {
            CONNECT_WITHIN_OF_SEVERAL
        };
        match timeout(within, self.open(token)).await {
            Ok(connected) => connected,
            Err(_) => Err(DialError::Unreachable(format!(
                "{self} has not answered for {} s",
                within.as_secs()
            ))),
        }
    }

    async fn open(&self, token: &str) -> Result<UpgradedConnection, DialError> {
        let unreachable = |error: io::Error| {
            DialError::Unreachable(format!(
                "{self} cannot be reached: {error}; is the controller running, and does its server.listen accept connections from here?"
            ))
        };
        let host = match &self.host {
            Host::Ipv6(ip) => ip.to_string(),
            host => host.to_string(),
        };
        let stream = TcpStream::connect((host.as_str(), self.port))
            .await
            .map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let (local, peer) = match (stream.local_addr(), stream.peer_addr()) {
            (Ok(local), Ok(peer)) => (local.ip(), peer.ip()),
            (Err(error), _) | (_, Err(error)) => return Err(unreachable(error)),
        };
        let stream = match (self.https, self.fingerprint) {
            (false, _) => Stream::tcp(stream),
            (true, Some(fingerprint)) => {
                let shaken = engine::connect_pinned(stream, fingerprint, peer).await;
                let shaken = shaken.map_err(|error| match wrong_certificate(&error) {
                    Some(wrong) => DialError::Unreachable(format!(
                        "{self}: {wrong}; if the controller has a new certificate, its log shows the fingerprint to give with --fingerprint; if not, this is another server"
                    )),
                    None => unreachable(error),
                });
                Stream::tls(shaken?)
            }
            (true, None) => {
                let shaken = engine::connect_trusted(stream, host.clone()).await;
                let shaken = shaken.map_err(|error| {
                    DialError::Unreachable(format!(
                        "{self}: {error}; a self-signed certificate is accepted with --fingerprint sha256:…, which the controller's log shows"
                    ))
                });
                Stream::tls(shaken?)
            }
        };
        self.upgrade(stream, local, token).await
    }

    async fn upgrade(
        &self,
        stream: Stream,
        local: std::net::IpAddr,
        token: &str,
    ) -> Result<UpgradedConnection, DialError> {
        let broken = |error: hyper::Error| {
            DialError::Unreachable(format!("{self} broke the connection: {error}"))
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let driver = drive(async move {
            let _ = connection.with_upgrades().await;
        });
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| refused("the token contains characters that no token has; make another with `admin-client nodes token`"))?;
        authorization.set_sensitive(true);
        let request = Request::get(format!("{}/node/connect", self.base))
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, UPGRADE_TO)
            .header(AUTHORIZATION, authorization)
            .body(Empty::<Bytes>::new())
            .map_err(|error| DialError::Unreachable(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX)
                .collect()
                .await;
            let body = body
                .map(|collected| collected.to_bytes())
                .unwrap_or_default();
            return Err(self.refusal(status, &body));
        }
        let io = hyper::upgrade::on(response).await.map_err(broken)?;
        Ok(UpgradedConnection {
            io: TokioIo::new(io),
            local,
            _driver: driver,
        })
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> DialError {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let code = body
            .pointer("/error/code")
            .and_then(serde_json::Value::as_str);
        let stands_by = status == StatusCode::SERVICE_UNAVAILABLE && code == Some(STANDBY_CODE);
        let message = body
            .pointer("/error/message")
            .and_then(serde_json::Value::as_str);
        let message = message.map(|text| {
            text.chars()
                .filter(|char| !char.is_control())
                .take(500)
                .collect::<String>()
        });
        let message = message.unwrap_or_else(|| format!("it answers {status}"));
        if stands_by {
            return DialError::Standby(format!("{self}: {message}"));
        }
        let message = match status {
            StatusCode::NOT_FOUND => format!(
                "{self} has no route for nodes: {message}; is the base path right, and the controller of this version?"
            ),
            _ => format!("{self} refuses this node: {message}"),
        };
        DialError::Refused {
            message,
            is_final: status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

fn wrong_certificate(error: &io::Error) -> Option<&WrongCertificate> {
    error.get_ref()?.downcast_ref()
}

fn refused(message: &str) -> DialError {
    DialError::Refused {
        message: message.to_owned(),
        is_final: true,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it ends with the connection, which owns it"
)]
pub(super) fn drive(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_gets_the_default_base_path() {
        let shown = |text: &str| Target::parse(text, None).expect("a URL").to_string();
        assert_eq!(shown("http://10.0.0.1:8080"), "http://10.0.0.1:8080/llm");
        assert_eq!(
            shown("https://pool.example/gpu/"),
            "https://pool.example:443/gpu"
        );
        assert_eq!(shown("http://[::1]:80/llm"), "http://[::1]:80/llm");
    }

    #[test]
    fn d4_a_standby_is_not_a_refusal_and_a_temporary_refusal_is_not_final() {
        let target = Target::parse("http://10.0.0.1:8080", None).expect("a URL");
        let body =
            |code: &str| format!(r#"{{"error": {{"message": "pool-2 leads", "code": "{code}"}}}}"#);
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let standby = target.refusal(unavailable, body(STANDBY_CODE).as_bytes());
        assert!(
            matches!(&standby, DialError::Standby(why) if why.contains("pool-2 leads")),
            "{standby}"
        );
        let later = target.refusal(unavailable, body("state_unavailable").as_bytes());
        assert!(matches!(
            later,
            DialError::Refused {
                is_final: false,
                ..
            }
        ));
    }

    #[test]
    fn an_invalid_controller_url_is_refused_with_an_example() {
        let fingerprint = Fingerprint::new(b"a certificate");
        for (text, fingerprint) in [
            ("pool.example", None),
            ("ftp://pool.example", None),
            ("http://user:secret@pool.example", None),
            ("http://pool.example", Some(fingerprint)),
        ] {
            let error = Target::parse(text, fingerprint).expect_err("no controller");
            assert!(error.contains("--controller"), "{error}");
        }
    }
}
