//! Interprets the output of engines: the stage of a load, and the class of a failure with advice. Contains the shared tables and
//! their lookup; texts specific to one engine are in its own file.

use std::fmt;

/// Progress of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// A short description of one or two words.
    pub name: &'static str,
    pub percent: Option<u8>,
}

/// A text that indicates a stage, followed by a percentage where the engine reports one.
#[derive(Clone, Copy, Debug)]
pub struct StageMark {
    pub text: &'static str,
    pub stage: &'static str,
}

pub const fn mark(text: &'static str, stage: &'static str) -> StageMark {
    StageMark { text, stage }
}

/// The stage of the first mark that the line contains.
pub fn by_marks(line: &str, marks: &[StageMark]) -> Option<Stage> {
    marks.iter().find_map(|mark| {
        let (_, rest) = line.split_once(mark.text)?;
        Some(Stage {
            name: mark.stage,
            percent: percent(rest),
        })
    })
}

/// The first number followed by `%`.
fn percent(text: &str) -> Option<u8> {
    let (before, _) = text.split_once('%')?;
    let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let number: u8 = before[before.len() - digits..].parse().ok()?;
    (number <= 100).then_some(number)
}

/// The cause of an engine failure, as far as its output shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// Another placement with more memory may help.
    OutOfMemory,
    /// The model is gated, or does not exist for this token.
    NoAccess,
    /// Model files are missing; the disk may come back.
    ModelMissing,
    UnknownArchitecture,
    PortInUse,
    MissingLibrary,
    Quantisation,
    DiskFull,
    DriverTooOld,
    /// The engine does not know a flag.
    WrongFlags,
}

impl FailureClass {
    /// The name in API responses and metrics.
    pub fn name(self) -> &'static str {
        match self {
            FailureClass::OutOfMemory => "out_of_memory",
            FailureClass::NoAccess => "no_access",
            FailureClass::ModelMissing => "model_missing",
            FailureClass::UnknownArchitecture => "unknown_architecture",
            FailureClass::PortInUse => "port_in_use",
            FailureClass::MissingLibrary => "missing_library",
            FailureClass::Quantisation => "quantisation",
            FailureClass::DiskFull => "disk_full",
            FailureClass::DriverTooOld => "driver_too_old",
            FailureClass::WrongFlags => "wrong_flags",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A known failure: texts to look for in the engine's output (ignoring case), and advice.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub class: FailureClass,
    pub texts: &'static [&'static str],
    pub advice: &'static str,
}

impl Failure {
    /// Returns true if the engine rejected a flag, which suggests a version other than the one whose flags the pool knows.
    pub fn is_unknown_flag(&self) -> bool {
        self.texts == UNKNOWN_FLAG
    }
}

/// Texts in lower case.
const UNKNOWN_FLAG: &[&str] = &[
    "unrecognized arguments",
    "unexpected argument",
    "error: invalid argument",
    "no such option",
];

pub const fn failure(
    class: FailureClass,
    texts: &'static [&'static str],
    advice: &'static str,
) -> Failure {
    Failure {
        class,
        texts,
        advice,
    }
}

/// The failure that the output shows. The engine's own failures take precedence over the shared ones.
pub fn failure_in(output: &str, own: &'static [Failure]) -> Option<&'static Failure> {
    let output = output.to_lowercase();
    let fits = |failure: &&Failure| failure.texts.iter().any(|text| output.contains(text));
    own.iter().chain(SHARED).find(fits)
}

/// Texts in lower case.
const SHARED: &[Failure] = &[
    failure(
        FailureClass::OutOfMemory,
        &[
            "out of memory. tried to allocate",
            "cuda out of memory",
            "hip out of memory",
            "cuda_error_out_of_memory",
            "cuda error: out of memory",
            "cudamalloc failed: out of memory",
        ],
        "give the model more room: a smaller engine_config.max_total_tokens, fewer deployment_config.max_ongoing_requests, more GPUs (pool_config.gpus_per_replica), or a larger pool_config.memory_gib",
    ),
    failure(
        FailureClass::NoAccess,
        &[
            "gatedrepoerror",
            "you are trying to access a gated repo",
            "401 client error",
            "403 client error",
        ],
        "accept the model's licence on Hugging Face and put a token that may read it into engine_config.env.HF_TOKEN, or name a local folder in engine_config.model_path",
    ),
    failure(
        FailureClass::ModelMissing,
        &[
            "repositorynotfounderror",
            "is not a local folder and is not a valid model identifier",
            "does not appear to have a file named",
        ],
        "check that the folder in engine_config.model_path exists and is mounted, or that engine_config.hf_model_id is the model's name on Hugging Face; a private model needs engine_config.env.HF_TOKEN",
    ),
    failure(
        FailureClass::DriverTooOld,
        &[
            "nvidia driver on your system is too old",
            "cuda driver version is insufficient",
            "forward compatibility was attempted on non supported hw",
        ],
        "install a newer NVIDIA driver, or a build of the engine for the CUDA version that nvidia-smi shows",
    ),
    failure(
        FailureClass::MissingLibrary,
        &[
            "error while loading shared libraries",
            "cannot open shared object file",
            "modulenotfounderror",
            "no module named",
        ],
        "install what is missing into the engine's environment, or name another build in engine_config.program; a folder of libraries goes into engine_config.env.LD_LIBRARY_PATH",
    ),
    failure(
        FailureClass::DiskFull,
        &["no space left on device", "disk quota exceeded"],
        "free disk space for the weights (in the folder from engine_config.env.HF_HOME), then load again",
    ),
    failure(
        FailureClass::PortInUse,
        &["address already in use", "address in use", "couldn't bind"],
        "load the model again: another port will be chosen; engine_config.listen: socket needs no port, if the engine supports it",
    ),
    failure(
        FailureClass::WrongFlags,
        UNKNOWN_FLAG,
        "the installed version does not know this flag: install another version, or remove the key from engine_config.engine_kwargs",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mark_in_a_line_sets_the_stage_and_the_number_before_the_percent_sign() {
        let marks = [mark("shards:", "reading weights"), mark("ready", "ready")];
        let stage = |line| by_marks(line, &marks).map(|stage| (stage.name, stage.percent));
        let line = "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03]";
        assert_eq!(stage(line), Some(("reading weights", Some(25))));
        assert_eq!(stage("shards: 250%"), Some(("reading weights", None)));
        assert_eq!(stage("ready"), Some(("ready", None)));
        assert_eq!(stage("loading"), None);
    }

    #[test]
    fn known_failures_are_classified_by_their_messages() {
        for (output, class) in [
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                FailureClass::OutOfMemory,
            ),
            (
                "huggingface_hub.errors.GatedRepoError: 401 Client Error.",
                FailureClass::NoAccess,
            ),
            (
                "libcudart.so.12: cannot open shared object file: No such file or directory",
                FailureClass::MissingLibrary,
            ),
            (
                "OSError: [Errno 28] No space left on device",
                FailureClass::DiskFull,
            ),
            (
                "OSError: [Errno 98] Address already in use",
                FailureClass::PortInUse,
            ),
            (
                "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
                FailureClass::DriverTooOld,
            ),
            (
                "vllm serve: error: unrecognized arguments: --x",
                FailureClass::WrongFlags,
            ),
        ] {
            assert_eq!(
                failure_in(output, &[]).map(|failure| failure.class),
                Some(class),
                "{output}"
            );
        }
        assert!(failure_in("KeyError: 'lm_head'", &[]).is_none());
    }
}
