//! Metrics in Prometheus' text format under vLLM's names, including the older name of the cache usage.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Numbers {
    pub running: AtomicU64,
    pub requests: AtomicU64,
    pub tokens: AtomicU64,
    pub prompt_tokens: AtomicU64,
    /// Requests without `stream`, which vLLM does not count.
    pub plain: AtomicU64,
}

impl Numbers {
    /// `seats` is the number of sequences computed together; further ones wait.
    pub fn text(&self, model: &str, seats: u64, is_asleep: bool) -> String {
        let all = self.running.load(Ordering::Relaxed);
        let running = all.min(seats);
        let label = format!("{{engine=\"0\",model_name=\"{model}\"}}");
        let used = running as f64 / seats.max(1) as f64;
        let rows: [(&str, &str, String); 9] = [
            ("num_requests_running", "gauge", running.to_string()),
            ("num_requests_waiting", "gauge", (all - running).to_string()),
            ("kv_cache_usage_perc", "gauge", used.to_string()),
            ("gpu_cache_usage_perc", "gauge", used.to_string()),
            (
                "engine_sleep_state",
                "gauge",
                u8::from(!is_asleep).to_string(),
            ),
            (
                "prompt_tokens_total",
                "counter",
                self.prompt_tokens.load(Ordering::Relaxed).to_string(),
            ),
            (
                "generation_tokens_total",
                "counter",
                self.tokens.load(Ordering::Relaxed).to_string(),
            ),
            (
                "request_success_total",
                "counter",
                self.requests.load(Ordering::Relaxed).to_string(),
            ),
            (
                "double_plain_requests_total",
                "counter",
                self.plain.load(Ordering::Relaxed).to_string(),
            ),
        ];
        rows.iter()
            .map(|(name, kind, value)| {
                format!("# TYPE vllm:{name} {kind}\nvllm:{name}{label} {value}\n")
            })
            .collect()
    }
}
