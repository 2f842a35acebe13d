//! The command line of the embedded engine, which the service starts itself.

use std::path::PathBuf;

use candle_engine::{CacheType, DeviceChoice, ProductType, Quantization, Task};
use clap::Args;

#[derive(Args, Debug)]
pub struct EngineArgs {
    /// A folder in Hugging Face layout, or a GGUF file.
    #[arg(long)]
    pub model_dir: PathBuf,
    /// The model's id in requests.
    #[arg(long)]
    pub model_name: String,
    /// Listen on this Unix socket.
    #[arg(long, required_unless_present = "port")]
    pub socket: Option<PathBuf>,
    /// Listen on this port of the loopback interface.
    #[arg(long, conflicts_with = "socket")]
    pub port: Option<u16>,
    /// Maximum tokens of prompt and answer together.
    #[arg(long, default_value_t = 2048)]
    pub context: usize,
    /// Maximum requests computed at the same time.
    #[arg(long, default_value_t = 4)]
    pub concurrency: usize,
    /// CPU threads.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Requests tokenized at the same time; half the cores if omitted.
    #[arg(long)]
    pub tokenizer_workers: Option<usize>,
    /// Maximum tokens of one prompt.
    #[arg(long)]
    pub max_input_tokens: Option<usize>,
    /// Maximum tokens of all prompts computed at the same time.
    #[arg(long)]
    pub max_batch_prefill_tokens: Option<usize>,
    /// Maximum tokens of all running requests, including the longest answers they may produce.
    #[arg(long)]
    pub max_batch_total_tokens: Option<usize>,
    /// Requests that must wait before they join the running ones, in thousandths of the number of running requests.
    #[arg(long, requires = "max_waiting_steps")]
    pub waiting_served_ratio_milli: Option<u32>,
    /// Steps without a new request after which a waiting one joins in any case.
    #[arg(long, requires = "waiting_served_ratio_milli")]
    pub max_waiting_steps: Option<u32>,
    /// Maximum tokens proposed for a request in one step, found earlier in its own text; 0 disables speculation. Defaults to 8 on
    /// the CPU and 0 on GPUs.
    #[arg(long)]
    pub num_speculative_tokens: Option<usize>,
    /// Maximum number of last tokens to look up.
    #[arg(long, default_value_t = 3)]
    pub prompt_lookup_max: usize,
    /// Minimum number of last tokens to look up.
    #[arg(long, default_value_t = 2)]
    pub prompt_lookup_min: usize,
    /// Quantize wide weights while loading: q8_0 or q4_k.
    #[arg(long, value_name = "FORM")]
    pub quantization: Option<Quantization>,
    /// Number type for products of BF16 matrices on the CPU: auto, bfloat16 or float32.
    #[arg(long, value_name = "TYPE", default_value = "auto")]
    pub dtype: ProductType,
    /// Number type of cached keys and values on the CPU: auto (float32), float16, bfloat16 or float32.
    #[arg(long, value_name = "TYPE", default_value = "auto")]
    pub kv_cache_dtype: CacheType,
    /// Check every number of the weights before the model becomes ready.
    #[arg(long)]
    pub verify: bool,
    /// generate, embed or rerank, if the model's files do not specify the task.
    #[arg(long)]
    pub task: Option<Task>,
    /// cpu, cuda:N or metal:N; several devices share the layers: cuda:0,cuda:1,cpu.
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    pub device: Vec<DeviceChoice>,
    /// A LoRA adapter that is loaded with the model; may be repeated.
    #[arg(long, value_name = "NAME=FOLDER", value_parser = named_folder)]
    pub lora_modules: Vec<(String, PathBuf)>,
    /// Maximum number of LoRA adapters loaded at run time.
    #[arg(long, default_value_t = 0)]
    pub max_loras: usize,
    /// Maximum rank of an adapter.
    #[arg(long, default_value_t = 64)]
    pub max_lora_rank: u32,
    /// Memory limit on each GPU; the default is all free memory.
    #[arg(long, value_name = "BYTES")]
    pub device_memory: Option<u64>,
}

fn named_folder(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !folder.is_empty() => {
            Ok((name.to_owned(), folder.into()))
        }
        _ => Err("write NAME=FOLDER".to_owned()),
    }
}
