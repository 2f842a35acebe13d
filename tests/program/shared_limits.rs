//! Shared limits (B1): one caller fills each limit, and other callers are served as before. The table in docs/guides/security.md
//! lists these tests, and UPDATE=1 writes it.

mod bodies;
mod frames;
mod logins;
mod queues;
mod readers;
mod table;

use std::time::{Duration, SystemTime};

use serde_json::json;
use support::service::Pool;

/// Maximum delay that a caller who fills a limit causes to others.
const DELAY_MAX: Duration = Duration::from_millis(250);
/// Number of requests for the median: other tests may delay single requests.
const REQUESTS: usize = 9;

/// A pool whose users have keys, with these variables in addition.
fn start(models: &[(String, String)], config: &str, env: &[(&str, &str)]) -> Pool {
    let mut all = vec![("MODEL_POOL__AUTH__INFERENCE", "key")];
    all.extend(env);
    Pool::with_env(models, config, &all)
}

fn user_key(pool: &Pool, name: &str) -> String {
    let wish = json!({"name": name, "role": "user"});
    let (status, made) = pool.admin("POST", "/llm/admin/keys", &wish);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

/// The median time of a request.
fn median(mut request: impl FnMut()) -> Duration {
    let times = (0..REQUESTS).map(|_| {
        let began = SystemTime::now();
        request();
        began.elapsed().unwrap_or_default()
    });
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times[REQUESTS / 2]
}

/// Asserts that a request is as fast as it was before the limit was filled.
fn assert_as_fast(what: &str, before: Duration, now: Duration) {
    assert!(
        now <= before + DELAY_MAX,
        "{what}: {now:?} while another caller fills the limit, {before:?} before"
    );
}
