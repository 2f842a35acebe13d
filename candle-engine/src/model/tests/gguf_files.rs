//! The network computes the same from a GGUF file as from the folder it was made from, which checks row order, names, norms and
//! rotary embeddings together.

use crate::files::tests::gguf::{MODELS, kept};
use crate::files::tests::gguf_writer::GgufWriter;
use crate::files::{LoadPlan, ModelFiles};
use crate::kernels::{Pool, Precision};
use crate::model::{Decoder, HiddenStates, Placement, Resources};
use crate::progress::Progress;
use crate::step::{PAGE_TOKENS, Page, Span, Step};
use candle_core::Device;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// Test models with properties that GGUF has no key for: another activation, other blocks without rotary embeddings, other score
/// factors.
const NOT_IN_FILE: [&str; 4] = ["llama-biased", "smollm3", "gemma2", "gemma3"];
const TOKENS: usize = 100;

fn logits(path: &Path) -> Vec<f32> {
    let mut files = ModelFiles::open(path).expect("opens");
    files
        .load(LoadPlan::default(), &Progress::default())
        .expect("loads");
    let blocks = files.spec().expect("a decoder").blocks.len();
    let pages = TOKENS.div_ceil(PAGE_TOKENS);
    let resources = Resources {
        pages,
        context_tokens: TOKENS,
        pool: Arc::new(Pool::new(NonZeroUsize::MIN)),
        cache: Precision::F32,
    };
    let placement = Placement::on(&Device::Cpu, blocks);
    let mut decoder =
        Decoder::load(&files, &placement, &resources, &|_| Ok(())).expect("has all tensors");
    let step = Step {
        tokens: (0..TOKENS).map(|place| (place * 37 % 250) as u32).collect(),
        spans: vec![Span {
            past: 0,
            count: TOKENS,
            pages: (0..pages as Page).collect(),
            adapter: None,
            prompt: 0,
        }],
        wanted: (0..TOKENS).collect(),
    };
    let (mut hidden, mut logits) = (HiddenStates::default(), Vec::new());
    decoder.forward(&step, &mut hidden).expect("computes");
    decoder
        .logits(&hidden, 0..TOKENS, &mut logits)
        .expect("logits");
    logits
}

#[test]
fn a_gguf_computes_the_same_as_its_safetensors_folder() {
    let scratch = tempfile::tempdir().expect("a folder");
    for (name, architecture) in MODELS {
        // The architecture's own row order differs.
        if NOT_IN_FILE.contains(&name) || architecture == "mistral3" {
            continue;
        }
        let path = scratch.path().join("model.gguf");
        GgufWriter::new(&kept(name), architecture).save(&path);
        let (folder, file) = (logits(&kept(name)), logits(&path));
        let largest = folder
            .iter()
            .fold(0.0_f32, |most, logit| most.max(logit.abs()));
        let far = folder
            .iter()
            .zip(&file)
            .map(|(one, other)| (one - other).abs());
        let far = far.fold(0.0_f32, |most, next| if next <= most { most } else { next });
        assert!(far < 1e-3 * largest, "{name}: {far} of {largest}");
    }
}
