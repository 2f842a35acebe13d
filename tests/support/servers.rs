//! Test servers: the stub engine with a required key, TLS in front of it with a test authority, and a server with fixed responses
//! that records its requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::child::ChildGuard;
use crate::stub::stub_engine;

/// The stub engine's key. It must not appear in anything that the pool prints or writes.
pub const KEY: &str = "sesame-0a1b2c3d4e5f";

/// The stub engine as a separate server.
pub struct Stub {
    child: ChildGuard,
    pub address: String,
    // Kept open: the stub continues to print, and a closed pipe would end it.
    _output: BufReader<ChildStdout>,
}

impl Stub {
    /// Starts the stub with a required key.
    pub fn with(flags: &[&str]) -> Stub {
        Stub::on("0", flags)
    }

    pub fn on(port: &str, flags: &[&str]) -> Stub {
        let own = [
            "--port",
            port,
            "--model",
            "their-name",
            "--require-key",
            KEY,
        ];
        Stub::start(&[&own[..], flags].concat())
    }

    /// Starts the stub without a key.
    pub fn plain(flags: &[&str]) -> Stub {
        Stub::start(&[&["--port", "0"][..], flags].concat())
    }

    fn start(flags: &[&str]) -> Stub {
        let mut command = Command::new(stub_engine());
        let command = command.args(flags).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the stub engine");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("where it listens");
        let address = line.trim().strip_prefix("listening on ").expect("a place");
        Stub {
            child: ChildGuard(child),
            address: address.to_owned(),
            _output: output,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The URL of a port without a listener. The system never assigns port 1 automatically, unlike a port that is currently free.
pub fn dead_url() -> String {
    "http://127.0.0.1:1/v1".to_owned()
}

/// Serves TLS for `localhost` in front of another server, signed by an authority whose certificate is written to `authority`.
/// Returns the port.
pub fn tls_before(address: &str, authority: &Path) -> u16 {
    let mut of_authority = CertificateParams::default();
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let name = authority.display().to_string();
    of_authority
        .distinguished_name
        .push(DnType::CommonName, name);
    let issuer = CertifiedIssuer::self_signed(of_authority, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(authority, issuer.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let behind: SocketAddr = address.parse().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let mut sessions = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                sessions.spawn(async move {
                    // A client that does not trust the certificate disconnects here.
                    let Ok(mut outside) = acceptor.accept(socket).await else {
                        return;
                    };
                    let mut inside = tokio::net::TcpStream::connect(behind).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
    });
    port
}

/// Responds to each request with the result of `response`, and closes the connection.
pub struct ScriptedServer {
    pub address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ScriptedServer {
    pub fn server(response: impl Fn(&str) -> String + Send + 'static) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let remembered = Arc::clone(&asked);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if let Some((head, body)) = request_of(&socket) {
                    let request = head + &String::from_utf8_lossy(&body);
                    let text = response(&request);
                    remembered.lock().unwrap().push(request);
                    let _ = (&socket).write_all(text.as_bytes());
                }
            }
        });
        ScriptedServer { address, asked }
    }

    pub fn url(&self, prefix: &str) -> String {
        format!("http://{}{prefix}", self.address)
    }

    /// The requests so far, with their heads and bodies.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

pub fn http(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}",
        body.len()
    )
}

/// The head and the body of one request.
pub fn request_of(socket: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_lowercase().lines().find_map(|line| {
        let value = line.strip_prefix("content-length:")?;
        value.trim().parse::<usize>().ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}
