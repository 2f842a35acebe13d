//! Owns the figures of `GET /memory`. Never allocates for a model.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// The answer of `GET /memory`, in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryReport {
    /// Weights as they lie on the device.
    pub weights_bytes: u64,
    /// Of them, those that are pages of mapped files: not in `resident_bytes`, and the engine's all the same. 0 while it
    /// sleeps, when the system may use them for others.
    pub weights_mapped_bytes: u64,
    /// What the KV caches of all concurrent requests take at full context.
    pub kv_cache_bytes_max: u64,
    /// What the KV caches of the requests in flight take now.
    pub kv_cache_bytes_used: u64,
    /// Anonymous and shared memory of this process; `None` where the system does not tell.
    pub resident_bytes: Option<u64>,
}

/// Bytes of KV cache in use, counted by the requests themselves.
#[derive(Debug, Default)]
pub(crate) struct KvCacheUse(AtomicU64);

impl KvCacheUse {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One request's share of the KV cache; dropping it gives the bytes back.
pub(crate) struct KvCacheShare<'pool> {
    pool: &'pool KvCacheUse,
    bytes: u64,
}

impl<'pool> KvCacheShare<'pool> {
    pub fn new(pool: &'pool KvCacheUse) -> Self {
        Self { pool, bytes: 0 }
    }

    pub fn grow(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.pool.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for KvCacheShare<'_> {
    fn drop(&mut self) {
        self.pool.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes of anonymous and shared memory of this process, from `/proc/self/status`; file pages do not count, they can be dropped.
pub(crate) fn resident_bytes() -> Option<u64> {
    sum_of_resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn sum_of_resident(status: &str) -> Option<u64> {
    let kibibytes = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    Some((kibibytes("RssAnon:")? + kibibytes("RssShmem:")?) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_and_shared_pages_are_added_and_file_pages_are_not() {
        let status = "Name:\tengine\nVmRSS:\t 900 kB\nRssAnon:\t     100 kB\nRssFile:\t     790 kB\nRssShmem:\t      10 kB\n";
        assert_eq!(sum_of_resident(status), Some(110 * 1024));
        assert_eq!(sum_of_resident("Name:\tengine\n"), None);
    }

    #[test]
    fn a_request_gives_its_cache_back_when_it_ends() {
        let pool = KvCacheUse::default();
        let mut share = KvCacheShare::new(&pool);
        share.grow(100);
        share.grow(20);
        assert_eq!(pool.bytes(), 120);
        drop(share);
        assert_eq!(pool.bytes(), 0);
    }
}
