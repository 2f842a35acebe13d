//! The progress of a load in steps common to all engines. An engine's own stage texts are mapped to these steps, for display only.

use std::fmt;

/// The steps of a load, in order; after the last one the engine is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Weights are being downloaded.
    Fetching,
    /// The process runs and has not mentioned weights yet.
    Starting,
    /// Weights are being read and copied to the devices.
    Loading,
    /// Kernels are being compiled, graphs captured, and caches created.
    Warming,
}

const FETCHING: [&str; 3] = ["fetch", "download", "pulling"];
const STARTING: [&str; 3] = ["start", "init", "boot"];
const WARMING: [&str; 6] = ["warm", "compil", "captur", "profil", "tun", "kv cache"];

impl Stage {
    /// The step that an engine's own text means. An unknown text means the longest step.
    pub fn parse(line: &str) -> Stage {
        let line = line.to_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| line.contains(part));
        if has(&FETCHING) {
            Stage::Fetching
        } else if has(&WARMING) {
            Stage::Warming
        } else if has(&STARTING) {
            Stage::Starting
        } else {
            Stage::Loading
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Fetching => "fetching",
            Stage::Starting => "starting",
            Stage::Loading => "loading",
            Stage::Warming => "warming",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_lines_of_engines_map_to_stages() {
        for (line, stage) in [
            ("weights", Stage::Loading),
            ("Downloading shards", Stage::Fetching),
            ("starting", Stage::Starting),
            ("Capturing CUDA graphs", Stage::Warming),
            ("torch.compile", Stage::Warming),
            ("/health answers 404", Stage::Loading),
            ("", Stage::Loading),
        ] {
            assert_eq!(Stage::parse(line), stage, "{line}");
        }
    }
}
