//! Connections to remote endpoints through the proxy of `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`. Only https uses a
//! proxy, through a tunnel that the proxy cannot read. Connections to this machine never use a proxy.

use std::io;
use std::net::IpAddr;
use std::sync::LazyLock;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::ServiceExt;

use super::remote::CONNECT_MAX;

/// Read from the environment once.
static PROXIES: LazyLock<Matcher> = LazyLock::new(Matcher::from_env);

/// The proxy for an https endpoint, if the environment names one for it.
pub(super) fn proxy_for(host: &str, port: u16) -> Option<Intercept> {
    matching(&PROXIES, host, port)
}

fn matching(proxies: &Matcher, host: &str, port: u16) -> Option<Intercept> {
    let address = host.parse::<IpAddr>().ok();
    let is_here = address.is_some_and(|ip| ip.to_canonical().is_loopback());
    if is_here || host.eq_ignore_ascii_case("localhost") {
        return None;
    }
    proxies.intercept(&destination(host, port)?)
}

fn destination(host: &str, port: u16) -> Option<hyper::Uri> {
    let authority = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    format!("https://{authority}/").parse().ok()
}

/// A connection to the endpoint through the proxy. The proxy resolves the name.
pub(super) async fn tunnel(proxy: &Intercept, host: &str, port: u16) -> io::Result<TcpStream> {
    let name = proxy.uri().host().unwrap_or_default().to_owned();
    let fail = |kind, what: String| {
        let text = format!("the proxy {name} (HTTPS_PROXY, ALL_PROXY): {what}");
        io::Error::new(kind, text)
    };
    if proxy.uri().scheme_str() != Some("http") {
        let what = "only proxies that are addressed by http:// are supported";
        return Err(fail(io::ErrorKind::Unsupported, what.to_owned()));
    }
    let destination = destination(host, port);
    let destination = destination.ok_or_else(|| {
        fail(
            io::ErrorKind::InvalidInput,
            format!("`{host}` is not a host"),
        )
    })?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_MAX));
    let mut tunnel = Tunnel::new(proxy.uri().clone(), connector);
    if let Some(credentials) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    match timeout(2 * CONNECT_MAX, tunnel.oneshot(destination)).await {
        Ok(Ok(stream)) => Ok(TokioIo::into_inner(stream)),
        Ok(Err(error)) => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            Err(fail(
                io::ErrorKind::ConnectionRefused,
                format!("{error}{cause}"),
            ))
        }
        Err(_) => {
            let what = format!("no tunnel to {host}:{port} within {:?}", 2 * CONNECT_MAX);
            Err(fail(io::ErrorKind::TimedOut, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn proxies(all: &str, no: &str) -> Matcher {
        Matcher::builder().https(all).no(no).build()
    }

    #[test]
    fn loopback_and_no_proxy_hosts_bypass_the_proxy() {
        let proxies = proxies("http://proxy.example:3128", "internal.example,10.0.0.0/8");
        for host in ["api.example.org", "93.184.216.34", "2606:4700::1"] {
            assert!(matching(&proxies, host, 443).is_some(), "{host}");
        }
        for host in [
            "localhost",
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "llm.internal.example",
            "10.1.2.3",
        ] {
            assert!(matching(&proxies, host, 443).is_none(), "{host}");
        }
    }

    #[tokio::test]
    async fn a_proxy_tunnel_sends_endpoint_and_credentials_and_carries_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let proxies = proxies(&format!("http://ann:word@{at}"), "");
        let proxy = matching(&proxies, "api.example.org", 8443).unwrap();
        let serve = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            (String::from_utf8(head).unwrap(), socket)
        };
        let (stream, (head, mut socket)) =
            tokio::join!(tunnel(&proxy, "api.example.org", 8443), serve);
        // The client speaks first, as in TLS.
        let mut stream = stream.unwrap();
        stream.write_all(b"ping").await.unwrap();
        let mut received = [0; 4];
        socket.read_exact(&mut received).await.unwrap();
        socket.write_all(b"hello").await.unwrap();
        drop(socket);
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!((&received, text.as_str()), (b"ping", "hello"));
        assert!(
            head.starts_with("CONNECT api.example.org:8443 HTTP/1.1\r\n"),
            "{head}"
        );
        let head = head.to_ascii_lowercase();
        assert!(
            head.contains("proxy-authorization: basic yw5uondvcmq="),
            "{head}"
        );
    }

    #[tokio::test]
    async fn a_refusal_names_the_proxy() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let proxies = proxies(&format!("http://{at}"), "");
        let proxy = matching(&proxies, "api.example.org", 443).unwrap();
        let serve = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket
                .write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                .await
                .unwrap();
            let mut rest = Vec::new();
            let _ = socket.read_to_end(&mut rest).await;
        };
        let (stream, ()) = tokio::join!(tunnel(&proxy, "api.example.org", 443), serve);
        let error = stream.unwrap_err().to_string();
        assert!(error.contains("the proxy 127.0.0.1"), "{error}");
        let socks = Matcher::builder().https("socks5://127.0.0.1:1").build();
        let proxy = matching(&socks, "api.example.org", 443).unwrap();
        let error = tunnel(&proxy, "api.example.org", 443).await.unwrap_err();
        assert!(error.to_string().contains("http://"), "{error}");
    }
}
