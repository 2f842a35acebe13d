//! Tests of loading: progress, checks, and quantisation on request.

use crate::error::EngineError;
use crate::files::{LoadPlan, ModelFiles, Role};
use crate::progress::Progress;
use crate::stored_tensor::Encoding;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use std::path::Path;
use tempfile::TempDir;

fn kept(name: &str) -> ModelFiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    ModelFiles::open(&folder.join(name)).expect("opens")
}

/// A demo model with weights of a type, and one changed tensor.
fn changed(dtype: DType, name: &str, change: impl Fn(&Tensor) -> Tensor) -> TempDir {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(demo.join("config.json"), folder.path().join("config.json")).expect("a copy");
    let tensors = candle_core::safetensors::load(demo.join("model.safetensors"), &Device::Cpu);
    let tensors: Vec<(String, Tensor)> = tensors
        .expect("weights")
        .into_iter()
        .map(|(known, tensor)| {
            let tensor = if known == name {
                change(&tensor)
            } else {
                tensor
            };
            (known, tensor.to_dtype(dtype).expect("converts"))
        })
        .collect();
    safetensors::serialize_to_file(tensors, None, &folder.path().join("model.safetensors"))
        .expect("written");
    folder
}

fn load(folder: &Path, plan: LoadPlan) -> Result<ModelFiles, EngineError> {
    let mut files = ModelFiles::open(folder)?;
    let progress = Progress::default();
    files.load(plan, &progress)?;
    assert_eq!(progress.read(), ("weights", 95), "all bytes were reported");
    Ok(files)
}

#[test]
fn non_finite_weights_are_found_if_verification_is_on() {
    const NAME: &str = "model.layers.1.mlp.down_proj.weight";
    let verify = LoadPlan {
        verify: true,
        ..LoadPlan::default()
    };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let right = changed(dtype, NAME, Clone::clone);
        load(right.path(), verify).expect("has numbers only");
        for wrong in [f32::NAN, f32::INFINITY] {
            let folder = changed(dtype, NAME, |tensor| {
                let mut numbers = tensor
                    .flatten_all()
                    .expect("a row")
                    .to_vec1::<f32>()
                    .expect("numbers");
                numbers[777] = wrong;
                Tensor::from_vec(numbers, tensor.dims(), &Device::Cpu).expect("a tensor")
            });
            load(folder.path(), LoadPlan::default()).expect("it is not checked");
            let error = load(folder.path(), verify)
                .expect_err("a number is none")
                .to_string();
            let byte = format!("byte {}", 777 * dtype.size_in_bytes());
            assert!(
                error.contains("model.safetensors")
                    && error.contains(NAME)
                    && error.contains(&byte),
                "{error}"
            );
        }
    }
}

#[test]
fn matrices_are_quantized_and_norms_routers_and_untied_embeddings_are_not() {
    let plan = LoadPlan {
        quantization: Some(Encoding::Q8_0),
        verify: true,
    };
    for name in ["llama", "qwen2-moe", "gemma2"] {
        let mut files = kept(name);
        let before = files.weights_bytes();
        files.load(plan, &Progress::default()).expect("loads");
        assert!(files.weights_bytes() < before / 2 + before / 4, "{name}");
        let ties = files.spec().expect("a decoder").ties_head;
        for expected in files.expected().expect("a decoder") {
            let stored = files.tensor(&expected.name).expect("is there");
            let matrix = match expected.role {
                Role::Matrix | Role::Head => true,
                Role::Embedding => ties,
                Role::Router | Role::Row => false,
            };
            // Rows that are not complete blocks keep their encoding.
            let fits = expected
                .shape
                .last()
                .is_some_and(|columns| columns.is_multiple_of(32));
            let given = kept(name).tensor(&expected.name).expect("is there");
            let meant = if matrix && fits {
                Encoding::Q8_0
            } else {
                given.encoding
            };
            assert_eq!(stored.encoding, meant, "{}", expected.name);
            assert_eq!(stored.shape, expected.shape);
            if meant == Encoding::Q8_0 {
                let numbers = super::gguf_writer::tensor(&given);
                let quantised = QTensor::quantize(&numbers, GgmlDType::Q8_0).expect("quantises");
                assert_eq!(stored.bytes(), &*quantised.data().expect("bytes"));
            }
        }
    }
}

#[test]
fn a_cancelled_load_ends() {
    let mut files = kept("llama");
    let progress = Progress::default();
    progress.cancel();
    let error = files
        .load(LoadPlan::default(), &progress)
        .expect_err("was cancelled");
    assert!(
        error.to_string().contains("stopped while loading"),
        "{error}"
    );
}

#[test]
fn a_weight_file_truncated_after_opening_is_an_error() {
    let folder = changed(DType::F32, "", Clone::clone);
    let path = folder.path().join("model.safetensors");
    let mut files = ModelFiles::open(folder.path()).expect("opens");
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("opens");
    file.set_len(5000).expect("shorter");
    let error = files
        .load(LoadPlan::default(), &Progress::default())
        .expect_err("most of it is gone");
    assert!(error.to_string().contains("was truncated"), "{error}");
}
