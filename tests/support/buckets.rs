//! Real object storage servers on this machine, a connection that can be held back, and an endpoint that issues keys. They stop
//! with the test.
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::child::ChildGuard;
use crate::external_programs::skipped;
use crate::service::wait_for;

pub const KEY: &str = "testkey";
pub const SECRET: &str = "testsecret";

/// A program that `.ci/buckets` installs.
pub fn program(name: &str) -> Option<PathBuf> {
    let root = crate::root();
    let path = root.join("target/buckets/bin").join(name);
    let there = path.is_file().then_some(path);
    if there.is_none() {
        let why = format!(
            "there is no {name}. Bring it with `.ci/buckets`, and run `cargo test --test outside buckets::`"
        );
        skipped("buckets", &why);
    }
    there
}

/// Distinct ports that are currently free.
fn free_ports<const N: usize>() -> [u16; N] {
    let held: Vec<TcpListener> = (0..N)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    std::array::from_fn(|nth| held[nth].local_addr().unwrap().port())
}

/// Sends a request over a plain socket and returns status and body.
fn ask(address: &str, method: &str, path: &str, kind: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
    let mut socket = TcpStream::connect(address).ok()?;
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).ok()?;
    socket.write_all(body).ok()?;
    let mut response = Vec::new();
    socket.read_to_end(&mut response).ok()?;
    let status = String::from_utf8_lossy(response.get(9..12)?).parse().ok()?;
    Some((status, response))
}

/// SeaweedFS with its S3 gateway.
pub struct S3 {
    _folder: tempfile::TempDir,
    _server: ChildGuard,
    s3: u16,
    filer: u16,
}

impl S3 {
    /// Starts the server. Returns `None` if the program is missing, after reporting it.
    pub fn start() -> Option<S3> {
        let program = program("weed")?;
        let folder = tempfile::tempdir().unwrap();
        let identities = serde_json::json!({"identities": [
            {"name": "admin", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
             "actions": ["Admin", "Read", "Write", "List", "Tagging"]},
            {"name": "anonymous", "actions": ["Read:public", "List:public"]}]});
        let config = folder.path().join("s3.json");
        std::fs::write(&config, identities.to_string()).unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let ports: [u16; 10] = free_ports();
        let log = File::create(folder.path().join("weed.log")).unwrap();
        let mut command = Command::new(program);
        command.arg("mini");
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (name, value) in [
            ("dir", data.display().to_string()),
            ("ip", "127.0.0.1".to_owned()),
            ("ip.bind", "127.0.0.1".to_owned()),
            ("master.port", ports[0].to_string()),
            ("master.port.grpc", ports[1].to_string()),
            ("master.telemetry", "false".to_owned()),
            ("master.volumeSizeLimitMB", "128".to_owned()),
            ("volume.port", ports[2].to_string()),
            ("volume.port.grpc", ports[3].to_string()),
            ("volume.max", "16".to_owned()),
            ("filer.port", ports[4].to_string()),
            ("filer.port.grpc", ports[5].to_string()),
            ("filer.localSocket", path("filer.sock")),
            ("s3.port", ports[6].to_string()),
            ("s3.port.grpc", ports[7].to_string()),
            ("s3.port.iceberg", "0".to_owned()),
            ("s3.port.lance", "0".to_owned()),
            ("s3.localSocket", path("s3.sock")),
            ("s3.config", path("s3.json")),
            ("webdav", "false".to_owned()),
            ("admin.ui", "false".to_owned()),
            ("admin.port", ports[8].to_string()),
            ("admin.port.grpc", ports[9].to_string()),
        ] {
            command.arg(format!("-{name}={value}"));
        }
        let server = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let s3 = S3 {
            _server: ChildGuard(server),
            s3: ports[6],
            filer: ports[4],
            _folder: folder,
        };
        let address = format!("127.0.0.1:{}", s3.s3);
        wait_for("the S3 server", || {
            ask(&address, "GET", "/healthz", "", b"").is_some_and(|(status, _)| status == 200)
        });
        Some(s3)
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.s3)
    }

    /// Stores an object without the gateway: the filer represents a bucket as a folder.
    pub fn put(&self, bucket: &str, key: &str, content: &[u8]) {
        let filer = format!("127.0.0.1:{}", self.filer);
        let path = format!("/buckets/{bucket}/{key}");
        // The volumes become ready shortly after the server.
        wait_for("an object to be taken", || {
            let kind = "application/octet-stream";
            ask(&filer, "PUT", &path, kind, content).is_some_and(|(status, _)| status < 300)
        });
    }

    /// Returns true if the object exists.
    pub fn has(&self, bucket: &str, key: &str) -> bool {
        let filer = format!("127.0.0.1:{}", self.filer);
        let path = format!("/buckets/{bucket}/{key}");
        ask(&filer, "HEAD", &path, "", b"").is_some_and(|(status, _)| status == 200)
    }

    pub fn remove(&self, bucket: &str, key: &str) {
        let filer = format!("127.0.0.1:{}", self.filer);
        let path = format!("/buckets/{bucket}/{key}");
        let (status, _) = ask(&filer, "DELETE", &path, "", b"").unwrap();
        assert!(status < 300, "{status}");
    }
}

