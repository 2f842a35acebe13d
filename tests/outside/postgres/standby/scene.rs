//! Two controllers on one PostgreSQL, and a node that knows both. The connection between the first controller and its database can
//! be cut.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use support::postgres::{PASSWORD, Server, name_of};
use support::service::{Pool, end_engines_in, wait_for};

/// A TCP proxy to the server's Unix socket.
pub struct SocketProxy {
    port: u16,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl SocketProxy {
    pub fn to(server: &Server) -> SocketProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = SocketProxy {
            port: listener.local_addr().unwrap().port(),
            is_cut: Arc::default(),
            open: Arc::default(),
        };
        let socket = server.folder().join(".s.PGSQL.5432");
        let (is_cut, open) = (Arc::clone(&way.is_cut), Arc::clone(&way.open));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = UnixStream::connect(&socket) else {
                    continue;
                };
                client.set_nodelay(true).unwrap();
                open.lock().unwrap().push(client.try_clone().unwrap());
                pass(client, server);
            }
        });
        way
    }

    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://pool:{PASSWORD}@127.0.0.1:{}/{database}",
            self.port
        )
    }

    /// Ends every session and refuses new ones.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for client in self.open.lock().unwrap().drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Accepts sessions again.
    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

/// Copies both directions; the end of one ends the other.
fn pass(client: TcpStream, server: UnixStream) {
    let (mut to_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut from_client, mut from_server) = (client, server);
    thread::spawn(move || {
        copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut chunk = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        if to.write_all(&chunk[..count]).is_err() {
            return;
        }
    }
}

/// Default address of the controllers.
pub const HERE: &str = "127.0.0.1";

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A controller of the pair. Models fit only on nodes.
pub fn controller(models: &[(String, String)], url: &str) -> Pool {
    controller_with(models, url, HERE, &[])
}

/// At this address, with additional variables.
pub fn controller_with(
    models: &[(String, String)],
    url: &str,
    address: &str,
    more: &[(&str, &str)],
) -> Pool {
    let listen = format!("{address}:{}", free_port());
    let standby = format!("{{advertise: \"http://{listen}\"}}");
    let mut env = vec![
        ("MODEL_POOL__SERVER__LISTEN", listen.as_str()),
        ("MODEL_POOL__SERVER__TRUSTED_PROXIES", "[127.0.0.1]"),
        // A forwarded request is never local (B2).
        ("MODEL_POOL__AUTH__INFERENCE", "open"),
        ("MODEL_POOL__STATE__DATABASE_URL", url),
        // Tests stop engines by default.
        ("MODEL_POOL__POOL__ON_RESTART", "adopt"),
        ("MODEL_POOL__STATE__STANDBY", standby.as_str()),
        (
            "MODEL_POOL__INVENTORY__DEVICES",
            "[{name: small, memory: 1MiB}]",
        ),
    ];
    env.extend_from_slice(more);
    Pool::with_env(models, "pool: {keep_hot: 5m}\n", &env)
}

/// The first controller leads; the second stands by, and has the same administrator key.
pub fn two(models: &[(String, String)], first_url: &str, second_url: &str) -> (Pool, Pool) {
    let first = controller(models, first_url);
    assert_eq!(health(&first)["role"], Value::Null, "it leads");
    let second = controller(models, second_url);
    assert_eq!(health(&second)["role"], "standby");
    let key = |pool: &Pool| pool.data().join("admin.key");
    fs::copy(key(&first), key(&second)).unwrap();
    (first, second)
}

pub fn health(pool: &Pool) -> Value {
    let (status, text, _) = pool.request("GET", "/llm/health", "", None);
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// A chat request with an unread response.
pub fn post_unread(pool: &Pool, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(pool.address()).unwrap();
    write!(
        socket,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        pool.address(),
        body.len()
    )
    .unwrap();
    socket
}

/// Returns true if the log shows that the controller has started to lead.
pub fn leads(pool: &Pool) -> bool {
    pool.log().contains("this controller leads")
}

/// Returns true once a former standby serves as the leader. Until its server has stopped, the standby refuses requests with 503.
pub fn serves_as_leader(pool: &Pool) -> bool {
    leads(pool) && health(pool)["role"].is_null()
}

/// The generation in the database.
pub fn generation(server: &Server, url: &str) -> u64 {
    let text = server.ask(name_of(url), "SELECT generation FROM leadership");
    text.unwrap().parse().unwrap()
}

/// A `model-pool node` with one device of 4 GiB that knows both controllers; ended with the test.
pub struct Node {
    folder: tempfile::TempDir,
    child: Child,
}

impl Node {
    pub fn start(pool: &Pool, other: &Pool) -> Node {
        let key = pool.admin_key();
        let (status, text, _) = pool.request("POST", "/llm/admin/nodes/tokens", "{}", Some(&key));
        assert_eq!(status, 200, "{text}");
        let response: Value = serde_json::from_str(&text).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| -> PathBuf { folder.path().join(name) };
        fs::write(file("token"), response["token"].as_str().unwrap()).unwrap();
        fs::set_permissions(file("token"), PermissionsExt::from_mode(0o600)).unwrap();
        let config = "inventory: {provider: fixed, devices: [{name: gpu0, memory: 4GiB}]}\n";
        fs::write(file("node.yaml"), config).unwrap();
        let log = fs::File::create(file("log")).unwrap();
        // The standby is listed first: it reports the leader.
        let child = Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args(["node", "--name", "gpu-2"])
            .args(["--controller", &format!("http://{}", other.address())])
            .args(["--controller", &format!("http://{}", pool.address())])
            .arg("--token-file")
            .arg(file("token"))
            .arg("--config")
            .arg(file("node.yaml"))
            .arg("--data")
            .arg(file("data"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let node = Node { folder, child };
        wait_for("the node to join", || node.joined(pool) == 1);
        // The controller places models on a node after it has read the list of its engines.
        wait_for("the controller to count on the node", || {
            pool.log().contains("node gpu-2 has joined (N1)")
        });
        node
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Number of times that it has joined this controller.
    pub fn joined(&self, pool: &Pool) -> usize {
        self.log()
            .matches(&format!("joined http://{}/llm", pool.address()))
            .count()
    }

    /// The highest generation it has accepted.
    pub fn generation(&self) -> u64 {
        let file = self.folder.path().join("data/controller-generation");
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    /// Processes of its engines, from its journal.
    pub fn engines(&self) -> Vec<u32> {
        let folder = self.folder.path().join("data/engines");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| fs::read(entry.path()).ok());
        let records = texts.filter_map(|text| serde_json::from_slice::<Value>(&text).ok());
        records
            .filter_map(|record| u32::try_from(record["engine"]["pid"].as_u64()?).ok())
            .collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        end_engines_in(&self.folder.path().join("data"));
        if thread::panicking() {
            eprintln!("--- the node's log ---\n{}", self.log());
        }
    }
}
