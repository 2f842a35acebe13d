//! The figures of `GET /memory`.

use serde::Serialize;

/// The response of `GET /memory`, in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryReport {
    /// Weights on the device.
    pub weights_bytes: u64,
    /// The part of `weights_bytes` in mapped files. Not included in `resident_bytes`, although the engine uses it. 0 while the
    /// engine sleeps, because the kernel may evict these pages then.
    pub weights_mapped_bytes: u64,
    /// Size of the KV cache, which is allocated on loading.
    pub kv_cache_bytes_max: u64,
    /// Cache pages held by running requests.
    pub kv_cache_bytes_used: u64,
    /// Anonymous and shared memory of this process; `None` if the operating system does not report it.
    pub resident_bytes: Option<u64>,
}

/// Reads the anonymous and shared memory of this process from `/proc/self/status`, in bytes. File pages do not count, because they
/// can be evicted.
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
