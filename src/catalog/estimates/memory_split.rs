//! The division of a model between GPUs and host memory, for engines with options that place its parts.

use std::fmt;

use pool::Bytes;

/// The memory of one replica by place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySplit {
    /// The memory on each GPU, in the engine's order.
    pub gpus: Vec<Bytes>,
    pub host: Bytes,
    /// The part of `host` that is mapped from a file, whose pages can be read again.
    pub mapped: Bytes,
    /// The options that place the parts, as written.
    pub options: Vec<String>,
}

/// Formats as `12.1 GiB on the GPU, 5.5 GiB on the host: --n-cpu-moe 20`.
impl fmt::Display for MemorySplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gpus.as_slice() {
            [only] => write!(f, "{only} on the GPU")?,
            gpus => {
                let each: Vec<String> = gpus.iter().map(Bytes::to_string).collect();
                write!(f, "{} on the GPUs", each.join(" and "))?;
            }
        }
        write!(f, ", {} on the host", self.host)?;
        if self.options.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.options.join(" "))
    }
}
