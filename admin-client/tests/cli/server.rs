//! A tiny scripted HTTP server on 127.0.0.1:0, and the client run against it. It sends the replies that
//! the test defines for each method and target, and records the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// One received request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Such as `GET /llm/admin/models?model=m`.
    pub line: String,
    /// With names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }
}

/// A scripted reply.
#[derive(Clone)]
pub struct Reply {
    status: u16,
    kind: &'static str,
    body: String,
    /// Wait until this request line was received this many times.
    after: Option<(&'static str, usize)>,
}

impl Reply {
    pub fn json(status: u16, body: impl ToString) -> Reply {
        Reply {
            status,
            kind: "application/json",
            body: body.to_string(),
            after: None,
        }
    }

    pub fn other(status: u16, kind: &'static str, body: &str) -> Reply {
        Reply {
            kind,
            ..Reply::json(status, body)
        }
    }

    pub fn after(self, line: &'static str, times: usize) -> Reply {
        Reply {
            after: Some((line, times)),
            ..self
        }
    }
}

type Routes = Vec<(&'static str, Vec<Reply>)>;

#[derive(Default)]
struct RequestLog {
    requests: Mutex<Vec<Request>>,
    more: Condvar,
}

/// A running server. Its thread ends with the test's process.
pub struct Server {
    pub address: String,
    seen: Arc<RequestLog>,
}

impl Server {
    /// For each request line its replies: the n-th request gets the n-th, later ones the last.
    pub fn start(routes: Routes) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = Arc::new(RequestLog::default());
        let shared = Arc::clone(&seen);
        let routes = Arc::new(routes);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (routes, seen) = (Arc::clone(&routes), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream, &routes, &seen));
            }
        });
        Server { address, seen }
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().expect("not poisoned").clone()
    }

    /// The only request with this line.
    pub fn request(&self, line: &str) -> Request {
        let mut found: Vec<Request> = self.requests();
        found.retain(|request| request.line == line);
        assert_eq!(
            found.len(),
            1,
            "requests {line:?} among {:?}",
            self.requests()
        );
        found.remove(0)
    }

    /// Runs the client against this server from an empty directory.
    pub fn client(&self, arguments: &str) -> Run {
        let dir = tempfile::tempdir().expect("a directory");
        run(&self.address, arguments, dir.path(), &[])
    }
}

fn serve(stream: TcpStream, routes: &Routes, seen: &RequestLog) {
    let mut reader = BufReader::new(&stream);
    let Some(request) = read_request(&mut reader) else {
        return;
    };
    let line = request.line.clone();
    let nth = {
        let mut requests = seen.requests.lock().expect("not poisoned");
        let before = requests
            .iter()
            .filter(|request| request.line == line)
            .count();
        requests.push(request);
        seen.more.notify_all();
        before
    };
    let reply = routes
        .iter()
        .find(|(route, _)| *route == line)
        .and_then(|(_, replies)| replies.get(nth).or(replies.last()).cloned())
        .unwrap_or_else(|| Reply::other(599, "text/plain", "the test defines no reply"));
    if let Some((awaited, times)) = reply.after {
        let requests = seen.requests.lock().expect("not poisoned");
        let enough = |requests: &mut Vec<Request>| {
            requests
                .iter()
                .filter(|request| request.line == awaited)
                .count()
                < times
        };
        // A limit in case the client never sends it; the test then fails on what is missing.
        let _waited = seen
            .more
            .wait_timeout_while(requests, Duration::from_secs(20), enough)
            .expect("not poisoned");
    }
    let mut out = &stream;
    let _client_gone = write!(
        out,
        "HTTP/1.1 {} scripted\r\ncontent-type: {}\r\ncontent-length: {}\r\nx-request-id: req-1\r\nconnection: close\r\n\r\n{}",
        reply.status,
        reply.kind,
        reply.body.len(),
        reply.body
    );
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let line = line.trim_end().strip_suffix(" HTTP/1.1")?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        match header.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(Some(0), |(_, value)| value.parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        line,
        headers,
        body: String::from_utf8(body).ok()?,
    })
}

/// The result of one run of the client.
#[derive(Debug)]
pub struct Run {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the client in `dir`. Of the pool's environment variables, it has only `variables`.
pub fn run(server: &str, arguments: &str, dir: &Path, variables: &[(&str, &str)]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_admin-client"));
    command
        .args(arguments.split_whitespace())
        .current_dir(dir)
        .env_remove("MODEL_POOL_ADMIN_KEY")
        .env_remove("MODEL_POOL_ADMIN_KEY_FILE")
        .env("MODEL_POOL_SERVER", server)
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the client runs");
    Run {
        status: status.code().expect("an exit status"),
        stdout: String::from_utf8(stdout).expect("text"),
        stderr: String::from_utf8(stderr).expect("text"),
    }
}
