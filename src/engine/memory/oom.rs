//! Recognises an engine that ended because it ran out of memory, by its last output or by the kernel's count of OOM kills. The pool
//! decides what follows (M1).
//!
//! The patterns are messages of PyTorch (`CUDA out of memory. Tried to allocate …`, the same with `HIP`), of
//! the CUDA runtime (`cudaMalloc failed: out of memory`, `CUDA_ERROR_OUT_OF_MEMORY`), of vLLM (`No available
//! memory for the cache blocks`, `… is less than desired GPU memory utilization`), and of llama.cpp (`failed to
//! allocate CUDA0 buffer`, `unable to allocate … buffer`).

use std::path::PathBuf;

use pool::Bytes;

/// An engine ran out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OutOfMemory {
    /// The need on one device, if the output names it.
    #[serde(with = "super::serial::bytes_or_none")]
    pub needed: Option<Bytes>,
    /// Host memory was full, not the device's.
    pub of_host: bool,
}

const TEXTS: [&str; 8] = [
    "cuda out of memory",
    "hip out of memory",
    "cuda_error_out_of_memory",
    "failed: out of memory",
    "cuda error: out of memory",
    "hip error: out of memory",
    "no available memory for the cache blocks",
    "less than desired gpu memory utilization",
];

/// Finds an out-of-memory message in an engine's output.
pub(crate) fn find(output: &str) -> Option<OutOfMemory> {
    let output = output.to_lowercase();
    // `failed to allocate CUDA0 buffer of size …`, `unable to allocate ROCm1 buffer`.
    let buffer = |line: &str| {
        let starts = ["failed to allocate", "unable to allocate"];
        starts.iter().any(|start| {
            line.split_once(start)
                .is_some_and(|(_, rest)| rest.contains("buffer"))
        })
    };
    let is_oom = TEXTS.iter().any(|known| output.contains(known)) || output.lines().any(buffer);
    is_oom.then(|| OutOfMemory {
        needed: needed(&output),
        of_host: false,
    })
}

/// PyTorch prints how much the process already had and how much more it tried to allocate.
fn needed(output: &str) -> Option<Bytes> {
    let wanted = amount(output.split_once("tried to allocate ")?.1)?;
    let had = output.split_once("this process has ")?.1;
    had.contains("memory in use")
        .then(|| amount(had))
        .flatten()
        .map(|had| had + wanted)
}

/// Parses `1.50 GiB` at the beginning of a text.
fn amount(text: &str) -> Option<Bytes> {
    let mut parts = text.split_whitespace();
    let number: f64 = parts.next()?.parse().ok()?;
    let unit = match parts
        .next()?
        .trim_end_matches(|c: char| !c.is_alphanumeric())
    {
        "bytes" => 1,
        "kib" => 1 << 10,
        "mib" => Bytes::MIB,
        "gib" => Bytes::GIB,
        _ => return None,
    };
    // Saturates, as float casts do.
    (number.is_finite() && number >= 0.0).then(|| Bytes((number * unit as f64).ceil() as u64))
}

/// The number of processes in our control group that the kernel has killed for memory; `None` if the system does not report it
/// (cgroup v2, `memory.events`: Linux, "Control Group v2", section Memory).
pub(crate) fn kernel_kills() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = PathBuf::from("/sys/fs/cgroup")
        .join(own.trim_start_matches('/'))
        .join("memory.events");
    count_of(&std::fs::read_to_string(file).ok()?)
}

fn count_of(events: &str) -> Option<u64> {
    let line = events
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_memory_messages_of_each_engine_are_recognized() {
        for output in [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 64.00 MiB.",
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
            "ValueError: Free memory on device (10.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB).",
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
            "llama_kv_cache_init: failed to allocate CUDA0 buffer of size 4294967296",
            "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")",
        ] {
            assert!(find(output).is_some(), "{output}");
        }
    }

    #[test]
    fn other_failures_are_not_out_of_memory() {
        for output in [
            "",
            "no tensor named lm_head",
            "failed to allocate a port",
            "the buffer is full",
            "see the chapter on running out of memory",
        ] {
            assert_eq!(find(output), None, "{output}");
        }
    }

    #[test]
    fn the_needed_memory_is_the_memory_held_plus_the_failed_allocation() {
        let output = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.11 GiB of which 512.00 MiB is free. Including non-PyTorch memory, this process has 70.00 GiB memory in use.";
        let needed = find(output).and_then(|lack| lack.needed);
        assert_eq!(needed, Some(Bytes(71 * Bytes::GIB + Bytes::GIB / 2)));
        let silent = find("CUDA out of memory. Tried to allocate 2.00 GiB.");
        assert_eq!(
            silent,
            Some(OutOfMemory {
                needed: None,
                of_host: false
            })
        );
        assert_eq!(amount("nan GiB"), None);
        assert_eq!(amount("-1 GiB"), None);
    }

    #[test]
    fn the_kernels_oom_kill_count_is_parsed() {
        assert_eq!(count_of("low 0\nmax 3\noom 2\noom_kill 1\n"), Some(1));
        assert_eq!(count_of("low 0\n"), None);
    }
}
