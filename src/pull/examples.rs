//! The examples in the help of `model-pool pull`, which `cli` shows.

/// Shown below the options of `pull --help`.
pub const EXAMPLES: &str = "\
Examples:
  model-pool pull Qwen/Qwen3-0.6B
  model-pool pull org/small-GGUF:Q4_K_M     # the GGUF file of this quantization
  model-pool pull my-model                  # a model of config/models
  model-pool pull --search qwen3 gguf       # what the hub has of that name

A pull that was stopped continues where it was. Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 cannot reach the hub, 130 stopped by Ctrl-C.";
