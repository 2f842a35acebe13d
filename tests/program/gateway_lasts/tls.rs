//! TLS: both HTTP versions by negotiation, new certificates without dropped connections, and invalid files.

use std::path::Path;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::Request;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use support::net::{chat, h2_over, post, runtime, stub, text};
use support::service::{Pool, wait_for};

/// Writes a new certificate with its key, and returns the certificate.
fn certificate(folder: &Path) -> String {
    let names = ["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    made.cert.pem()
}

fn files(folder: &Path) -> String {
    format!(
        "{{cert: {:?}, key: {:?}}}",
        folder.join("cert.pem"),
        folder.join("key.pem")
    )
}

fn start(folder: &Path) -> Pool {
    let talk = stub("talker", &["--tokens", "40", "--token-ms", "50"]);
    Pool::with_env(&[talk], "", &[("MODEL_POOL__SERVER__TLS", &files(folder))])
}

/// A connection that trusts only this certificate.
async fn shake(
    pool: &Pool,
    certificate: &str,
    protocol: &[u8],
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    roots.add(root).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let socket = tokio::net::TcpStream::connect(pool.address()).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await
}

/// The status of the health route over HTTP/1.1, if the certificate is in use.
async fn health(pool: &Pool, certificate: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = shake(pool, certificate, b"http/1.1").await.ok()?;
    let ask = "GET /llm/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.ok()?;
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    Some(text.lines().next().unwrap_or_default().to_owned())
}

async fn reload(pool: &Pool, certificate: &str) -> (u16, String) {
    let stream = shake(pool, certificate, b"h2").await.unwrap();
    let mut client = h2_over(stream).await;
    let mut request = post("https://localhost/llm/admin/reload", "");
    let key = format!("Bearer {}", pool.admin_key());
    request
        .headers_mut()
        .insert("authorization", key.parse().unwrap());
    let response = client.send_request(request).await.unwrap();
    (response.status().as_u16(), text(response).await)
}

#[test]
fn tls_serves_the_negotiated_protocol_and_refuses_plain_http() {
    let folder = tempfile::tempdir().unwrap();
    let own = certificate(folder.path());
    let pool = start(folder.path());
    runtime().block_on(async {
        assert_eq!(health(&pool, &own).await.unwrap(), "HTTP/1.1 200 OK");
        let stream = shake(&pool, &own, b"h2").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut client = h2_over(stream).await;
        let request = Request::get("https://localhost/v1/models").body(Default::default());
        let response = client.send_request(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
    });
    let said = support::net::raw(
        &pool,
        b"GET /llm/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    assert!(!said.contains("200"), "{said}");
}

#[test]
fn a_new_certificate_is_reloaded_automatically_and_running_streams_continue() {
    let folder = tempfile::tempdir().unwrap();
    let first = certificate(folder.path());
    let pool = start(folder.path());
    let runtime = runtime();
    runtime.block_on(async {
        let mut client = h2_over(shake(&pool, &first, b"h2").await.unwrap()).await;
        let uri = "https://localhost/v1/chat/completions";
        let response = client
            .send_request(post(uri, &chat("talker", true)))
            .await
            .unwrap();
        let mut body = response.into_body();
        body.frame().await.unwrap().unwrap();
        let second = certificate(folder.path());
        // Clients that trust only the new certificate no longer trust the old one.
        let taken = async {
            while health(&pool, &second).await.is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let within = std::time::Duration::from_secs(30);
        let taken = tokio::time::timeout(within, taken).await;
        taken.expect("the new certificate is taken");
        assert!(health(&pool, &first).await.is_none());
        let rest = body.collect().await.unwrap().to_bytes();
        assert!(rest.ends_with(b"data: [DONE]\n\n"), "{rest:?}");
    });
}

#[test]
fn a_broken_new_certificate_keeps_the_old_one_and_is_reported_in_log_and_response() {
    let folder = tempfile::tempdir().unwrap();
    let own = certificate(folder.path());
    let pool = start(folder.path());
    std::fs::write(folder.path().join("key.pem"), "no key at all").unwrap();
    runtime().block_on(async {
        let (status, response) = reload(&pool, &own).await;
        assert_eq!(status, 200, "{response}");
        for words in [
            "key.pem",
            "no PEM private key",
            "keeping the previous certificate",
        ] {
            assert!(response.contains(words), "{response}");
        }
        assert_eq!(health(&pool, &own).await.unwrap(), "HTTP/1.1 200 OK");
    });
    wait_for("the log to say so", || {
        pool.log().contains("keeping the previous certificate")
    });
    let new = certificate(folder.path());
    runtime().block_on(async {
        let (_, response) = match health(&pool, &new).await {
            Some(_) => reload(&pool, &new).await,
            None => reload(&pool, &own).await,
        };
        assert!(
            !response.contains("keeping the previous certificate"),
            "{response}"
        );
        assert!(health(&pool, &new).await.is_some());
    });
}

#[test]
fn a_file_that_is_missing_or_broken_at_the_start_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "server: {{listen: \"127.0.0.1:0\", tls: {}}}\n",
        files(folder.path())
    );
    let (status, said) = Pool::refused(&config);
    assert_eq!(status, Some(1));
    assert!(
        said.contains("server.tls.cert") && said.contains("cert.pem"),
        "{said}"
    );
    certificate(folder.path());
    std::fs::write(folder.path().join("key.pem"), "-----BEGIN NOTHING-----").unwrap();
    let (status, said) = Pool::refused(&config);
    assert_eq!(status, Some(1));
    let last = said.lines().last().unwrap();
    assert!(
        last.contains("server.tls.key") && last.contains("key.pem"),
        "{said}"
    );
}