/// Google's storage API without authentication.
pub struct Gcs {
    _server: ChildGuard,
    port: u16,
}

impl Gcs {
    pub fn start() -> Option<Gcs> {
        let program = program("fake-gcs-server")?;
        let [port] = free_ports();
        let server = Command::new(program)
            .args([
                "-scheme",
                "http",
                "-host",
                "127.0.0.1",
                "-backend",
                "memory",
            ])
            .args(["-port", &port.to_string()])
            .args(["-external-url", &format!("http://127.0.0.1:{port}")])
            .args(["-public-host", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let gcs = Gcs {
            _server: ChildGuard(server),
            port,
        };
        wait_for("the GCS server", || {
            let response = ask(&gcs.address(), "GET", "/_internal/healthcheck", "", b"");
            response.is_some_and(|(status, _)| status == 200)
        });
        Some(gcs)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn make_bucket(&self, bucket: &str) {
        let body = format!("{{\"name\":\"{bucket}\"}}");
        let path = "/storage/v1/b?project=p";
        let response = ask(
            &self.address(),
            "POST",
            path,
            "application/json",
            body.as_bytes(),
        );
        assert_eq!(response.unwrap().0, 200);
    }

    pub fn put(&self, bucket: &str, key: &str, content: &[u8]) {
        let name = key.replace('/', "%2F");
        let path = format!("/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}");
        let kind = "application/octet-stream";
        assert_eq!(
            ask(&self.address(), "POST", &path, kind, content)
                .unwrap()
                .0,
            200
        );
    }
}

/// A proxy that counts the bytes from the server, and can hold them back.
pub struct Wire {
    pub address: SocketAddr,
    came: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
}

impl Wire {
    pub fn to(server: &str) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (came, most) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicU64::new(u64::MAX)),
        );
        let wire = Wire {
            address,
            came: Arc::clone(&came),
            most: Arc::clone(&most),
        };
        let server = server.to_owned();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(behind)) = (client, TcpStream::connect(&server)) else {
                    continue;
                };
                let (mut up, mut to) = (client.try_clone().unwrap(), behind.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut up, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
                let (came, most) = (Arc::clone(&came), Arc::clone(&most));
                thread::spawn(move || down(behind, client, &came, &most));
            }
        });
        wire
    }

    /// Bytes that the server has sent.
    pub fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    /// Forwards at most this many bytes in total from now on.
    pub fn hold_after(&self, bytes: u64) {
        self.most.store(bytes, Ordering::Relaxed);
    }

    pub fn let_go(&self) {
        self.most.store(u64::MAX, Ordering::Relaxed);
    }
}

fn down(mut from: TcpStream, mut to: TcpStream, came: &AtomicU64, most: &AtomicU64) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        while came.load(Ordering::Relaxed) >= most.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(5));
        }
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
        came.fetch_add(count as u64, Ordering::Relaxed);
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
