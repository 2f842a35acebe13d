//! Custom tools whose grammars expand far beyond their length: a request with them gets its response soon, and the service serves
//! other requests in this time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use support::net::stub;
use support::service::Pool;

/// On a busy machine, and without optimisation.
const HEALTH_WITHIN: Duration = Duration::from_secs(2);
const RESPOND_WITHIN: Duration = Duration::from_secs(15);
const TOGETHER: usize = 8;

/// A grammar whose automaton has a billion states.
fn grammar(nth: usize) -> Value {
    json!({"syntax": "regex", "definition": format!("a{nth}(((b{{1000}}){{1000}}){{1000}})+")})
}

/// Below the length at which bodies are always parsed on a separate thread.
fn requests() -> [(&'static str, Value); 2] {
    let of_response = |nth: usize| {
        let mut format = grammar(nth);
        format["type"] = json!("grammar");
        json!({"type": "custom", "name": format!("t{nth}"), "format": format})
    };
    let of_chat = |nth: usize| {
        let format = json!({"type": "grammar", "grammar": grammar(nth)});
        json!({"type": "custom", "custom": {"name": format!("t{nth}"), "format": format}})
    };
    let tools = |of: &dyn Fn(usize) -> Value| (0..350).map(of).collect::<Vec<_>>();
    let messages = json!([{"role": "user", "content": "Hi"}]);
    [
        (
            "/v1/responses",
            json!({"model": "m", "input": "Hi", "store": false, "tools": tools(&of_response)}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": messages, "tools": tools(&of_chat)}),
        ),
    ]
}

/// Ends the watch, also when a request fails.
struct EndWatch<'a>(&'a AtomicBool);

impl Drop for EndWatch<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn the_health_route_responds_while_large_grammars_are_read() {
    let pool = Pool::with_models(&[stub("m", &[])], "");
    let ready = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(pool.post("/v1/chat/completions", &ready.to_string()).0, 200);
    let requests = requests();
    let enough = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !enough.load(Ordering::SeqCst) {
                let began = SystemTime::now();
                assert_eq!(pool.request("GET", "/llm/health", "", None).0, 200);
                longest = longest.max(began.elapsed().unwrap_or_default());
                std::thread::park_timeout(Duration::from_millis(5));
            }
            longest
        });
        let watched = EndWatch(&enough);
        let clients: Vec<_> = (0..TOGETHER)
            .map(|nth| {
                let (path, body) = &requests[nth % requests.len()];
                let pool = &pool;
                scope.spawn(move || {
                    let began = SystemTime::now();
                    let (status, text, _) = pool.request_unchecked("POST", path, &body.to_string());
                    let shown: String = text.chars().take(300).collect();
                    assert_eq!(status, 200, "{path}: {shown}");
                    began.elapsed().unwrap_or_default()
                })
            })
            .collect();
        for client in clients {
            let took = client.join().expect("a response");
            assert!(took < RESPOND_WITHIN, "answered after {took:?}");
        }
        drop(watched);
        watch.join().expect("it is well")
    });
    assert!(longest < HEALTH_WITHIN, "not well for {longest:?}");
}
