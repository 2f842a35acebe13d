//! The figures of `GET /memory`.

use serde::Serialize;

/// The answer of `GET /memory`, in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryReport {
    /// Weights as they lie on the device.
    pub weights_bytes: u64,
    /// Of them, those that are pages of mapped files: not in `resident_bytes`, and the engine's all the same. 0 while it
    /// sleeps, when the system may use them for others.
    pub weights_mapped_bytes: u64,
    /// The pages of the KV cache, which are there from the start.
    pub kv_cache_bytes_max: u64,
    /// Those that the requests in flight hold now.
    pub kv_cache_bytes_used: u64,
    /// Anonymous and shared memory of this process; `None` where the system does not tell.
    pub resident_bytes: Option<u64>,
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
}
