//! Two gateways that share limits over a real Redis server, and their behaviour without it. Needs `redis-server` on the PATH
//! (Debian: `apt-get install redis-server`); without it these tests report that they were skipped.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::external_programs::{is_for_later, skipped};
use support::service::{Pool, wait_for};

/// A server without persistence.
struct Redis {
    port: u16,
    child: Option<Child>,
}

impl Redis {
    fn start() -> Option<Redis> {
        let known = Command::new("redis-server")
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if is_for_later() || known.is_err() {
            skipped(
                "redis",
                "redis-server is not on the PATH; install it and run `cargo test --test outside shared_limits::`",
            );
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut redis = Redis { port, child: None };
        redis.run();
        Some(redis)
    }

    fn run(&mut self) {
        let port = self.port.to_string();
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        let port = self.port;
        wait_for("the server to listen", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
    }

    /// Sends `STOP` or `CONT`.
    fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Returns true if an unread query has arrived.
    fn has_unread(&self) -> bool {
        sockets(self.port).iter().any(|(_, unread)| *unread > 0)
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A gateway that uses this server.
    fn pool(&self, limit: &str, on_outage: &str) -> Pool {
        let files = [model("small", 1), model("slow", 200)];
        let port = self.port;
        let config = format!(
            "limits:\n  anonymous: {limit}\n  redis: {{url: \"redis://127.0.0.1:{port}/0\", timeout: 2s, on_outage: {on_outage}}}\n"
        );
        Pool::with_models(&files, &config)
    }
}

/// Every connection of this local port: the kernel's state number, and its unread bytes.
fn sockets(port: u16) -> Vec<(u64, u64)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
    let mut found = Vec::new();
    for line in table.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let own = words[1].split_once(':').map_or(0, |(_, port)| number(port));
        let unread = words[4]
            .split_once(':')
            .map_or(0, |(_, unread)| number(unread));
        if own == u64::from(port) && words[3] != LISTENS {
            found.push((number(words[3]), unread));
        }
    }
    found
}

const LISTENS: &str = "0A";
const TIME_WAIT: u64 = 6;

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn model(name: &str, token_ms: u32) -> (String, String) {
    let program = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {name}, --tokens, \"10\", --token-ms, \"{token_ms}\"]\n  ready_path: /health\npool_config: {{memory_gib: 4}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn body(model: &str, stream: bool) -> String {
    json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]})
        .to_string()
}

fn ask(pool: &Pool) -> (u16, Value) {
    let (status, text) = pool.post("/v1/chat/completions", &body("small", false));
    (status, serde_json::from_str(&text).unwrap_or_default())
}

#[test]
fn requests_and_tokens_are_counted_across_pools() {
    let Some(redis) = Redis::start() else { return };
    let pools = [
        redis.pool("{requests_per_minute: 4}", "closed"),
        redis.pool("{requests_per_minute: 4}", "closed"),
    ];
    for nth in 0..4 {
        assert_eq!(ask(&pools[nth % 2]).0, 200, "the {nth}th");
    }
    for pool in &pools {
        let (status, refused) = ask(pool);
        assert_eq!(
            (status, &refused["error"]["code"]),
            (429, &json!("rate_limit_exceeded"))
        );
    }
    let pools = [
        redis.pool("{tokens_per_minute: 12}", "closed"),
        redis.pool("{tokens_per_minute: 12}", "closed"),
    ];
    wait_for("the tokens of one to be gone for both", || {
        ask(&pools[0]);
        ask(&pools[1]).0 == 429
    });
    let day = redis.pool("{tokens_per_day: 12}", "closed");
    wait_for("the daily tokens to be used up", || ask(&day).0 == 429);
    assert_eq!(ask(&day).1["error"]["code"], "insufficient_quota");
}

#[test]
fn concurrent_requests_are_counted_across_pools_and_released() {
    let Some(redis) = Redis::start() else { return };
    let pools = [
        redis.pool("{concurrent_requests: 1}", "closed"),
        redis.pool("{concurrent_requests: 1}", "closed"),
    ];
    let first = pools[0].stream("/v1/chat/completions", &body("slow", true));
    wait_for("it to be answered", || first.text().contains("content"));
    assert_eq!(
        ask(&pools[1]).1["error"]["code"],
        "concurrency_limit_exceeded"
    );
    drop(first);
    wait_for("its place to be free", || ask(&pools[1]).0 == 200);
}

/// A gateway with a limit of one request, which receives requests while its server is stopped.
fn asked_of_a_frozen_server(redis: &Redis) -> (Pool, support::service::Stream) {
    let pool = redis.pool("{concurrent_requests: 1}", "closed");
    assert_eq!(ask(&pool).0, 200);
    wait_for("its place to be free", || ask(&pool).0 == 200);
    redis.signal("STOP");
    let stream = pool.stream("/v1/chat/completions", &body("small", false));
    wait_for("the question to arrive", || redis.has_unread());
    (pool, stream)
}

#[test]
fn a_client_that_disconnects_while_redis_is_queried_leaves_no_slot_occupied() {
    let Some(redis) = Redis::start() else { return };
    let (pool, stream) = asked_of_a_frozen_server(&redis);
    drop(stream);
    let port = pool.address().rsplit_once(':').unwrap().1.parse().unwrap();
    wait_for("the gateway to see that its client has left", || {
        sockets(port).iter().all(|(state, _)| *state == TIME_WAIT)
    });
    redis.signal("CONT");
    wait_for("its place to be free", || ask(&pool).0 == 200);
}

#[test]
fn an_admission_that_arrives_too_late_leaves_no_slot_occupied() {
    let Some(redis) = Redis::start() else { return };
    let (pool, stream) = asked_of_a_frozen_server(&redis);
    assert!(
        stream.whole().contains("limits_unavailable"),
        "{}",
        stream.text()
    );
    redis.signal("CONT");
    wait_for("its place to be free", || ask(&pool).0 == 200);
}

#[test]
fn during_a_redis_outage_each_pool_does_as_configured_and_afterwards_they_share_counts_again() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let limit = "{requests_per_minute: 2}";
    let pools = ["own", "open", "closed"].map(|on_outage| redis.pool(limit, on_outage));
    assert_eq!((ask(&pools[0]).0, ask(&pools[1]).0), (200, 200));
    assert_eq!(ask(&pools[2]).0, 429, "the two were counted together");
    redis.kill();
    let [own, open, closed] = &pools;
    let statuses: Vec<u16> = (0..3).map(|_| ask(own).0).collect();
    assert_eq!(statuses, [200, 200, 429], "each counts for itself");
    assert!((0..6).all(|_| ask(open).0 == 200), "nothing is counted");
    let (status, refused) = ask(closed);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (503, &json!("limits_unavailable"))
    );
    assert!(own.log().contains("cannot be reached (limits.redis)"));
    redis.run();
    wait_for("it to be found again", || ask(closed).0 == 200);
    wait_for("both to count there", || ask(open).0 == 429);
    assert!(closed.log().contains("can be reached again"));
}

#[test]
fn a_gateway_serves_without_redis_and_a_password_in_its_url_is_refused() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    redis.kill();
    let pool = redis.pool("{requests_per_minute: 1}", "own");
    assert_eq!((ask(&pool).0, ask(&pool).0), (200, 429));
    let (status, message) =
        Pool::refused("limits: {redis: {url: \"redis://:secret@127.0.0.1/0\"}}\n");
    assert_ne!(status, Some(0));
    assert!(message.contains("limits.redis.password_file"), "{message}");
    assert!(!message.contains("secret"), "{message}");
}
