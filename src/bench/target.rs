//! The endpoint: the parsed URL, the key, and new connections over TCP or TLS.

use std::io;
use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::http::uri::{Authority, Scheme};
use hyper::{HeaderMap, Uri, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A bidirectional byte stream.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

#[derive(Debug)]
pub struct Target {
    scheme: Scheme,
    authority: Authority,
    /// Without a trailing slash.
    base: String,
    key: Option<HeaderValue>,
    pub http2: bool,
    tls: OnceCell<Arc<ClientConfig>>,
}

impl Target {
    pub fn new(url: &str, key: Option<&str>, http2: bool) -> Result<Target, String> {
        let wrong =
            |why: String| format!("--url {url}: {why}; write it like http://127.0.0.1:8080/v1");
        let uri: Uri = url.parse().map_err(|error| wrong(format!("{error}")))?;
        let scheme = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS => scheme.clone(),
            Some(other) => return Err(wrong(format!("{other} is neither http nor https"))),
            None => {
                return Err(wrong(
                    "it does not begin with http:// or https://".to_owned(),
                ));
            }
        };
        let authority = uri
            .authority()
            .filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| wrong("it names no host".to_owned()))?;
        if authority.as_str().contains('@') {
            return Err(
                "--url contains a user or a password; set MODEL_POOL_KEY to a key".to_owned(),
            );
        }
        if uri.query().is_some() {
            return Err(wrong("it has a query".to_owned()));
        }
        let base = match uri.path().trim_end_matches('/') {
            "" => "/v1",
            path => path,
        };
        let key = key.map(|key| HeaderValue::from_str(&format!("Bearer {key}")));
        let mut key = key.transpose().map_err(
            |_| "the key has characters that a header cannot carry; check --key or MODEL_POOL_KEY",
        )?;
        if let Some(key) = &mut key {
            key.set_sensitive(true);
        }
        Ok(Target {
            scheme,
            authority: authority.clone(),
            base: base.to_owned(),
            key,
            http2,
            tls: OnceCell::new(),
        })
    }

    /// The complete URL of a path below the base.
    pub fn url(&self, below: &str) -> String {
        format!("{}://{}{}{below}", self.scheme, self.authority, self.base)
    }

    /// The URI of a path below the base for the request's HTTP version: complete in HTTP/2.
    pub fn uri(&self, below: &str) -> Result<Uri, String> {
        let text = if self.http2 {
            self.url(below)
        } else {
            format!("{}{below}", self.base)
        };
        text.parse().map_err(|error| format!("{text}: {error}"))
    }

    /// The headers of every request.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        if !self.http2 {
            let host = HeaderValue::from_str(self.authority.as_str());
            headers.extend(host.map(|host| (header::HOST, host)));
        }
        headers.extend(self.key.clone().map(|key| (header::AUTHORIZATION, key)));
        headers
    }

    pub async fn connect(&self) -> io::Result<Box<dyn Bytes>> {
        let https = self.scheme == Scheme::HTTPS;
        let host = self.authority.host().trim_matches(['[', ']']);
        let port = if https { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(port);
        let stream = TcpStream::connect((host, port)).await?;
        // Requests are small: Nagle's delay would be measured instead of the endpoint.
        stream.set_nodelay(true)?;
        if !https {
            return Ok(Box::new(stream));
        }
        let config = self.tls.get_or_try_init(|| authorities(self.http2)).await?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name, stream).await?;
        let chosen = stream.get_ref().1.alpn_protocol();
        if self.http2 && chosen != Some(b"h2") {
            return Err(io::Error::other("it does not offer HTTP/2; omit --http2"));
        }
        Ok(Box::new(stream))
    }
}

const USER_AGENT: &str = concat!("model-pool-bench/", env!("CARGO_PKG_VERSION"));

/// The system's certificate authorities, or those from `SSL_CERT_FILE` and `SSL_CERT_DIR`.
async fn authorities(http2: bool) -> io::Result<Arc<ClientConfig>> {
    let read = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read.map_err(io::Error::other)?.certs);
    if roots.is_empty() {
        return Err(io::Error::other(
            "no certificate authorities found; install ca-certificates, or set SSL_CERT_FILE",
        ));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    let protocol: &[u8] = if http2 { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<String, String> {
        Target::new(text, None, false).map(|target| target.url("/models"))
    }

    #[test]
    fn a_url_without_a_path_gets_the_default_path() {
        assert_eq!(url("http://a:1").unwrap(), "http://a:1/v1/models");
        assert_eq!(url("http://a:1/").unwrap(), "http://a:1/v1/models");
        assert_eq!(url("https://a/llm/v1/").unwrap(), "https://a/llm/v1/models");
    }

    #[test]
    fn an_invalid_url_is_refused_with_the_reason() {
        assert!(url("127.0.0.1:8080").unwrap_err().contains("--url"));
        assert!(
            url("ftp://a/")
                .unwrap_err()
                .contains("neither http nor https")
        );
        assert!(url("http://a/v1?x=1").unwrap_err().contains("a query"));
        let error = url("http://me:secret@a/v1").unwrap_err();
        assert!(error.contains("MODEL_POOL_KEY") && !error.contains("secret"));
    }

    #[test]
    fn the_key_is_sent_in_a_header_and_never_printed() {
        let target = Target::new("http://a", Some("mp-secret"), false).unwrap();
        assert_eq!(target.headers()["authorization"], "Bearer mp-secret");
        assert!(!format!("{target:?} {:?}", target.headers()).contains("mp-secret"));
        let error = Target::new("http://a", Some("mp-\n"), false).unwrap_err();
        assert!(
            error.contains("--key") && !error.contains("mp-\n"),
            "{error}"
        );
    }
}
