//! What the gateway adds to a request, and what the pool adds to a swap, in front of an engine that
//! answers at once. `cargo bench --bench gateway`. Direct and through the gateway in turn, in the same
//! run, because the machine may be shared: compare the two columns, not two runs.

#[path = "../tests/support/stub.rs"]
mod stub;
#[path = "../tests/support/whole.rs"]
mod whole;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whole::{Pool, wait_for};

const REQUESTS: usize = 3_000;
const CLIENTS: usize = 16;
const LOAD_MS: u64 = 300;

/// One kept connection, as an SDK keeps it.
struct Client {
    socket: TcpStream,
    reader: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Client {
    fn new(address: &str, model: &str, stream: bool) -> Client {
        let body = format!(
            r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"hello"}}]}}"#
        );
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let socket = TcpStream::connect(address).expect("the server listens");
        socket.set_nodelay(true).expect("a TCP socket");
        let reader = BufReader::new(socket.try_clone().expect("a TCP socket"));
        Client {
            socket,
            reader,
            request: format!("{head}{body}").into_bytes(),
        }
    }

    /// Time to the first byte of the body, and to its end.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn ask(&mut self) -> (Duration, Duration) {
        let began = Instant::now();
        self.socket
            .write_all(&self.request)
            .expect("the server reads");
        let (mut length, mut chunked) = (0, false);
        let mut line = String::new();
        let mut status = None;
        loop {
            line.clear();
            self.reader
                .read_line(&mut line)
                .expect("the server answers");
            status.get_or_insert_with(|| line.trim().to_owned());
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            chunked |= lower.starts_with("transfer-encoding: chunked");
            if line == "\r\n" {
                break;
            }
        }
        assert!(
            status
                .as_deref()
                .is_some_and(|status| status.contains("200")),
            "{status:?}"
        );
        let mut first = None;
        let mut body = Vec::new();
        if chunked {
            loop {
                line.clear();
                self.reader.read_line(&mut line).expect("a chunk");
                let size = usize::from_str_radix(line.trim(), 16).expect("a chunk's size");
                body.resize(size + 2, 0);
                self.reader.read_exact(&mut body).expect("a chunk");
                // Comments of the wait are no answer.
                if body.starts_with(b"data:") {
                    first.get_or_insert_with(|| began.elapsed());
                }
                if size == 0 {
                    break;
                }
            }
        } else {
            body.resize(length, 0);
            self.reader.read_exact(&mut body).expect("the body");
        }
        (first.unwrap_or_else(|| began.elapsed()), began.elapsed())
    }
}

fn percentile(times: &mut [Duration], hundredths: usize) -> Duration {
    times.sort();
    times[(times.len() - 1) * hundredths / 100]
}

struct Direct(Child, String);

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The same engine without the pool in front of it.
fn direct() -> Direct {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("bound").port().to_string();
    drop(free);
    let mut command = Command::new(stub::stub_engine());
    let child = command
        .args(["--port", &port])
        .stdout(Stdio::null())
        .spawn()
        .expect("the stub starts");
    let address = format!("127.0.0.1:{port}");
    wait_for("the stub to listen", || {
        TcpStream::connect(&address).is_ok()
    });
    Direct(child, address)
}

fn model(name: &str, flags: &str) -> (String, String) {
    let program = stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  command: [{program:?}, \"--port\", \"{{{{ port }}}}\"{flags}]\ndeployment_config: {{max_ongoing_requests: 512}}\npool_config: {{priority: 0, memory_gib: 10}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn latency(direct: &str, gateway: &str, stream: bool) {
    let mut clients = [
        Client::new(direct, "fast", stream),
        Client::new(gateway, "fast", stream),
    ];
    let mut times = [Vec::new(), Vec::new()];
    for nth in 0..REQUESTS + 200 {
        for (client, times) in clients.iter_mut().zip(&mut times) {
            let (first, whole) = client.ask();
            if nth >= 200 {
                times.push(if stream { first } else { whole });
            }
        }
    }
    let [mut direct, mut gateway] = times;
    let what = if stream {
        "first byte of a stream"
    } else {
        "plain answer"
    };
    for hundredths in [50, 99] {
        let (a, b) = (
            percentile(&mut direct, hundredths),
            percentile(&mut gateway, hundredths),
        );
        println!(
            "{what}, one connection, p{hundredths}: direct {a:?}, gateway {b:?}, added {:?}",
            b.saturating_sub(a)
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn throughput(address: &str) -> f64 {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::new(address, "fast", false);
                (0..REQUESTS / CLIENTS * 2).for_each(|_| {
                    client.ask();
                });
            });
        }
    });
    (REQUESTS / CLIENTS * 2 * CLIENTS) as f64 / began.elapsed().as_secs_f64()
}

/// From a request for a cold model to its first byte, less the time the engine takes to be ready.
fn swap(pool: &Pool, gateway: &str) {
    let key = pool.admin_key();
    let mut times = Vec::new();
    for _ in 0..15 {
        let mut client = Client::new(gateway, "slow", true);
        let (first, _) = client.ask();
        times.push(first.saturating_sub(Duration::from_millis(LOAD_MS)));
        drop(client);
        let body = r#"{"model":"slow","now":true}"#;
        let (status, text, _) = pool.request("POST", "/llm/admin/unload", body, Some(&key));
        assert_eq!(status, 200, "{text}");
    }
    let (p50, p90) = (percentile(&mut times, 50), percentile(&mut times, 90));
    println!(
        "swap: request to first byte of a cold model, less {LOAD_MS} ms of the engine's own: p50 {p50:?}, p90 {p90:?} (starting the process included)"
    );
}

/// Processor time so far, in ticks of 10 ms, and anonymous memory in KiB.
fn usage(pid: u32) -> (u64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or(vec![], |(_, rest)| rest.split_whitespace().collect());
    let ticks = |nth: usize| {
        fields
            .get(nth)
            .and_then(|it| it.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let rss = status.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    (ticks(11) + ticks(12), rss.unwrap_or(0))
}

fn main() {
    let pool = Pool::with_models(
        &[
            model("fast", ""),
            model("slow", &format!(", \"--ready-after-ms\", \"{LOAD_MS}\"")),
        ],
        "",
    );
    let idle = Duration::from_secs(10);
    let before = usage(pool.pid());
    std::thread::sleep(idle);
    let after = usage(pool.pid());
    let cpu = (after.0 - before.0) as f64 / 100.0 / idle.as_secs_f64() * 100.0;
    println!(
        "idle controller: {} KiB resident, {cpu:.2} % of a core",
        after.1
    );
    let gateway = pool.address().to_owned();
    swap(&pool, &gateway);
    let direct = direct();
    Client::new(&gateway, "fast", false).ask();
    latency(&direct.1, &gateway, false);
    latency(&direct.1, &gateway, true);
    for round in 1..=3 {
        let (a, b) = (throughput(&direct.1), throughput(&gateway));
        println!(
            "throughput, {CLIENTS} connections, round {round}: direct {a:.0}/s, gateway {b:.0}/s, ratio {:.2}",
            b / a
        );
    }
    let (_, resident) = usage(pool.pid());
    println!("controller after that: {resident} KiB resident");
}
