//! vLLM's log during a load, in the same order and wording, distributed over the load time.

use std::io::Write;
use std::time::Duration;

use tokio::time::sleep;

use crate::flags::Flags;
use crate::gpu::{Gpu, gib};
use crate::milliseconds;

const SHARDS: u32 = 4;
const GRAPHS: u32 = 4;

/// One line of its logger, on standard output.
pub fn line(text: &str) {
    println!(
        "(EngineCore pid={}) INFO 01-01 00:00:00 [core.py:1] {text}",
        std::process::id()
    );
}

/// A progress bar step on standard error, which begins with a carriage return.
fn bar(text: &str) {
    let mut error = std::io::stderr().lock();
    let _ = write!(error, "\r{text}");
    let _ = error.flush();
}

/// Returns once it has loaded, or with its last message.
pub async fn load(flags: &Flags, gpu: &Gpu) -> Result<(), String> {
    let step: Duration = milliseconds("VLLM_DOUBLE_LOAD_MS", 200) / (SHARDS + GRAPHS + 2);
    line("Initializing a V1 LLM engine (v0.33.0) with config: …");
    gpu.check_share()?;
    line(&format!("Starting to load model {}...", flags.model));
    for done in 0..=SHARDS {
        bar(&format!(
            "Loading safetensors checkpoint shards: {:3}% Completed | {done}/{SHARDS} [00:00<00:00,  1.00it/s]",
            done * 100 / SHARDS
        ));
        sleep(step).await;
    }
    bar("\n");
    if let Ok(words) = std::env::var("VLLM_DOUBLE_FAIL") {
        return Err(words);
    }
    gpu.take_weights()?;
    line(&format!(
        "Model loading took {:.2} GiB memory and 1.000000 seconds",
        gib(gpu.weights())
    ));
    let cache = gpu.take_cache()?;
    line(&format!("Available KV cache memory: {:.2} GiB", gib(cache)));
    line(&format!(
        "GPU KV cache size: {} tokens, Maximum concurrency for {} tokens per request: {:.2}x",
        cache >> 17,
        flags.max_model_len,
        (cache >> 17) as f64 / flags.max_model_len.max(1) as f64
    ));
    if !flags.eager {
        for done in 0..=GRAPHS {
            bar(&format!(
                "Capturing CUDA graphs (decode, FULL): {:3}%|#| {done}/{GRAPHS} [00:00<00:00,  1.00it/s]",
                done * 100 / GRAPHS
            ));
            sleep(step).await;
        }
        bar("\n");
        line("Graph capturing finished in 1 secs, took 0.25 GiB");
    }
    line("init engine (profile, create kv cache, warmup model) took 1.00 s (compilation: 0.00 s)");
    println!("INFO:     Waiting for application startup.");
    println!("INFO:     Application startup complete.");
    Ok(())
}
